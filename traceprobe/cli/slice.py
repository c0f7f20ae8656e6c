"""`traceprobe slice`: a few steps of a trace as a small file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from traceprobe.cli.console import note
from traceprobe.cli.options import OUTPUT, READING, ForceFile, Silent, StepOfTraces, TraceFile


def command(
    trace: TraceFile,
    steps: Annotated[
        str,
        typer.Option(
            metavar="A:B", rich_help_panel=READING, help="Iterations A to B-1, counted from 0."
        ),
    ],
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            rich_help_panel=OUTPUT,
            help="File to write; gzipped if it ends in .gz.",
        ),
    ],
    step: StepOfTraces = None,
    force: ForceFile = False,
    quiet: Silent = False,
) -> None:
    """Cut some steps out of a trace, without what is private, for a bug report or a sample."""
    from traceprobe.cli import outputs
    from traceprobe.cli.analyze import span
    from traceprobe.cli.inputs import readable
    from traceprobe.slicing.slice_trace import slice_trace

    outputs.check_file(output, [trace], force=force)
    with readable([trace]) as files:
        slice_trace(files[0], output, span(steps), step, replace=force)
    note(f"wrote {output} ({outputs.size(output)})", quiet=quiet)
