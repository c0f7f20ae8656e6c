"""One recording from start to trace files: set up, run, export; nothing left behind on failure."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from traceprobe.capture import launch, nsys_backend
from traceprobe.capture.plan import VARIABLE, Plan, trace_name
from traceprobe.model import UsageError

HOOK = Path(__file__).with_name("hook")
NSYS_STEM = "run"
KEPT = (".json.gz", ".traceprobe.json", ".sqlite", ".nsys-rep")


@dataclass(frozen=True)
class Request:
    """What to record.

    Args:
        program: command line; with `processes` a Python script and its arguments.
        plan: the steps; its folder is filled in here.
        processes: ranks to start on this machine; None runs the program as it is.
    """

    program: list[str]
    plan: Plan
    processes: int | None = None


def record(request: Request, folder: Path, on_state: Callable[[str], None]) -> list[Path]:
    """Run the program and leave its traces in `folder`.

    Returns:
        The trace files, rank by rank (torch), or the one export (nsys).

    Raises:
        UsageError: nsys is missing, or the program made no recording.
        RecordingFailed: the program failed.
    """
    tool = nsys_backend.find() if request.plan.backend == "nsys" else None
    with _workspace(folder) as work:
        plan = replace(request.plan, folder=str(work))
        command = request.program
        if request.processes is not None:
            command = launch.distributed(_script(command), request.processes, work)
        if tool is not None:
            command = nsys_backend.command(tool, work / NSYS_STEM, command)
        on_state("starting")
        launch.run(command, _environment(plan), work, on_state)
        names = _collect(plan, work, tool, on_state)
        for path in sorted(work.iterdir()):
            if path.name.endswith(KEPT):
                path.replace(folder / path.name)
    return [folder / name for name in names]


@contextmanager
def _workspace(folder: Path) -> Iterator[Path]:
    """A hidden folder inside the output folder, gone afterwards in any case."""
    work = Path(tempfile.mkdtemp(prefix=".recording-", dir=folder))
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _script(program: list[str]) -> list[str]:
    """The script of `python script …`: torch.distributed.run wants it without interpreter."""
    if Path(program[0]).name.startswith("python"):
        return program[1:]
    raise UsageError(
        f"--nproc-per-node starts Python scripts; {program[0]} is none. Write `-- python "
        "train.py …`, or leave the option out and start the ranks yourself"
    )


def _environment(plan: Plan) -> Mapping[str, str]:
    path = os.pathsep.join([str(HOOK), *filter(None, [os.environ.get("PYTHONPATH")])])
    package = str(Path(__file__).resolve().parents[2])
    return {
        **os.environ,
        VARIABLE: str(plan.save()),
        "PYTHONPATH": os.pathsep.join([path, package]),
        "PYTHONUNBUFFERED": "1",
        "TORCH_CPP_LOG_LEVEL": os.environ.get("TORCH_CPP_LOG_LEVEL", "ERROR"),
    }


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


def workload(name: str) -> Path:
    """Script of a built-in workload, in a wheel or in a source tree.

    Raises:
        UsageError: there is none of that name.
    """
    here = Path(__file__).resolve()
    for folder in (here.parents[1] / "workloads", here.parents[2] / "workloads"):
        script = folder / f"{name.replace('-', '_')}.py"
        if script.is_file() and (folder / "harness.py").is_file():
            return script
    raise UsageError(
        f"--workload {name}: there is none of that name; one of {', '.join(WORKLOADS)}"
    )


WORKLOADS = ("bert", "gpt2", "pointwise", "resnet50", "tiny-mlp", "unet", "wide-mlp")


def interpreter() -> str:
    """The Python that runs traceprobe; workloads run in the same.

    Raises:
        UsageError: it has no torch.
    """
    import importlib.util

    if importlib.util.find_spec("torch") is None:
        raise UsageError(
            "PyTorch is not installed in this environment; `pip install traceprobe[torch]`"
        )
    return sys.executable
