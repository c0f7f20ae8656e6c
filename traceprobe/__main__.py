"""`python -m traceprobe`."""

from traceprobe.cli import main

main()
