"""`traceprobe profile`: run a training program, record it, analyse it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from traceprobe.cli.console import echo, note, states, summary, warn
from traceprobe.cli.options import (
    MEASURING,
    MOST_STEPS,
    OUTPUT,
    RUNNING,
    Force,
    Quiet,
    Ranks,
    Verbose,
    Warmup,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from traceprobe.capture.recording.run_recording import RecordingRequest
    from traceprobe.records.ablation import Ablation


class Backend(str, Enum):
    """Which profiler records."""

    torch = "torch"
    nsys = "nsys"


def command(
    context: typer.Context,
    workload: Annotated[
        str | None,
        typer.Option(
            "--workload",
            "-w",
            metavar="NAME",
            rich_help_panel=RUNNING,
            help="Built-in training workload: bert, gpt2, pointwise, resnet50, tiny-mlp, unet, "
            "wide-mlp. Its own settings follow as options (--settings lists them).",
        ),
    ] = None,
    backend: Annotated[
        Backend,
        typer.Option(
            metavar="torch|nsys",
            rich_help_panel=MEASURING,
            help="Profiler: torch.profiler or Nsight Systems.",
        ),
    ] = Backend.torch,
    nproc_per_node: Ranks = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="DIR",
            rich_help_panel=OUTPUT,
            help="Folder for traces and report. [default: traceprobe-NAME]",
        ),
    ] = None,
    warmup: Warmup = 5,
    most_warmup: Annotated[
        int,
        typer.Option(
            min=1,
            max=MOST_STEPS,
            metavar="N",
            rich_help_panel=MEASURING,
            help="Steps after which a loop that is not steady yet is recorded all the same.",
        ),
    ] = 100,
    calibrate: Annotated[
        int,
        typer.Option(
            min=1,
            max=MOST_STEPS,
            metavar="N",
            rich_help_panel=MEASURING,
            help="Steps timed without a profiler, half of them after the profiled ones.",
        ),
    ] = 20,
    active: Annotated[
        int,
        typer.Option(
            min=3, max=10_000, metavar="N", rich_help_panel=MEASURING, help="Steps to profile."
        ),
    ] = 8,
    shapes: Annotated[
        bool,
        typer.Option("--shapes", rich_help_panel=MEASURING, help="Record operator shapes."),
    ] = False,
    stacks: Annotated[
        bool,
        typer.Option(
            "--stacks",
            rich_help_panel=MEASURING,
            help="Record Python stacks; slows the host a lot.",
        ),
    ] = False,
    memory: Annotated[
        bool, typer.Option("--memory", rich_help_panel=MEASURING, help="Record allocations.")
    ] = False,
    gpu_metrics: Annotated[
        bool,
        typer.Option(
            "--gpu-metrics",
            rich_help_panel=MEASURING,
            help="With nsys: sample counters of the GPU, where the driver permits it.",
        ),
    ] = False,
    blame: Annotated[
        bool,
        typer.Option(
            "--blame/--no-blame",
            rich_help_panel=MEASURING,
            help="Record lines, modules and shapes in a few steps after the timed ones.",
        ),
    ] = True,
    ablate: Annotated[
        bool,
        typer.Option(
            "--ablate",
            rich_help_panel=MEASURING,
            help="First measure the program as traceprobe bench does, and compare.",
        ),
    ] = False,
    settings: Annotated[
        bool,
        typer.Option(
            "--settings",
            rich_help_panel=RUNNING,
            help="List the settings of the workload and exit.",
        ),
    ] = False,
    force: Force = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Run a training program for a few steps, record them, and say what bounds it.

    A program of your own comes after `--`; it need not be changed.
    """
    from traceprobe.capture.process.launch import unseen
    from traceprobe.capture.recording.recording_files import BENCH, REPORT
    from traceprobe.capture.recording.recording_plan import RecordingPlan
    from traceprobe.capture.recording.run_recording import (
        RecordingRequest,
        check_recording_request,
        run_recording,
    )
    from traceprobe.cli import outputs
    from traceprobe.cli.program import chosen, named
    from traceprobe.sweep.recording import analyze_recording

    extra = list(context.args)
    program, name = chosen(workload, extra, "profile")
    if settings:
        _list_settings(program)
    folder = output or Path(f"traceprobe-{name}")
    check_folder(folder, force=force)
    for result in (BENCH, *REPORT) if folder.exists() else ():
        outputs.check_file(folder / result, named(program), force=force)
    plan = RecordingPlan(
        folder="",
        backend=backend.value,
        warmup=warmup,
        most_warmup=most_warmup,
        calibrate=calibrate,
        active=active,
        shapes=shapes,
        stacks=stacks,
        memory=memory,
        blame=blame and backend is Backend.torch,
        simulate=workload is not None,
        workload={"name": name},
    )
    request = RecordingRequest(
        program, plan, nproc_per_node, replace=force, gpu_metrics=gpu_metrics
    )
    check_recording_request(request)
    with filled(folder), states(quiet=quiet) as state:
        shown = unseen if quiet else echo
        ablation = _ablate(request, folder, state) if ablate else None
        traces = run_recording(request, folder, state, warn, shown)
        state("analysing")
        with _kept(traces):
            report = analyze_recording(traces, folder, ablation, replace=force)
    if not quiet:
        summary(report, [str(path) for path in traces], verbose=verbose)
    written = [BENCH, *REPORT] if ablate else REPORT
    for path in (*traces, *(folder / name for name in written)):
        note(f"wrote {path}", quiet=quiet)
    note(*_next(folder), quiet=quiet)


