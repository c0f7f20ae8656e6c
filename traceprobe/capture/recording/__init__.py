"""A recording: what is asked for, the steps it takes, the files that it makes."""
