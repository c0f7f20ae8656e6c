"""What a rank does in its recorded iterations, as columns that scenarios change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from traceprobe.errors import ImpossibleChange
from traceprobe.model.accounting import SLACK_NS
from traceprobe.model.taxonomy import COMPUTE_PHASES, NO_PARTNER
from traceprobe.records.replay import Replay
from traceprobe.verdict.thresholds import FIXED

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Int64s = NDArray[np.int64]
Words = NDArray[np.str_]

ALONE = -1
"""Instead of the number of a process group: no other rank takes part."""


class Tasks(msgspec.Struct, frozen=True):
    """A row of a `Replay` each, in launch order, with the same meaning; times are ns.

    Args:
        kind: name of a phase or a transfer.
        line: thread that launches, or threads that take turns.
        group: of a message, the number of the process group that makes it together, which is
            the same on all ranks; UNNAMED where a message has no known one, else ALONE.
        pause, stall: parts of `host` that are no launching, and stay where that gets faster: a
            pause is without any call, a stall in the driver for memory or in a compiler.
        alone, alone_host: shares of `duration` and `host` that are left without communication.
        row, back: pairs of a task, by its number, and the distance to one that must end before.
    """

    iteration: Int64s
    kind: Words
    stream: Int64s
    first_host: Floats
    host: Floats
    pause: Floats
    stall: Floats
    duration: Floats
    lag: Floats
    tail: Floats
    data_wait: Floats
    awaits: Int64s
    bytes: Int64s
    group: Int64s
    line: Int64s
    ops: Int64s
    alone: Floats
    alone_host: Floats
    row: Int64s
    back: Int64s

    def __len__(self) -> int:
        """How many there are."""
        return len(self.kind)

    @property
    def collective(self) -> Bools:
        """Tasks that all ranks of a group do together."""
        found: Bools = self.group != ALONE
        return found

    def of(self, kinds: Sequence[str]) -> Bools:
        """Tasks of some kinds."""
        found: Bools = np.isin(self.kind, list(kinds))
        return found

    def emptied(self, which: Bools) -> Tasks:
        """The tasks, of which some stay in their places without any work of host or GPU."""
        kept = ~which
        return replace(
            self,
            **{name: getattr(self, name) * kept for name in _TIMES},
            bytes=np.where(which, -1, self.bytes),
            group=np.where(which, ALONE, self.group),
            ops=self.ops * kept,
        )

    def shrunk(self, factors: Floats) -> Tasks:
        """The tasks as if they were fewer: what they take of host and device times `factors`."""
        device = {name: getattr(self, name) * factors for name in ("duration", "lag", "tail")}
        return replace(self, **device).hosted(factors)

    def scaled(self, factors: Floats) -> Tasks:
        """The tasks with durations times `factors`; what follows an operation stays as long.

        Only kernels that wait for others to leave room on the device wait less beside faster ones.
        """
        ran = np.minimum(self.duration, self.tail)
        late = np.maximum(self.lag - SLACK_NS * self.ops, 0.0) * self._wait_for_room
        waited = np.minimum(late, self.tail - ran)
        return replace(
            self,
            duration=self.duration * factors,
            lag=self.lag + (factors - 1) * late,
            tail=np.maximum(self.tail + (factors - 1) * (ran + waited), 0.0),
        )

    @property
    def _wait_for_room(self) -> Bools:
        """Kernels that start late because those of other streams fill the device.

        Those of a stream follow each other. So all of them together take longer than a stream with
        its waits only where several run at once.
        """
        kernels = self.of(COMPUTE_PHASES)
        stream = np.unique(self.stream, return_inverse=True)[1]
        taken = np.bincount(stream, (self.duration + self.lag) * kernels)
        crowded = bool(self.duration[kernels].sum() > taken.max(initial=0.0))
        return kernels & crowded

    def hosted(self, factors: float | Floats) -> Tasks:
        """The tasks with the host's launching times `factors`, one for all or one for each."""
        host = self.held_up + np.maximum(self.host - self.held_up, 0.0) * factors
        before = np.minimum(self.held_up, self.first_host)
        first_host = before + (self.first_host - before) * factors
        return replace(self, first_host=np.minimum(first_host, host), host=host)

    @property
    def tiny(self) -> Bools:
        """Tasks of kernels that do little more than start and end."""
        longest = FIXED.tiny_kernel_us * 1e3 * self.ops
        return (self.duration <= longest) & self.of(COMPUTE_PHASES)

    @property
    def held_up(self) -> Floats:
        """Part of `host` that is no launching."""
        return self.pause + self.stall

    def held_up_for(self, pause: float, stall: float) -> Tasks:
        """The tasks with pauses and stalls of the host times these factors."""
        more = (pause - 1) * self.pause + (stall - 1) * self.stall
        host = np.maximum(self.host + more, 0.0)
        first_host = np.clip(self.first_host + more, 0.0, host)
        return replace(
            self,
            first_host=first_host,
            host=host,
            pause=self.pause * pause,
            stall=self.stall * stall,
        )

    def without_needs(self, which: Bools) -> Tasks:
        """The tasks, of which some need nothing of other streams."""
        kept = ~which[self.row]
        return replace(self, row=self.row[kept], back=self.back[kept])

    def taken(self, places: Int64s) -> Tasks:
        """Other tasks: those at some places, with the distances that they had."""
        rows = {name: getattr(self, name)[places] for name in ROWS}
        order = np.argsort(self.row, kind="stable")
        counts = np.bincount(self.row, minlength=len(self))
        begin = np.concatenate([[0], np.cumsum(counts)])
        pairs = [order[begin[place] : begin[place + 1]] for place in places]
        each = np.concatenate(pairs) if pairs else np.zeros(0, np.int64)
        row = np.repeat(np.arange(len(places)), [len(pair) for pair in pairs])
        return Tasks(**rows, row=row.astype(np.int64), back=self.back[each])


