"""One recording from start to trace files: set up, run, export; nothing left behind on failure."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from traceprobe.capture.blame.embed import embed_names
from traceprobe.capture.process import nsys_tool
from traceprobe.capture.process.environment import program_environment
from traceprobe.capture.process.launch import PATIENCE_S, rank_command, run_program, unseen
from traceprobe.capture.process.program import python_interpreter, sigint_ignored, workspace
from traceprobe.capture.process.progress import all_ranks_done, cut_off, steps_missing
from traceprobe.capture.recording.recording_files import (
    NSYS_STEM,
    deliver_recording,
    recorded_ranks,
)
from traceprobe.capture.recording.recording_plan import RecordingPlan, trace_name
from traceprobe.errors import UsageError
from traceprobe.formatting import counted
from traceprobe.system import shell


@dataclass(frozen=True)
class RecordingRequest:
    """What to record.

    Args:
        program: command line; with `processes` a Python interpreter, script and arguments.
        plan: the steps; its folder is filled in here.
        processes: ranks to start on this machine; None runs the program as it is.
        environment: variables for the program alone.
        replace: whether the recording takes the place of an older one in its folder.
        gpu_metrics: sample counters of the GPUs, with nsys.
    """

    program: list[str]
    plan: RecordingPlan
    processes: int | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    replace: bool = False
    gpu_metrics: bool = False


def check_recording_request(request: RecordingRequest) -> None:
    """Refuse what cannot be recorded, before anything runs.

    Raises:
        UsageError: nsys is missing or may not sample, or ranks were asked for of what is no Python
            script.
    """
    if request.plan.backend == "nsys":
        _gpu_metrics(request, nsys_tool.find_nsys())
    elif request.gpu_metrics:
        raise UsageError("only Nsight Systems samples counters of the GPU: add --backend nsys")
    if request.processes is not None:
        python_interpreter(request.program)


def _gpu_metrics(request: RecordingRequest, tool: str) -> str | None:
    return nsys_tool.gpu_metrics_option(tool) if request.gpu_metrics else None


def run_recording(
    request: RecordingRequest,
    folder: Path,
    on_state: Callable[[str], None],
    on_note: Callable[[str], None],
    on_output: Callable[[str], None] = unseen,
) -> list[Path]:
    """Paths of the traces that a run of the program leaves in `folder`.

    A recording that is complete when this is interrupted is kept all the same; those of nsys are
    not, since the tool is ended while it writes.

    Args:
        on_state: called with what the program is doing.
        on_note: called with how a program failed whose recording was complete before, which is
            kept, and where a recording is that was complete when this was interrupted.
        on_output: called with the lines that the program writes, as they are shown.

    Returns:
        The trace files, rank by rank (torch), or the one export (nsys).

    Raises:
        UsageError: nsys is missing, the program made no recording, or there is a file in its
            place that must not be replaced.
        RecordingFailed: the program failed.
    """
    tool = nsys_tool.find_nsys() if request.plan.backend == "nsys" else None
    with workspace(folder) as work:
        plan = replace(request.plan, folder=str(work), root=os.getpid())
        command = rank_command(request.program, request.processes, work)
        if tool is not None:
            command = nsys_tool.nsys_command(
                *(tool, work / NSYS_STEM, command),
                event_trace=nsys_tool.knows_event_trace(tool),
                gpu_metrics=_gpu_metrics(request, tool),
            )
        environment = program_environment(plan.VARIABLE, plan.save(), request.environment)
        try:
            end = run_program(
                *(command, environment, work, on_state, on_note, on_output),
                patience=PATIENCE_S if tool is None else None,
            )
        except (KeyboardInterrupt, SystemExit):
            if tool is None and _is_complete(plan, work, request.processes):
                with sigint_ignored():
                    kept = _collect(plan, work, tool, on_state, on_note)
                    deliver_recording(folder, work, replace=request.replace)
                on_note(_kept_note([folder / name for name in kept]))
            raise
        if not _is_complete(plan, work, request.processes):
            end.expect_success()
        names = _collect(plan, work, tool, on_state, on_note)
        deliver_recording(folder, work, replace=request.replace)
    end.note_failure("the recording was complete", on_note)
    return [folder / name for name in names]


def _kept_note(traces: Sequence[Path]) -> str:
    files = " ".join(shell.file(str(path)) for path in traces)
    return f"the recording was complete and is kept; analyse it with: traceprobe analyze {files}"


def _is_complete(plan: RecordingPlan, work: Path, processes: int | None) -> bool:
    """Whether all ranks have left all that they had to leave."""
    if not all_ranks_done(work, processes):
        return False
    if plan.backend == "nsys":
        return (work / f"{NSYS_STEM}.nsys-rep").exists()
    return all((work / trace_name(rank)).exists() for rank in recorded_ranks(work))


def _name(
    work: Path,
    ranks: Sequence[int],
    on_state: Callable[[str], None],
    on_note: Callable[[str], None],
) -> None:
    on_state("carrying names over")
    reasons = [embed_names(work, rank) for rank in ranks]
    missing = sorted({reason for reason in reasons if reason is not None})
    if missing:
        of = "" if all(reasons) else f" of {sum(map(bool, reasons))} of {len(ranks)} ranks"
        on_note(
            f"the recording{of} is complete, but has no names of lines and modules: "
            f"{'; '.join(missing)}"
        )


def _collect(
    plan: RecordingPlan,
    work: Path,
    tool: str | None,
    on_state: Callable[[str], None],
    on_note: Callable[[str], None],
) -> list[str]:
    """Names of the traces in the workspace, after the export where there is one.

    Names of lines and modules are carried over into them, where they were recorded.
    """
    ranks = recorded_ranks(work)
    if not ranks:
        raise UsageError(_too_short(plan, work))
    if tool is None:
        if plan.blame:
            _name(work, ranks, on_state, on_note)
        return [trace_name(rank) for rank in ranks]
    on_state("exporting")
    report = work / f"{NSYS_STEM}.nsys-rep"
    if not report.exists():
        raise UsageError("nsys wrote no report; its own messages are above, or try --backend torch")
    export = nsys_tool.export_sqlite(report, work / f"{NSYS_STEM}.sqlite", tool)
    nsys_tool.embed_sidecars(export, nsys_tool.read_sidecars(work))
    return [export.name]


def _too_short(plan: RecordingPlan, work: Path) -> str:
    """Why a program that ended left no recording."""
    missing, fewer = steps_missing(work), None
    if missing is not None:
        seen, needed = missing
        made = f"after {counted(seen, 'step', 'steps')}, and a recording of it needs {needed}"
        fewer = plan.shortened(seen)
    elif (unsaid := cut_off(work)) is not None:
        made = unsaid
    else:
        return (
            "the program ended before its loop began: it made no step of an optimizer, nor has it "
            "a loop `for batch in record.steps(loader)` with traceprobe's recorder (docs/cli.md)"
        )
    options = "" if fewer is None else f"record fewer ({_lengths(fewer)}), "
    return (
        f"the program ended {made}; {options}let it run longer, or use `record.steps(loader)` in "
        "its loop"
    )


def _lengths(plan: RecordingPlan) -> str:
    """A plan's lengths as options."""
    return (
        f"--warmup {plan.warmup} --most-warmup {plan.most_warmup} --calibrate {plan.calibrate} "
        f"--active {plan.active}"
    )
