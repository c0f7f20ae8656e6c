"""`traceprobe annotate`: traces with tracks of what was found in them, for Perfetto."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from traceprobe.cli.analyze import span
from traceprobe.cli.console import note, progress
from traceprobe.cli.options import OUTPUT, READING, ForceFile, Limit, Silent, StepOfTraces, Traces


def command(
    inputs: Traces,
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            rich_help_panel=OUTPUT,
            help="Chrome JSON to write; gzipped if it ends in .gz.",
        ),
    ],
    step: StepOfTraces = None,
    steps: Annotated[
        str | None,
        typer.Option(
            metavar="A:B",
            rich_help_panel=READING,
            help="Judge only iterations A to B-1, counted from 0.",
        ),
    ] = None,
    limit: Limit = None,
    force: ForceFile = False,
    quiet: Silent = False,
) -> None:
    """Add iterations, phases, idle causes, findings and counters to a trace, for Perfetto."""
    from msgspec import UNSET

    from traceprobe.annotate.annotate_trace import annotate
    from traceprobe.cli import outputs
    from traceprobe.cli.inputs import check_inputs, expand, readable
    from traceprobe.formatting import counted
    from traceprobe.ingest.limits import parse_limits
    from traceprobe.options import Options

    paths = expand(inputs, quiet=quiet)
    check_inputs(paths)
    outputs.check_file(output, paths, force=force)
    options = Options(
        step=step,
        steps=span(steps) if steps is not None else None,
        limits=parse_limits(limit or []),
    )
    with readable(paths) as exported, progress(exported, quiet=quiet) as bar:
        found = annotate(exported, output, options, replace=force, progress=bar)
    report = found.report
    for lost in [] if report.quality.lost is UNSET else report.quality.lost:
        note(f"warning: {lost.reason}", quiet=quiet)
    if not any(rank.iterations for rank in report.ranks):
        note("no iterations were found: name them with --step", quiet=quiet)
    if found.adrift:
        note(
            f"no collective of {', '.join(found.adrift)} ends on the first input too: clocks are "
            "as recorded",
            quiet=quiet,
        )
    note(
        f"{report.verdict.headline}",
        f"wrote {output} ({outputs.size(output)}): {counted(found.events, 'event')} of the input, "
        f"{found.added:,} added",
        quiet=quiet,
    )
    for name, number in found.left_out.items():
        note(f"left out of {name}: the {number:,} shortest or smallest", quiet=quiet)
    note("open it at https://ui.perfetto.dev", quiet=quiet)
