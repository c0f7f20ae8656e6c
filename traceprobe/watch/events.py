"""Steps that took longer than the pace, and what each is due to.

What was timed comes first, then what only marks a step, then waits for the loader; what is left of
a step is due to a CPU that others had, or to nothing that was seen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from traceprobe.capture.watch.rows import Kind
from traceprobe.records.watch import Cause
from traceprobe.watch.causes import TIMED, WHOLE, Parts
from traceprobe.watch.periods import in_rhythm
from traceprobe.watch.processes import Column, Process, Whole

LEAST_MS, LEAST_SHARE = 1.0, 0.05
"""What was timed counts from so much on, and from such a share of a step."""
LATE = 0.2
"""Share of a step that a loader must be late, or a mark must lengthen it."""
RHYTHMIC, LONG = 0.25, 1.0
"""Shares of a step by which an unknown one must be longer: in a rhythm, and single."""
SCATTERS, SINGLE_SCATTERS = 5.0, 8.0
"""How many scatters of the steps it must be longer, likewise."""
LONG_MS = 20.0
"""And so long where it is single: any system halts a process for some milliseconds now and then."""
OF_IT = 0.4
"""Share of a lengthening that a cause must explain."""
UNEXPLAINED = 0.5
"""Share of it that must be left for another cause."""
TURNS = 5
"""Late batches in turn after the first by which a slow worker is known: a few are chance."""
STARTING = 50
"""Steps that a start takes at most."""
FEW = 5
"""Usual steps after which a start is over; readings without which nothing is usual."""


class Found(msgspec.Struct, frozen=True):
    """Steps that one cause lengthened.

    Args:
        rows: positions among the steps. lost_ms: what each is longer by it; 0 where it was hidden.
        part_ms: how long what caused it took. owner: position of the process that it was of.
    """

    cause: Cause
    rows: Whole
    lost_ms: Column
    part_ms: Column
    owner: Whole


def find_events(processes: Sequence[Process], parts: Parts, level_ms: Column) -> Iterator[Found]:
    """Events by cause.

    Args:
        level_ms: the pace at each step of the first process.
    """
    first = processes[0]
    rest = first.longest_ms - level_ms
    longer = rest.copy()
    yield from _start(rest, level_ms)
    for cause in TIMED:
        part = parts.ms[cause]
        rows = np.flatnonzero(part >= np.maximum(LEAST_SHARE * level_ms, LEAST_MS))
        yield from _take(cause, rows, part, parts.owner[cause], rest)
    rest[parts.captured] = 0.0  # an event of ours is none of the run
    for cause in WHOLE:
        rows = np.flatnonzero(parts.marked[cause] & (rest >= LATE * level_ms))
        yield from _take(cause, rows, rest, np.zeros(rest.size, np.int64), rest)
    late, scatter = parts.ms["loader"], _scatter(first.wait_ms)
    enough = np.maximum(LATE * level_ms, np.maximum(LEAST_MS, SCATTERS * scatter))
    rows = np.flatnonzero((late >= enough) & (rest >= OF_IT * late))
    one = of_one_worker(first.number[rows], first.workers)
    yield from _take("loader-worker", rows[one], late, parts.owner["loader"], rest)
    yield from _take("loader", rows[~one], late, parts.owner["loader"], rest)
    yield from _retries(processes, level_ms, rest)
    rest[rest < UNEXPLAINED * longer] = 0.0  # its cause is known, and nearly all of it
    nobody = np.zeros(rest.size, np.int64)
    # A rhythm in steps is the program's own, whatever else the machine does.
    yield from _take("unknown", _rhythmic(first, level_ms, rest), rest, nobody, rest)
    rows = _single(level_ms, rest)
    waited = np.array([_waited_for_cpu(processes, first, int(row)) for row in rows])
    busy = rows[waited >= OF_IT * rest[rows]] if rows.size else rows
    unknown = np.setdiff1d(rows, busy)
    yield from _take("cpu-busy", busy, rest, nobody, rest)
    yield from _take("unknown", unknown, rest, nobody, rest)


def of_one_worker(numbers: Whole, workers: int | None) -> npt.NDArray[np.bool_]:
    """Which late steps are those of one worker: workers take turns, so it is late every so often.

    Args:
        numbers: of the late steps, ascending.
    """
    found = np.zeros(numbers.size, bool)
    if not workers or workers < 2:
        return found
    gaps = np.diff(numbers)
    turn = np.isin(gaps, (workers, 2 * workers)).astype(np.int64)
    kept = np.convolve(turn, np.ones(TURNS, np.int64), "valid") if turn.size >= TURNS else turn[:0]
    for shift in range(TURNS + 1):
        found[np.flatnonzero(kept == TURNS) + shift] = True
    return found


def _take(cause: Cause, rows: Whole, part: Column, owner: Whole, rest: Column) -> Iterator[Found]:
    """What a cause has of the steps, which is then no other's."""
    if not rows.size:
        return
    taken = part[rows].copy()
    lost = np.clip(rest[rows], 0.0, taken)
    rest[rows] -= lost
    yield Found(cause, rows, lost, taken, owner[rows])


