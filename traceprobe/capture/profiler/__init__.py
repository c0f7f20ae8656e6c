"""What records operations inside a program, and what else it leaves or needs there."""
