"""`traceprobe whatif`: what a step would take if something of it were different."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from traceprobe.cli.console import misused
from traceprobe.cli.options import Force, GithubSummary, Outputs, Quiet, Redact, Step, Verbose

MOST_BATCHES = 256
"""Each is played again, launch by launch."""
LEAST_PLAYED = 2
"""Used steps: a report with so many holds them as they are played."""
CHANGES = "What to change"

if TYPE_CHECKING:
    from traceprobe.replay.scenario import Changes


def command(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN",
            help="[LABEL=]PATH of a report.json, of a trace, or of a folder with the traces of its "
            "ranks.",
        ),
    ],
    output: Outputs = None,
    remove: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PART",
            rich_help_panel=CHANGES,
            help="Part to leave out, repeatable: data-wait, pauses, stalls, host, reads, sync, "
            "skew, communication, h2d, d2h or a phase.",
        ),
    ] = None,
    overlap: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PART",
            rich_help_panel=CHANGES,
            help="Transfer to hide behind everything else, repeatable: communication, h2d or d2h.",
        ),
    ] = None,
    speedup: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PART=FACTOR",
            rich_help_panel=CHANGES,
            help="Part that gets faster, repeatable: host, loader, compute, communication, h2d, "
            "d2h or a phase, e.g. backward=1.3.",
        ),
    ] = None,
    bucket_mb: Annotated[
        float | None,
        typer.Option(metavar="MB", rich_help_panel=CHANGES, help="Size of DDP's buckets."),
    ] = None,
    micro_batches: Annotated[
        float,
        typer.Option(
            min=1,
            max=MOST_BATCHES,
            metavar="FACTOR",
            rich_help_panel=CHANGES,
            help="Times as many micro-batches of a pipeline, each as much smaller.",
        ),
    ] = 1,
    accumulate: Annotated[
        int,
        typer.Option(
            min=1,
            max=MOST_BATCHES,
            metavar="N",
            rich_help_panel=CHANGES,
            help="Batches that share one synchronisation and update.",
        ),
    ] = 1,
    step: Step = None,
    redact: Redact = False,
    github_summary: GithubSummary = False,
    force: Force = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Predict the step with changes, by playing the recorded iterations again.

    Without a change, shows what single changes would give.
    """
    from traceprobe.cli.outputs import Delivery
    from traceprobe.cli.runs import read_all
    from traceprobe.errors import ImpossibleChange, UsageError
    from traceprobe.whatif.summary import what_if

    asked = _changes(
        remove or [], overlap or [], speedup or [], bucket_mb, micro_batches, accumulate
    )
    delivery = Delivery(
        targets=output or [],
        redact=redact,
        github_summary=github_summary,
        force=force,
        quiet=quiet,
        verbose=verbose,
    )
    (observed,) = read_all([run], step, delivery, LEAST_PLAYED)
    try:
        record = what_if(observed, asked)
    except ImpossibleChange as error:
        raise UsageError(f"{observed.label}: {error}") from error
    delivery.deliver(record)


def _changes(
    remove: list[str],
    overlap: list[str],
    speedup: list[str],
    mb: float | None,
    micro_batches: float,
    accumulate: int,
) -> Changes | None:
    """The changes that were asked for; None without any."""
    from traceprobe.replay import scenario as changes

    factors = dict(map(_factor, speedup))
    for option, given, known in (
        ("--remove", remove, changes.REMOVABLE),
        ("--overlap", overlap, changes.OVERLAPPABLE),
        ("--speedup", factors, changes.SPEEDABLE),
    ):
        for name in given:
            if name not in known:
                misused(f"{option} {name}: not one of {', '.join(known)}")
    if mb is not None and not 1e-3 <= mb <= 1e6:
        misused(f"--bucket-mb {mb:g}: must be a number of MB from 0.001 to 1,000,000")
    asked = changes.Changes(
        removed=frozenset(remove),
        overlapped=frozenset(overlap),
        speedup=factors,
        bucket_mb=mb,
        micro_batches=micro_batches,
        accumulate=accumulate,
    )
    return None if asked == changes.Changes() else asked


def _factor(text: str) -> tuple[str, float]:
    """`PART=FACTOR` as name and number."""
    name, _, number = text.partition("=")
    try:
        factor = float(number)
    except ValueError:
        factor = 0.0
    if not 1e-3 <= factor <= 1e6:
        misused(
            f"--speedup {text[:60]}: write PART=FACTOR with a number from 0.001 to 1,000,000, "
            "e.g. backward=1.3"
        )
    return name, factor
