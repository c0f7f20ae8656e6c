"""`traceprobe sweep`: run a ladder, rung by rung, and record every one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from traceprobe.cli.console import document_summary, misused, note, states, warn
from traceprobe.cli.options import MEASURING, MOST_PROCESSES, OUTPUT, RUNNING, Force, Quiet, Verbose
from traceprobe.cli.profile import Backend, check_folder, filled

if TYPE_CHECKING:
    from traceprobe.records.sweep import Sweep
    from traceprobe.sweep.ladder import Rung
    from traceprobe.sweep.settings import SweepSettings

_SLICE = re.compile(r"([0-9]{0,9}):([0-9]{0,9})")


def command(
    context: typer.Context,
    ladder: Annotated[
        str,
        typer.Argument(
            metavar="LADDER",
            help="File that ends in .toml, or a built-in ladder: gpt2, sc22, tiny. Settings of its "
            "workload may follow; they hold in every rung.",
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="DIR",
            rich_help_panel=OUTPUT,
            help="Folder, with a folder in it for each rung. [default: traceprobe-NAME]",
        ),
    ] = None,
    rungs: Annotated[
        str | None,
        typer.Option(
            metavar="A:B",
            rich_help_panel=RUNNING,
            help="Only rungs A to B-1, counted from 0, or those of these names: fp32,tf32.",
        ),
    ] = None,
    nproc_per_node: Annotated[
        int | None,
        typer.Option(
            min=2,
            max=MOST_PROCESSES,
            metavar="N",
            rich_help_panel=RUNNING,
            help="Ranks of the rungs that have several.",
        ),
    ] = None,
    backend: Annotated[
        Backend | None,
        typer.Option(
            metavar="torch|nsys",
            rich_help_panel=MEASURING,
            help="Profiler, instead of the ladder's.",
        ),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume", rich_help_panel=RUNNING, help="Keep the rungs that have been measured."
        ),
    ] = False,
    force: Force = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Run a workload again and again, each time with one more thing changed, and record each run.

    A rung that fails does not end the others; the exit code is 1 then.
    """
    from traceprobe.sweep.ladder import find_ladder, read_ladder
    from traceprobe.sweep.results import earlier_results
    from traceprobe.sweep.run import sweep
    from traceprobe.sweep.settings import SweepSettings

    if resume and force:
        misused("--resume keeps what --force overwrites; give one of them")
    plan = read_ladder(find_ladder(ladder), nproc_per_node)
    chosen = _chosen(plan.rungs, rungs)
    folder = output or Path(f"traceprobe-{plan.name}")
    check_folder(folder, force=force or resume)
    profiler = backend.value if backend else plan.profile.backend
    settings = SweepSettings(plan, profiler, context.args, folder, replace=force or resume)
    earlier = earlier_results(settings) if resume else {}
    note(plan.note, quiet=quiet or not plan.note)
    with filled(folder), _resumable(folder), states(quiet=quiet) as state:
        results = sweep(settings, chosen, earlier, state, warn)
    _conclude(settings, results, quiet=quiet, verbose=verbose)
    failed = [rung.name for rung in results.rungs if rung.state == "failed"]
    if failed:
        note(f"failed: {', '.join(failed)}; the messages above say why", quiet=quiet)
        raise typer.Exit(1)


def _conclude(settings: SweepSettings, sweep: Sweep, *, quiet: bool, verbose: bool) -> None:
    """Say what the rungs gained, and leave it in the folder."""
    from traceprobe.sweep.changes import LADDER, save_ladder, save_side_comparisons
    from traceprobe.sweep.results import RESULT

    gained = save_ladder(settings, sweep)
    if gained is not None and not quiet:
        from traceprobe.render import document_of

        document_summary(document_of(gained), verbose=verbose)
    for name, comparison in save_side_comparisons(settings, sweep).items():
        note(f"side rung {name}: {comparison.headline}", quiet=quiet)
    for name in [RESULT, *(LADDER if gained is not None else ())]:
        note(f"wrote {settings.folder / name}", quiet=quiet)


def _chosen(rungs: Sequence[Rung], wanted: str | None) -> list[Rung]:
    """The rungs that `--rungs` names; all without it."""
    if wanted is None:
        return list(rungs)
    match = _SLICE.fullmatch(wanted)
    if match is not None:
        start, end = (int(text) if text else None for text in match.groups())
        chosen = list(rungs[start:end])
        if not chosen:
            misused(f"--rungs {wanted[:60]}: there are {len(rungs)} rungs, counted from 0")
        return chosen
    names = wanted.split(",")
    for name in names:
        if name not in {rung.name for rung in rungs}:
            known = ", ".join(rung.name for rung in rungs)
            misused(f"--rungs {wanted[:60]}: there is no rung {name[:60]!r}; there are {known}")
    return [rung for rung in rungs if rung.name in names]


@contextmanager
def _resumable(folder: Path) -> Iterator[None]:
    """Say how to go on with a sweep that was interrupted."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        note(f"the rungs that are done stay in {folder}; go on with --resume", quiet=False)
        raise
