"""What lengthened which step: the parts of each step that somebody can account for.

Each cause has a column with the time of a step that is its; of several ranks the largest, since the
others wait for it. A part counts where the step is as much longer as its neighbours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from traceprobe.capture.watch.rows import Kind
from traceprobe.records.watch import Cause
from traceprobe.watch.processes import Column, Process, Whole

TIMED: Mapping[Cause, Kind] = {
    "garbage-collection": Kind.COLLECTION,
    "checkpoint": Kind.SAVE,
    "evaluation": Kind.EVALUATION,
}
"""Causes whose time was taken."""
WHOLE: Mapping[Cause, Kind] = {"compilation": Kind.COMPILATION, "loader-pass": Kind.PASS}
"""Causes of which only the step is known: all that it is longer is theirs."""


class Parts(msgspec.Struct, frozen=True):
    """Time of each step by cause, ms, and the position of the process that it was of."""

    ms: Mapping[Cause, Column]
    owner: Mapping[Cause, Whole]
    marked: Mapping[Cause, npt.NDArray[np.bool_]]
    """Steps in which a cause of `WHOLE` took place."""
    captured: npt.NDArray[np.bool_]
    """Steps that may be longer by a short capture of ours."""


def parts_of(processes: Sequence[Process]) -> Parts:
    """The parts of the steps of the first process."""
    first = processes[0]
    ms: dict[Cause, Column] = {}
    owner: dict[Cause, Whole] = {}
    for cause, kind in TIMED.items():
        each = [_sums(first, process.events[kind]) for process in processes]
        ms[cause], owner[cause] = _largest(each)
    captured = _captured(first)
    # A profiler makes objects that are collected soon.
    ms["garbage-collection"] = np.where(captured, 0.0, ms["garbage-collection"])
    # What was saved or collected during an evaluation is not the evaluation's.
    inner = ms["checkpoint"] + ms["garbage-collection"]
    ms["evaluation"] = np.where(
        ms["evaluation"] > inner, ms["evaluation"] - inner, ms["evaluation"]
    )
    ms["loader"], owner["loader"] = _largest([_waits(first, process) for process in processes])
    marked = {}
    for cause, kind in WHOLE.items():
        steps = np.zeros(first.number.size, bool)
        for process in processes:
            numbers = process.events[kind][:, 0]
            steps[first.row_of(numbers[numbers <= first.number[-1]])] = True
        marked[cause] = steps
    return Parts(ms, owner, marked, captured)


def _captured(first: Process) -> npt.NDArray[np.bool_]:
    steps = np.zeros(first.number.size, bool)
    for last, count, _, _ in first.events[Kind.CAPTURE]:
        steps |= (first.number <= last) & (first.number + first.count > last - count + 1)
    return steps


def _sums(first: Process, events: Whole) -> Column:
    """Time of events, ms, by the step of the first process in which they ended."""
    total = np.zeros(first.number.size)
    events = events[events[:, 0] <= first.number[-1]]  # others came after the last step
    np.add.at(total, first.row_of(events[:, 0]), events[:, 3] / 1e6)
    return total


def _waits(first: Process, process: Process) -> Column:
    """What steps waited for their loader longer than usual."""
    longer = np.maximum(process.wait_ms - np.median(process.wait_ms), 0.0)
    found = np.zeros(first.number.size)
    np.maximum.at(found, first.row_of(process.number), longer)
    return found


def _largest(each: Sequence[Column]) -> tuple[Column, Whole]:
    stacked = np.stack(each)
    return stacked.max(axis=0), stacked.argmax(axis=0)
