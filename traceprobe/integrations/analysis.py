"""From a capture to its report, beside the training: a thread that waits, a process that works.

The process has a low priority and ends with the training. Nothing here imports what an
analysis needs: that is for the process to do.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from traceprobe.capture.machine.hardware import collect_environment
from traceprobe.capture.recording.recording_plan import trace_name
from traceprobe.capture.recording.short_capture import ShortCapture
from traceprobe.system.child import Child, Done, Failed, children

WORK = ".recording"
"""Folder inside the output where ranks put their traces together."""
FOLDER = "step-{}"
REPORT = ("report.html", "report.json")
GATHER_S = 60.0
"""How long the first rank waits for the traces of the others."""
_LOOK_S, _CANCEL_S = 0.1, 2.0
_NICE = 10
"""Of the process, below the training; the lowest of all would never end on a busy machine."""


class Outcome(NamedTuple):
    """What a recording says.

    Args:
        step: steps that had been made before it.
        folder: its traces and its report.
        bound, headline: the verdict.
        step_ms: without the profiler where that is known; None where the trace has no step.
        shares: of the step's time, by name.
    """

    step: int
    folder: Path
    bound: str
    headline: str
    step_ms: float | None
    shares: dict[str, float]

    @property
    def report(self) -> Path:
        """The page for people."""
        return self.folder / REPORT[0]

    @property
    def files(self) -> tuple[Path, ...]:
        """The report, as a page and as a record."""
        return tuple(self.folder / name for name in REPORT)

    def numbers(self) -> dict[str, float]:
        """What loggers draw, by name."""
        found: dict[str, float] = {"traceprobe/step": self.step}
        if self.step_ms is not None:
            found["traceprobe/step_ms"] = self.step_ms
        return found | {f"traceprobe/share_{name}": share for name, share in self.shares.items()}


class Analysis(threading.Thread):
    """What becomes of a capture that has ended.

    Args:
        plain: what `ShortCapture.stop` returned.
        step: steps that had been made before the capture.
        output: folder of the training's recordings.
        facts: of this rank's trace, see `traceprobe.model.sidecar`.
        rank, ranks: of this process and of all. The first makes the report; the others are done
            when their trace is there.
    """

    _one = threading.Lock()
    """One at a time: there may be many ranks to read, and the cores are the training's."""

    def __init__(
        self,
        capture: ShortCapture,
        plain: Path,
        *,
        step: int,
        output: Path,
        facts: dict[str, Any],
        rank: int,
        ranks: int,
    ) -> None:
        super().__init__(name="traceprobe-analysis", daemon=True)
        self.step = step
        self._capture, self._plain, self._facts = capture, plain, facts
        self._output, self._rank, self._ranks = output, rank, ranks
        self._child: Child | None = None
        self._cancelled = False
        self.outcome: Outcome | None = None
        self.error: Exception | None = None
        self.packed = threading.Event()
        """The trace of this rank is complete, or never will be."""
        self.folder: Path | None = None
        """Where the traces are, once the first rank has them."""
        self.missing: tuple[int, ...] = ()
        """Ranks whose trace did not come."""

    def run(self) -> None:
        """Make the report, or keep the error."""
        try:
            self._capture.pack(self._plain, {**collect_environment(), **self._facts})
            self.packed.set()
            if not self._rank:
                self._report()
        except Exception as error:
            if not self._cancelled:
                self.error = error
        finally:
            self.packed.set()

    def cancel(self) -> None:
        """End the process, if there is one. What the ranks recorded stays."""
        self._cancelled = True
        child = self._child
        if child is not None:
            child.tell_to_end()
        self.join(_CANCEL_S)

    def _report(self) -> None:
        work = self._plain.parent
        names = self._gathered(work)
        with self._one:
            self.folder = folder = _moved(work, names, self._output)
            _remove_empty(work)
            if not self._cancelled:
                said = self._in_a_process(str(folder), names)
                self.outcome = Outcome(self.step, folder, **said)

    def _gathered(self, work: Path) -> list[str]:
        """The traces of all ranks, or after a while of those that are there."""
        wanted = {rank: trace_name(rank) for rank in range(self._ranks)}
        deadline = time.monotonic() + GATHER_S
        while True:
            there = {rank: name for rank, name in wanted.items() if (work / name).exists()}
            late = self._cancelled or time.monotonic() > deadline
            if late or len(there) == len(wanted):
                self.missing = tuple(sorted(wanted.keys() - there.keys()))
                return list(there.values())
            time.sleep(_LOOK_S)

    def _in_a_process(self, folder: str, names: list[str]) -> dict[str, Any]:
        with children() as started:
            child = Child()
            started.append(child)
            self._child = child
            child.answer()
            child.give(analyse, folder, names, self._capture.cut_to)
            while True:
                said = child.answer()
                if isinstance(said, Failed):
                    raise said.error
                if isinstance(said, Done):
                    self._child = None
                    return dict(said.result)


def analyse(
    folder: str, names: list[str], whole: int | None, tell: Callable[[float], None]
) -> dict[str, Any]:
    """What the process does: read the traces in turn, and write the report beside them.

    Args:
        whole: steps that count, where one more has begun that is not whole.

    Returns:
        The fields of `Outcome` that the report has.
    """
    os.nice(_NICE)
    os.environ["POLARS_MAX_THREADS"] = "1"  # read when it is imported, which it is now
    from traceprobe.options import Options
    from traceprobe.pipeline.merge import merge
    from traceprobe.pipeline.trace_part import read_in_turn
    from traceprobe.render.save import save

    options = Options(steps=None if whole is None else (0, whole))
    report = merge(read_in_turn([Path(folder) / name for name in names], options), options)
    save(report, [Path(folder) / name for name in REPORT], replace=True)
    verdict = report.verdict
    return {
        "bound": verdict.bound,
        "headline": verdict.headline,
        "step_ms": report.step_ms,
        "shares": dict(verdict.shares),
    }


def keep_leftovers(output: Path) -> None:
    """Take up what a training left that was killed: whole traces are kept, halves are removed."""
    for work in sorted((output / WORK).glob(FOLDER.format("*"))):
        names = [path.name for path in work.glob(trace_name(0).replace("0", "*"))]
        if names:
            _moved(work, names, output)
        shutil.rmtree(work, ignore_errors=True)
        _remove_empty(work)


def _moved(work: Path, names: list[str], output: Path) -> Path:
    """A new folder with the traces; a training that was resumed may come to the same step again."""
    number = 1
    while True:
        again = f"-{number}" if number > 1 else ""
        folder = output / f"{work.name}{again}"
        try:
            folder.mkdir()
        except FileExistsError:
            number += 1
        else:
            break
    for name in names:
        (work / name).replace(folder / name)
    return folder


def _remove_empty(work: Path) -> None:
    """Remove folders that nothing is left in; a late rank may still come."""
    for folder in (work, work.parent):
        with suppress(OSError):
            folder.rmdir()
