"""Dumps of all ranks to what a run hangs in."""
