"""`traceprobe watch`: a whole run as it is, and what held it up."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from traceprobe.cli.console import all_of_it, misused, note, states, warn, window_title
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
    from traceprobe.capture.watch.run_watch import WatchedEnd

MOST_CAPTURES = 100
"""Each is a file of some MB, and holds the program up."""

_LENGTHLESS = (
    " that an update of a PyTorch optimizer ends, and it takes 2 to tell how long one lasts; see "
    "docs/watch.md"
)
"""How a message goes on about a program that made too few steps."""


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
    captures: Annotated[
        int,
        typer.Option(
            min=0,
            max=MOST_CAPTURES,
            metavar="N",
            rich_help_panel=MEASURING,
            help="Profile a few steps up to N times: at the next turn of long steps that come in a "
            "rhythm, else after a long step.",
        ),
    ] = 0,
    every: Annotated[
        int,
        typer.Option(
            min=0,
            metavar="N",
            rich_help_panel=MEASURING,
            help="Make captures every N steps too; with --captures.",
        ),
    ] = 0,
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
    from traceprobe.capture.process.program import workspace
    from traceprobe.capture.watch.run_watch import run_watched
    from traceprobe.capture.watch.watch_plan import WatchPlan
    from traceprobe.cli import outputs
    from traceprobe.cli.program import chosen, named
    from traceprobe.watch.captures import analysed, check_folder, kept_captures
    from traceprobe.watch.live import Live
    from traceprobe.watch.processes import read_processes, steps_without_a_length
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
    if every and not captures:
        misused("--every: how many captures? Give --captures too")
    delivery.check(named(program))
    traces = targets[0].with_name(f"{targets[0].stem}-captures")
    if captures:
        check_folder(traces, replace=force)
    for path in filter(None, (prometheus, jsonl)):
        outputs.check_file(path, named(program), force=force)
    with workspace(_folder(targets)) as work:
        plan = WatchPlan(clock_seconds=readings, captures=captures, every=every)
        with window_title(quiet=quiet) as title:
            live = Live(work, prometheus, jsonl, title)
            end = run_watched(program, plan, nproc_per_node, work, live.look)
            live.look()
        processes, lengthless = read_processes(work), steps_without_a_length(work)
        try:
            kept = kept_captures(work, traces, replace=force) if captures else {}
        except OSError as error:  # the run is told all the same
            warn(f"traceprobe: {traces}: the captures are lost: {error.strerror}")
            kept = {}
    if not processes:
        _nothing(end, lengthless)
    ended = Ended(name, end.words, end.exit_code, end.seconds)
    with states(quiet=quiet or not kept) as state:
        found = analysed(kept, state)
    with redirect_stdout(sys.stderr):  # standard output is the program's
        delivery.deliver(summarize_watch(processes, ended, found))
    for path in kept:
        note(f"kept {path}", quiet=quiet)
    saved = next((path for path in targets if path.suffix == ".json"), None)
    if saved is not None:
        all_of_it(saved, quiet=quiet or verbose)
    raise typer.Exit(end.exit_code)


def _folder(targets: list[Path]) -> Path:
    """Where the processes leave what they note while the program runs."""
    return targets[0].parent


def _nothing(end: WatchedEnd, seen: str) -> None:
    """Say that there is nothing to tell.

    Args:
        seen: how many steps the program made, in words.

    Raises:
        Exit: with the code of the program, or 2 where it says that all is well.
    """
    from traceprobe.watch.processes import NO_STEP

    steps = "" if end.code and seen == NO_STEP else _LENGTHLESS
    warn(f"traceprobe: the program {end.words} after {seen}{steps}")
    raise typer.Exit(end.exit_code or 2)
