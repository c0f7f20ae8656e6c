"""`traceprobe watch`: a whole run as it is, and what held it up."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from traceprobe.cli.console import misused, warn
from traceprobe.cli.options import (
    MEASURING,
    OUTPUT,
    Force,
    Quiet,
    Ranks,
    Redact,
    Verbose,
    Workload,
)

if TYPE_CHECKING:
    from traceprobe.capture.run_watch import WatchedEnd


def command(
    context: typer.Context,
    workload: Workload = None,
    nproc_per_node: Ranks = None,
    output: Annotated[
        list[Path] | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            rich_help_panel=OUTPUT,
            help="Output to write, repeatable: .html, .json or .md. [default: "
            "traceprobe-NAME-watch.html and .json]",
        ),
    ] = None,
    readings: Annotated[
        float,
        typer.Option(
            "--readings",
            min=0.05,
            max=3_600,
            metavar="S",
            rich_help_panel=MEASURING,
            help="Time between two readings of clock and memory, seconds.",
        ),
    ] = 0.5,
    prometheus: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            rich_help_panel=OUTPUT,
            help="Metrics of the run while it goes on, in Prometheus' text format; replaced every "
            "second.",
        ),
    ] = None,
    jsonl: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            rich_help_panel=OUTPUT,
            help="A line of JSON for each event, and each second for the pace.",
        ),
    ] = None,
    redact: Redact = False,
    force: Force = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Let a program train to its end, without a profiler, and say what held it up.

    The program has the terminal as it would without; the exit code is its own.
    """
    from traceprobe.capture.program import workspace
    from traceprobe.capture.run_watch import run_watched
    from traceprobe.capture.watch_plan import WatchPlan
    from traceprobe.cli import outputs
    from traceprobe.cli.program import chosen, named
    from traceprobe.watch.live import Live
    from traceprobe.watch.processes import read_processes
    from traceprobe.watch.summary import Ended, summarize_watch

    program, name = chosen(workload, list(context.args), "watch")
    targets = output or [Path(f"traceprobe-{name}-watch{suffix}") for suffix in (".html", ".json")]
    delivery = outputs.Delivery(
        targets=targets,
        redact=redact,
        github_summary=False,
        force=force,
        quiet=quiet,
        verbose=verbose,
    )
    if Path("-") in targets:
        misused("-o -: standard output is the program's; write to a file")
    delivery.check(named(program))
    for path in filter(None, (prometheus, jsonl)):
        outputs.check_file(path, named(program), force=force)
    with workspace(_folder(targets)) as work:
        live = Live(work, prometheus, jsonl)
        plan = WatchPlan(clock_seconds=readings)
        end = run_watched(program, plan, nproc_per_node, work, live.look)
        live.look()
        processes = read_processes(work)
    if not processes:
        _nothing(end)
    ended = Ended(name, end.words, end.exit_code, end.seconds)
    with redirect_stdout(sys.stderr):  # standard output is the program's
        delivery.deliver(summarize_watch(processes, ended))
    raise typer.Exit(end.exit_code)


def _folder(targets: list[Path]) -> Path:
    """Where the processes leave what they note while the program runs."""
    return targets[0].parent


def _nothing(end: WatchedEnd) -> None:
    """Say that there is nothing to tell.

    Raises:
        Exit: with the code of the program, or 2 where it says that all is well.
    """
    warn(
        f"traceprobe: the program {end.words}, and no two updates of a PyTorch optimizer were "
        "seen in it, so there is nothing to tell; see docs/watch.md"
    )
    raise typer.Exit(end.exit_code or 2)