@contextmanager
def _kept(traces: list[Path]) -> Iterator[None]:
    """Say that the recording is there, where its analysis ends before it is done."""
    try:
        yield
    except BaseException:
        command = f"traceprobe analyze {_words(traces)}"
        note(f"the recording is complete; analyse it with: {command}", quiet=False)
        raise


def _next(folder: Path) -> tuple[str, str]:
    """How to go on with what was recorded; `profile -v` would record again."""
    from traceprobe.capture.recording.recording_files import REPORT
    from traceprobe.system import shell

    page, saved = (shell.file(str(folder / name)) for name in REPORT)
    return f"next: open {page} in a browser", f"  or: traceprobe render {saved} -v"


def _words(files: list[Path]) -> str:
    from traceprobe.system import shell

    return " ".join(shell.file(str(path)) for path in files)


def check_folder(folder: Path, *, force: bool) -> None:
    """Refuse, before anything runs, a folder that outputs cannot go to.

    Raises:
        UsageError: it is no folder, or holds something and `force` is not set.
    """
    from traceprobe.errors import UsageError

    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder}: is not a folder; choose another with -o")
    if folder.is_dir() and any(folder.iterdir()) and not force:
        raise UsageError(
            f"{folder}: is not empty; overwrite with --force, or choose another with -o"
        )


@contextmanager
def filled(folder: Path) -> Iterator[None]:
    """A folder for outputs; made here, it does not stay where nothing came of them."""
    made = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        if made:
            with suppress(OSError):  # it has something in it
                folder.rmdir()
        raise


def _list_settings(program: list[str]) -> None:
    from traceprobe.capture.process.supervised import run_attached

    raise typer.Exit(run_attached([*program, "--help"]))


def _ablate(request: RecordingRequest, folder: Path, state: Callable[[str], None]) -> Ablation:
    from traceprobe.capture.oracle.ablation_plan import RankTrials, short_ablation
    from traceprobe.capture.oracle.ablation_record import summarize_ablation
    from traceprobe.capture.oracle.run_trials import run_trials

    plan = short_ablation(request.plan.warmup, request.plan.workload)
    processes = request.processes
    return summarize_ablation(
        run_trials(request.program, plan, RankTrials, processes, folder, state, warn)
    )
