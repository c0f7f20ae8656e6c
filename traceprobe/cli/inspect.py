"""`traceprobe inspect`: what is in a file, and what is missing; and a copy to pass on."""

from __future__ import annotations

import os
import sys
import textwrap
from pathlib import Path
from typing import Annotated

import typer

from traceprobe.cli.console import note, progress, terminal_width, text_out
from traceprobe.cli.options import OUTPUT, ForceFile, Limit, TraceFile

_INDENT, _LEAST_WIDTH = 11, 30
"""Columns before what is said, and of the narrowest lines."""


def command(
    trace: TraceFile,
    anonymise: Annotated[
        bool,
        typer.Option(
            "--anonymise",
            rich_help_panel=OUTPUT,
            help="Write a copy of the trace without private names, to --output.",
        ),
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            rich_help_panel=OUTPUT,
            help="File for the copy; gzipped if it ends in .gz.",
        ),
    ] = None,
    force: ForceFile = False,
    limit: Limit = None,
    quiet: Annotated[
        bool,
        typer.Option("--quiet", "-q", rich_help_panel=OUTPUT, help="No progress bar, no messages."),
    ] = False,
) -> None:
    """Say what a trace holds, and what it lacks for a verdict.

    With --anonymise it writes a copy of it for a bug report instead.
    """
    from traceprobe.cli import inputs
    from traceprobe.errors import UsageError
    from traceprobe.ingest.limits import parse_limits

    limits = parse_limits(limit or [])
    inputs.check_inputs([trace])
    if anonymise != (output is not None):
        raise UsageError("--anonymise and -o go together: inspect --anonymise INPUT -o bug.json.gz")
    if output is not None:
        _copy(trace, output, force=force, quiet=quiet)
        return
    from traceprobe.formatting import clean
    from traceprobe.pipeline.inspection import describe
    from traceprobe.pipeline.load import load

    with inputs.readable([trace]) as files, progress(files, quiet=quiet) as bar:
        loaded = load(files[0], bar(0), limits=limits)
    lines = [_folded(f"{subject:<10} {clean(text)}") for subject, text in describe(loaded)]
    text_out("".join(lines), getattr(sys.stdout, "encoding", None) or "utf-8")


def _folded(line: str) -> str:
    """A line in lines of the width of the terminal or of COLUMNS; else as it is, for `grep`."""
    on_terminal = sys.stdout is not None and sys.stdout.isatty()
    if not (on_terminal or os.environ.get("COLUMNS")):
        return f"{line}\n"
    width = max(terminal_width(), _LEAST_WIDTH)
    parts = textwrap.wrap(line, width, subsequent_indent=" " * _INDENT, break_on_hyphens=False)
    return "".join(f"{part}\n" for part in parts)


def _copy(trace: Path, output: Path, *, force: bool, quiet: bool) -> None:
    from traceprobe.anonymise.anonymise_trace import anonymise_trace
    from traceprobe.cli import outputs

    outputs.check_file(output, [trace], force=force)
    anonymise_trace(trace, output, replace=force)
    note(f"wrote {output} ({outputs.size(output)}); look at it before you pass it on", quiet=quiet)
