"""Damaged copies of real traces, one kind of damage after the other, read by the command line."""
