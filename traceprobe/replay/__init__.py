"""Recorded iterations played again: with changes, and for what their length depends on."""
