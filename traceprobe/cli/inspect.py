"""`traceprobe inspect`: what is in a file, and what is missing."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from traceprobe.cli.console import data, progress
from traceprobe.cli.options import Limit


def command(
    trace: Annotated[
        Path,
        typer.Argument(metavar="INPUT", help="A trace file.", exists=True, dir_okay=False),
    ],
    limit: Limit = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar.")] = False,
) -> None:
    """Say what a trace holds, and what it lacks for a verdict."""
    from traceprobe.api import load
    from traceprobe.cli import inputs
    from traceprobe.ingest.limits import parse
    from traceprobe.inspection import describe
    from traceprobe.report.text import clean

    limits = parse(limit or [])
    inputs.check([trace])
    with progress([trace], quiet=quiet) as bar:
        loaded = load(trace, bar(0), limits=limits)
    lines = [f"{subject:<10} {clean(text)}\n" for subject, text in describe(loaded)]
    data("".join(lines), sys.stdout.encoding or "utf-8")