def _start(rest: Column, level_ms: Column) -> Iterator[Found]:
    """The first steps, while long ones keep coming: kernels are loaded, queues fill up."""
    long = rest[:STARTING] >= LONG * level_ms[:STARTING]
    end = 0
    for row in np.flatnonzero(long[: max(rest.size // 10, 5)]):
        if row - end > FEW:
            break
        end = int(row) + 1
    if end:
        rows = np.arange(end)
        yield from _take("start", rows, rest, np.zeros(rest.size, np.int64), rest)


def _retries(processes: Sequence[Process], level_ms: Column, rest: Column) -> Iterator[Found]:
    """The longest step between two readings between which the allocator gave back its cache."""
    first, rows, owners = processes[0], [], []
    for position, process in enumerate(processes):
        at = process.readings["at_ns"]
        for number, _, end_ns, _ in process.events[Kind.RETRY]:
            last = int(first.row_of(np.array([number]))[0])
            before = float(at[at < end_ns - 1].max(initial=0.0))
            after = int(np.searchsorted(process.end_ns, before, "right"))
            own = process.number[min(after, process.number.size - 1)]
            begin = min(int(first.row_of(np.array([own]))[0]), last)
            row = begin + int(np.argmax(rest[begin : last + 1]))
            if rest[row] >= LATE * level_ms[row]:
                rows.append(row)
                owners.append(position)
    places = np.array(sorted(set(rows)), np.int64)
    owner = np.zeros(rest.size, np.int64)
    owner[rows] = owners
    yield from _take("allocator", places, rest, owner, rest)


def _scatter(values: Column) -> float:
    """A standard deviation that half of the values cannot spoil."""
    return 1.4826 * float(np.median(np.abs(values - np.median(values))))


def _rhythmic(first: Process, level_ms: Column, rest: Column) -> Whole:
    """Steps that are a little longer than chance makes them, and come in a rhythm."""
    enough = np.maximum(RHYTHMIC * level_ms, SCATTERS * _scatter(rest))
    longer = first.number[np.flatnonzero(rest >= enough)]
    return first.row_of(in_rhythm(longer, first.steps))


def _single(level_ms: Column, rest: Column) -> Whole:
    """Steps that are much longer than chance makes them."""
    enough = np.maximum(LONG * level_ms, LONG_MS)
    return np.flatnonzero(rest >= np.maximum(enough, SINGLE_SCATTERS * _scatter(rest)))


def _waited_for_cpu(processes: Sequence[Process], first: Process, row: int) -> float:
    """How long the loop's thread had no core around a step, beyond the usual; of the worst rank."""
    worst = 0.0
    for process in processes:
        waited, at = process.readings.get("cpu_wait_ns"), process.readings["at_ns"]
        own = int(process.row_of(first.number[row : row + 1])[0])
        if waited is None or at.size < FEW:
            continue
        begin = int(np.searchsorted(at, process.end_ns[own] - 1e6 * process.ms[own])) - 1
        end = int(np.searchsorted(at, process.end_ns[own]))
        begin, end = max(begin, 0), min(end, at.size - 1)
        usual = float(np.median(np.diff(waited) / np.diff(at)))
        more = waited[end] - waited[begin] - usual * (at[end] - at[begin])
        worst = max(worst, more / 1e6)
    return worst
