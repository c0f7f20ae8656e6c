"""One recording from start to trace files: set up, run, export; nothing left behind on failure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from traceprobe.capture import launch, nsys_backend
from traceprobe.capture.plan import VARIABLE, Plan, trace_name
from traceprobe.capture.program import environment, script, workspace
from traceprobe.model import UsageError

NSYS_STEM = "run"
KEPT = (".json.gz", ".traceprobe.json", ".sqlite", ".nsys-rep")


@dataclass(frozen=True)
class Request:
    """What to record.

    Args:
        program: command line; with `processes` a Python script and its arguments.
        plan: the steps; its folder is filled in here.
        processes: ranks to start on this machine; None runs the program as it is.
        environment: variables for the program alone.
    """

    program: list[str]
    plan: Plan
    processes: int | None = None
    environment: Mapping[str, str] = field(default_factory=dict)


def check(request: Request) -> None:
    """Refuse what cannot be recorded, before anything runs.

    Raises:
        UsageError: nsys is missing, or ranks were asked for of what is no Python script.
    """
    if request.plan.backend == "nsys":
        nsys_backend.find()
    if request.processes is not None:
        script(request.program)


def record(request: Request, folder: Path, on_state: Callable[[str], None]) -> list[Path]:
    """Run the program and leave its traces in `folder`.

    Returns:
        The trace files, rank by rank (torch), or the one export (nsys).

    Raises:
        UsageError: nsys is missing, or the program made no recording.
        RecordingFailed: the program failed.
    """
    tool = nsys_backend.find() if request.plan.backend == "nsys" else None
    with workspace(folder) as work:
        plan = replace(request.plan, folder=str(work))
        command = request.program
        if request.processes is not None:
            command = launch.distributed(script(command), request.processes, work)
        if tool is not None:
            command = nsys_backend.command(tool, work / NSYS_STEM, command)
        on_state("starting")
        launch.run(command, environment(VARIABLE, plan.save(), request.environment), work, on_state)
        names = _collect(plan, work, tool, on_state)
        for path in sorted(work.iterdir()):
            if path.name.endswith(KEPT):
                path.replace(folder / path.name)
    return [folder / name for name in names]


def _collect(
    plan: Plan, work: Path, tool: str | None, on_state: Callable[[str], None]
) -> list[str]:
    """Names of the traces in the workspace, after the export where there is one."""
    recorded = nsys_backend.sidecars(work)
    if not recorded:
        raise UsageError(
            f"the program ended before {plan.steps} steps were made; record fewer (--warmup, "
            "--calibrate, --active), let it run longer, or use `record.steps(loader)` in its loop"
        )
    if tool is None:
        return [trace_name(rank) for rank in sorted(recorded)]
    on_state("exporting")
    report = work / f"{NSYS_STEM}.nsys-rep"
    if not report.exists():
        raise UsageError("nsys wrote no report; its own messages are above, or try --backend torch")
    export = nsys_backend.export(report, work / f"{NSYS_STEM}.sqlite", tool)
    nsys_backend.embed(export, recorded)
    return [export.name]
