"""The host as lines of launches: who launches, in what time, and what for it waits in between.

A training loop's threads take turns, so they share a line; a thread that launches while others do
has its own. Between two launches of a line lies the time that the host needs itself, that in which
it waits for an operation of the device, and that in which it waits for data.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl

from traceprobe.model.codes import UNKNOWN, Bools, Int64s, Kind
from traceprobe.timeline.dependencies import Dependencies
from traceprobe.timeline.device_timeline import DeviceTimeline
from traceprobe.timeline.intervals import EMPTY, Intervals, measure_between, merge, subtract, union

MOST = 0.9
"""A call that lasts for more of its copy than this waits for the copy."""
QUEUE = 1000
"""With so many operations launched and not ended, a launch may wait for room: CUDA holds 1024."""
ESTIMATED = 0.7
"""How many of them were launched before the recording is known as well as the device's rate is
steady: by a part of so much at least."""
LONG_CALL_NS = 20_000
"""A launch that takes longer beside a full queue waited for room."""
NOTED = 0.5
"""So does one of which the driver notes it, for this part of the call at least."""
OWN_LINE = 0.05
"""A thread has its own line if others launch between this part of its launches and their next."""


def lines(account: DeviceTimeline, ops: pl.DataFrame) -> Int64s:
    """Which line of the host launches each operation: 0 is that of the step thread."""
    found = np.zeros(len(ops), dtype=np.int64)
    threads, thread = np.unique(ops["thread"].to_numpy(), return_inverse=True)
    if len(threads) < 2:
        return found
    iteration = ops["iteration"].to_numpy()
    counts = np.bincount(thread)
    main = account.process.host.step_thread
    first = (
        int(np.argmax(counts)) if main not in threads else int(np.flatnonzero(threads == main)[0])
    )
    lines = 0
    for mine in range(len(threads)):
        rows = np.flatnonzero(thread == mine)
        same = iteration[rows[1:]] == iteration[rows[:-1]]
        apart = same & (np.diff(rows) > 1)
        if mine != first and same.any() and apart.sum() > OWN_LINE * same.sum():
            lines += 1
            found[rows] = lines
    return found


class HostTimes(NamedTuple):
    """What the host does before each operation.

    Args:
        launched: end of its launch. spent: host time before it, waiting left out.
        awaits: row that the host waits for, UNKNOWN for none. fetching: time it waits for data.
        paused, stalled: parts of `spent`: long stretches without any call, and calls that take as
            long whether a profiler runs or not.
    """

    launched: Int64s
    spent: Int64s
    awaits: Int64s
    fetching: Int64s
    paused: Int64s
    stalled: Int64s


def host_times(
    account: DeviceTimeline,
    ops: pl.DataFrame,
    line: Int64s,
    told: Dependencies,
    stalls: Intervals,
) -> HostTimes:
    """What the host does before each operation.

    A blocking copy is launched when its call begins; the rest of the call is waiting.

    Args:
        line: of each operation, from `lines`. told: what the trace tells of the operations.
        stalls: when the host was in calls of the driver for memory, or compiled.
    """
    own = _blocking_copies(ops)
    launched = np.where(own, ops["launch_t0"].to_numpy(), ops["launch_t1"].to_numpy())
    spent, fetching, paused, stalled = (np.zeros(len(ops), np.int64) for _ in range(4))
    awaits = np.full(len(ops), UNKNOWN, dtype=np.int64)
    host = account.process.host
    data = subtract(merge(host.data_annotated, host.data_inferred), host.profiler)
    for number in range(int(line.max()) + 1):
        rows = np.flatnonzero(line == number)
        mine = launched[rows]
        reached = np.maximum.accumulate(mine)
        previous = np.concatenate([[ops["launch_t0"][int(rows[0])]], reached[:-1]])
        waits = _waiting(account, ops, told, own, rows, reached, awaits)
        # Only the thread of the steps is known to wait for data.
        waiting_for_data = data if number == 0 else EMPTY
        left_out = merge(waits, waiting_for_data, host.profiler)
        at = np.maximum(mine, previous)
        unspent = measure_between(left_out, previous, at)
        spent[rows] = np.maximum(at - previous - unspent, 0)
        stuck = subtract(stalls, left_out)
        stalled[rows] = measure_between(stuck, previous, at)
        pauses = subtract(host.quiet.host, merge(left_out, stuck))
        paused[rows] = measure_between(pauses, previous, at)
        fetching[rows] = measure_between(waiting_for_data, previous, at)
    return HostTimes(launched, spent, awaits, fetching, paused, stalled)


def _blocking_copies(ops: pl.DataFrame) -> Bools:
    """Copies whose calls last as long as they do, whether the API says that it blocks or not."""
    copies = np.isin(ops["kind"].to_numpy(), [int(Kind.H2D), int(Kind.D2H), int(Kind.D2D)])
    t0, t1, ended = (ops[column].to_numpy() for column in ("t0", "t1", "launch_t1"))
    waited: Bools = copies & (ended - t0 > MOST * (t1 - t0))
    return waited


def _waiting(
    account: DeviceTimeline,
    ops: pl.DataFrame,
    told: Dependencies,
    own: Bools,
    rows: Int64s,
    reached: Int64s,
    awaits: Int64s,
) -> Intervals:
    """When a line of the host waits; before each launch the operation that it waits for is noted.

    It waits in blocking calls, in blocking copies (`own`) for the copy itself, and in launches
    beside a full queue. What a call waited for is told by the stream or the event that it names,
    else it is what had ended last when it returned.

    Args:
        rows: operations of the line. reached: the last end of a launch so far, for each of them.
        awaits: of all operations; those of the line are written.
    """
    t1, count = ops["t1"].to_numpy(), len(ops)
    began, ended = ops["launch_t0"].to_numpy()[rows], ops["launch_t1"].to_numpy()[rows]
    mine = own[rows]
    full = ~mine & (ended - began > LONG_CALL_NS)
    outstanding, unseen = _outstanding(account, began, ended)
    noted = measure_between(account.process.host.queue, began, ended) > NOTED * (ended - began)
    full &= noted | (outstanding >= QUEUE * np.where(unseen > 0, ESTIMATED, 1.0))
    blocking = _blocking(account, ops[rows], began[mine])
    calls_t0 = np.concatenate([blocking["t0"].to_numpy(), began[full], began[mine]])
    calls_t1 = np.concatenate([blocking["t1"].to_numpy(), ended[full], ended[mine]])
    order = np.argsort(t1, kind="stable")
    last = np.searchsorted(t1[order], calls_t1, "right") - 1
    target = np.where(last >= 0, order[np.maximum(last, 0)], count)
    target[len(target) - int(mine.sum()) :] = rows[mine]
    if len(told.calls):
        at = np.minimum(np.searchsorted(told.calls, calls_t0), len(told.calls) - 1)
        named = (told.calls[at] == calls_t0) & (told.awaited[at] != UNKNOWN)
        target = np.where(named, told.awaited[at], target)
    after_calls = np.searchsorted(reached, blocking["t1"].to_numpy(), "left")
    place = np.concatenate([after_calls, np.flatnonzero(full), np.flatnonzero(mine) + 1])
    inside = place < len(rows)
    row = np.where(inside, rows[np.minimum(place, len(rows) - 1)], count)
    known = inside & (target < row)
    for which, needed in zip(row[known].tolist(), target[known].tolist(), strict=True):
        if awaits[which] == UNKNOWN or t1[needed] > t1[awaits[which]]:
            awaits[which] = needed
    until = np.clip(t1[np.minimum(target, count - 1)], calls_t0, calls_t1)
    # Beside a full queue all of the call is waiting, also where what it waited for is not known.
    return merge(union(calls_t0[known], until[known]), union(began[full], ended[full]))


def _outstanding(account: DeviceTimeline, began: Int64s, ended: Int64s) -> tuple[Int64s, Int64s]:
    """Operations that were launched before each of these calls and had not ended when it did.

    What a recording begins with is done after all that was launched before, which it does not show:
    as many operations as the device does at its usual rate until then.

    Returns:
        (all, unseen): the second are those of the first that are not in the recording.
    """
    launches = np.sort(account.ops["launch_t0"].to_numpy())
    ends = np.sort(account.ops["t1"].to_numpy())
    first = int(account.ops["t0"].to_numpy().min())
    rate = len(ends) / max(int(ends[-1]) - first, 1)
    unseen = (np.maximum(first - ended, 0) * rate).astype(np.int64)
    seen = np.searchsorted(launches, began) - np.searchsorted(ends, ended, "right")
    return seen + unseen, unseen


def _blocking(account: DeviceTimeline, ops: pl.DataFrame, left_out: Int64s) -> pl.DataFrame:
    """Blocking calls of the threads that launch, between the first and the last launch.

    Args:
        left_out: starts of calls that do not count.
    """
    threads = {*ops["thread"].unique().to_list(), account.process.host.step_thread}
    low, high = ops["launch_t0"].min(), ops["launch_t1"].max()
    return account.process.calls.filter(
        pl.col("blocking")
        & pl.col("thread").is_in(sorted(threads))
        & (pl.col("t0") >= low)
        & (pl.col("t1") <= high)
        & ~pl.col("t0").is_in(left_out.tolist())
    ).select("t0", "t1")