_TIMES = ("first_host", "host", "pause", "stall", "duration", "lag", "tail")
_SHARES = ("alone", "alone_host")
ROWS = tuple(name for name in Tasks.__struct_fields__ if name not in ("row", "back"))
"""Columns with a value for each task."""
UNNAMED = 0
"""Process group of messages whose group is not known: all ranks make them in one order."""


class Task(msgspec.Struct, frozen=True):
    """A row of `Tasks`; `needs`: distances to tasks that must end before."""

    kind: str
    iteration: int = 0
    stream: int = 0
    first_host: float = 0.0
    host: float = 0.0
    pause: float = 0.0
    stall: float = 0.0
    duration: float = 0.0
    lag: float = 0.0
    tail: float = 0.0
    data_wait: float = 0.0
    awaits: int = 0
    bytes: int = -1
    group: int = ALONE
    line: int = 0
    ops: int = 1
    alone: float = 1.0
    alone_host: float = 1.0
    needs: tuple[int, ...] = ()

    @property
    def collective(self) -> bool:
        """Whether all ranks of a group do it together."""
        return self.group != ALONE

    def emptied(self) -> Task:
        """The task in its place, without any work of host or GPU."""
        idle: dict[str, Any] = dict.fromkeys(_TIMES, 0.0)
        return replace(self, **idle, bytes=-1, group=ALONE, ops=0)


def tasks_of(rows: Sequence[Task]) -> Tasks:
    """Rows as columns."""
    columns: dict[str, Any] = {
        name: np.array([getattr(row, name) for row in rows], dtype=_dtype(name))
        for name in Task.__struct_fields__
        if name != "needs"
    }
    row = [number for number, task in enumerate(rows) for _ in task.needs]
    back = [distance for task in rows for distance in task.needs]
    return Tasks(**columns, row=np.array(row, np.int64), back=np.array(back, np.int64))


def rows_of(tasks: Tasks) -> list[Task]:
    """Columns as rows."""
    needs: list[list[int]] = [[] for _ in range(len(tasks))]
    for row, distance in zip(tasks.row.tolist(), tasks.back.tolist(), strict=True):
        needs[row].append(distance)
    columns = zip(*(getattr(tasks, name).tolist() for name in ROWS), strict=True)
    return [
        Task(**dict(zip(ROWS, values, strict=True)), needs=tuple(mine))
        for values, mine in zip(columns, needs, strict=True)
    ]


def _dtype(name: str) -> Any:
    if name == "kind":
        return np.str_
    return np.float64 if name in (*_TIMES, *_SHARES, "data_wait") else np.int64


class RankSchedule(msgspec.Struct, frozen=True):
    """What one rank does.

    Args:
        latency: from a launch to its start on an idle device, ns.
        period: time that the loader needs for a batch, ns; None where it is never late.
        workers: of the loader; 1 also where their number is not known.
        loads: whether the host makes the batches itself, while it waits for data.
        waited: part of the time of collectives beside computation, as recorded, in which they wait
            for other ranks.
    """

    tasks: Tasks
    iterations: int
    latency: float
    period: float | None = None
    workers: int = 1
    loads: bool = False
    waited: float = 0.0


def schedule_of(replay: Replay) -> RankSchedule:
    """The tasks of a rank; its loader is never late.

    Raises:
        ImpossibleChange: somebody changed the columns.
    """
    problem = next(replay.problems(), None)
    if problem is not None:
        raise ImpossibleChange(
            f"the replay in the report is damaged ({problem}); analyse the trace again"
        )
    count = len(replay.kind)
    times = {
        name: np.array(getattr(replay, f"{name}_ns") or [0] * count, float)
        for name in (*_TIMES, "data_wait")
    }
    kind = np.array(replay.kinds, dtype=np.str_)[np.array(replay.kind)]
    message = kind == "communication"
    known = np.array(replay.group or [ALONE] * count, np.int64)
    group = np.where(known == ALONE, UNNAMED, known + 1)
    needs = np.array(replay.needs, np.int64)
    own = np.flatnonzero(needs)
    tasks = Tasks(
        iteration=np.array(replay.iteration, np.int64),
        kind=kind,
        stream=np.array(replay.stream, np.int64),
        **times,
        awaits=np.array(replay.awaits, np.int64),
        bytes=np.array(replay.bytes, np.int64),
        group=np.where(message & (known != NO_PARTNER), group, ALONE),
        line=np.array(replay.line or [0] * count, np.int64),
        ops=np.array(replay.ops or [1] * count, np.int64),
        alone=_left(times["duration"], replay.slowed_ns, replay.packing_ns),
        alone_host=_left(times["host"], replay.packing_host_ns),
        row=np.concatenate([own, np.array(replay.more_rows, np.int64)]),
        back=np.concatenate([needs[own], np.array(replay.more_needs, np.int64)]),
    )
    return RankSchedule(tasks, replay.iterations, replay.latency_ns)


def _left(times: Floats, *parts: list[int]) -> Floats:
    """Shares of some times that are left without some parts of them, of those that are known."""
    gone = sum((np.array(part, float) for part in parts if part), np.zeros(len(times)))
    left: Floats = 1 - np.minimum(gone / np.maximum(times, 1), 1)
    return left
