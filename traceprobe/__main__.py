"""`python -m traceprobe`."""

from traceprobe.cli import program

program()
