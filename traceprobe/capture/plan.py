"""What to record, handed from `traceprobe profile` to the processes it starts."""

from __future__ import annotations

import json
import os
import re
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, NoReturn

from traceprobe.capture.orders import given

VARIABLE = "TRACEPROBE_PLAN"
"""Environment variable with the path of the plan."""
METADATA_KEY = "traceprobe"
"""Of what a trace of ours says about its run."""
DONE = "done"
"""The last that a rank tells: everything that it had to leave is there."""
_PROGRESS, _REFUSED = ".progress", ".refused"
_RANK = re.compile(rf"rank(\d+){re.escape(_PROGRESS)}")


@dataclass(frozen=True)
class Plan:
    """Steps of a recording, in order: warm-up, calibration, settling, active.

    Args:
        folder: where each rank leaves its trace, sidecar and progress.
        warmup: steps before anything is measured (compilation, caches, allocator).
        calibrate: steps timed without a profiler, synchronised only at both ends.
        settle: steps under the profiler that are thrown away.
        active: steps that are kept; one more is recorded, because the last has no end.
        shapes, stacks, memory: what torch.profiler records besides; each slows the host.
        simulate: whether the loop may be given tensors without data, to predict its memory.
        workload: name and settings, copied into the trace.
    """

    folder: str
    backend: Literal["torch", "nsys"] = "torch"
    warmup: int = 5
    calibrate: int = 20
    settle: int = 2
    active: int = 8
    shapes: bool = False
    stacks: bool = False
    memory: bool = False
    simulate: bool = False
    workload: dict[str, Any] = field(default_factory=dict)

    @property
    def steps(self) -> int:
        """Steps that the loop makes in all."""
        return self.warmup + self.calibrate + self.settle + self.active + 1

    @property
    def drains(self) -> tuple[int, int]:
        """Steps before which the loader's queue is emptied: each is followed by untimed steps.

        Queues fill up while the first steps compile and the profiler starts. A measurement that
        begins with full ones sees a faster loader than the run has.
        """
        return max(self.warmup - 2, 0), self.warmup + self.calibrate

    def save(self) -> Path:
        """Write the plan into its folder; returns the path for the environment variable."""
        path = Path(self.folder) / "plan.json"
        path.write_text(json.dumps(asdict(self), sort_keys=True))
        return path


def current() -> Plan | None:
    """The plan that this process was started with, or None."""
    return given(VARIABLE, Plan)


def rank() -> int:
    """Rank of this process as its launcher set it, 0 without one."""
    return int(os.environ.get("RANK", "0"))


def trace_name(number: int) -> str:
    """File name of a rank's Kineto trace."""
    return f"rank{number}.json.gz"


def sidecar_name(number: int) -> str:
    """File name of a rank's calibration, also inside its trace."""
    return f"rank{number}.traceprobe.json"


def leave(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    temporary = path.with_suffix(".tmp")
    temporary.write_text(text)
    temporary.replace(path)


def tell(folder: str, state: str) -> None:
    """Say what this rank is doing to the process that started it."""
    with (Path(folder) / f"rank{rank()}{_PROGRESS}").open("a") as file:
        file.write(state + "\n")


def told(folder: Path, number: int) -> list[str]:
    """What a rank has told so far."""
    path = folder / f"rank{number}{_PROGRESS}"
    return path.read_text().splitlines() if path.exists() else []


def complete(folder: Path, processes: int | None) -> bool:
    """Whether every rank that began has done all that it had to do.

    Args:
        processes: how many ranks there are, where that is known.
    """
    began = [int(found[1]) for path in folder.iterdir() if (found := _RANK.fullmatch(path.name))]
    return len(began) >= (processes or 1) and all(told(folder, n)[-1:] == [DONE] for n in began)


def refuse(folder: str, why: str) -> NoReturn:
    """End a program that cannot be recorded, with the reason for the process that started it.

    Raises:
        SystemExit: always.
    """
    leave(Path(folder) / f"rank{rank()}{_REFUSED}", why)
    raise SystemExit(why)


def refusal(folder: Path) -> str | None:
    """Why a rank refused; None where none did."""
    found = sorted(folder.glob(f"rank*{_REFUSED}"))
    return found[0].read_text() if found else None
