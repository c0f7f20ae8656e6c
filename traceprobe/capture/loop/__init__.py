"""The training loop of a program: its steps, with the recorder in it or from outside."""
