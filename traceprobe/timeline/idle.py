"""Why the GPU idled: every instant of every gap gets one cause.

For a gap [a, b) with the op that starts at b, launched by a call that began at L: what follows
max(a, L) is latency (the GPU had been fed), what precedes it is the host being late, and there the
cause is what the step thread was doing. Where the latency is far longer than launches take, the GPU
had its work, and something that the trace does not show held it up.
"""

from __future__ import annotations

import msgspec
import numpy as np
import polars as pl

from traceprobe.model.accounting import HELD_LATENCIES, HELD_NS, LONG_NS
from traceprobe.model.codes import NOTES, UNKNOWN, Bools, Int64s, Source
from traceprobe.model.taxonomy import IDLE_CAUSES
from traceprobe.timeline.intervals import (
    EMPTY,
    Intervals,
    complement,
    intersect,
    measure_between,
    merge,
    subtract,
    union,
)
from traceprobe.timeline.phases import PhaseRanges
from traceprobe.timeline.quiet import Quiet
from traceprobe.timeline.step_markers import StepMarker


class Gaps(msgspec.Struct, frozen=True):
    """Gaps of one device, ascending. Arrays equally long, int64 ns or row numbers of the ops.

    Args:
        t0, t1: the gap.
        late_until: end of its host-late part; t0 where the GPU had been fed.
        held_from: start of the part in which something held up the device that is none of its own
            work, though the op that ends the gap had been launched; t1 where there is none.
        after: row of the op that ends the gap, or `before` where none does.
        before: row of the op that ran last before it, UNKNOWN where none did.
        thread: thread that launched `after`, UNKNOWN where nothing is known of it.
    """

    t0: Int64s
    t1: Int64s
    late_until: Int64s
    held_from: Int64s
    after: Int64s
    before: Int64s
    thread: Int64s


class HostState(msgspec.Struct, frozen=True):
    """What the host of one process does, as sets of time.

    Args:
        profiler: the profiler is at work, on any thread.
        queue: the driver notes that a launch waits for room in the device's queue.
        data_annotated: the step thread is inside a data range.
        data_inferred: it is outside every step range and inside no call (where the marker has
            ranges that could leave waits outside), or a batch was probably waited for.
        quiet: long stretches in which no thread that launches work does anything.
        sync: per thread, inside a blocking synchronisation.
        busy: per thread but the step's and the loaders', inside any call or range.
    """

    profiler: Intervals
    queue: Intervals
    data_annotated: Intervals
    data_inferred: Intervals
    quiet: Quiet
    sync: dict[int, Intervals]
    busy: dict[int, Intervals]
    step_thread: int


def find_gaps(
    ops: pl.DataFrame, account: tuple[int, int], step_thread: int, *, has_others: bool = False
) -> Gaps:
    """Gaps of one device.

    Args:
        ops: sorted by start.
        account: its begin and end. A gap around the begin is one from there on. What it has before
            the first op is a gap that follows none, what it has after the last one a gap that no op
            ends, in which the step thread (`step_thread`) has launched nothing.
        has_others: the process has other devices. All that is launched to an idle one may wait for
            those, so that it does not tell how long launches take.
    """
    t0, t1 = ops["t0"].to_numpy(), ops["t1"].to_numpy()
    since, until = account
    reach = np.maximum.accumulate(t1)
    reached = np.concatenate([[min(since, int(t0[0]))], reach[:-1]])
    after = np.flatnonzero(t0 > reached)
    owner = np.maximum.accumulate(np.where(t1 == reach, np.arange(len(t1)), 0))
    launch, thread = ops["launch_t0"].to_numpy()[after], ops["thread"].to_numpy()[after]
    end = t0[after]
    start = np.where(end > since, np.maximum(reached[after], since), reached[after])
    late = np.where(thread == UNKNOWN, start, np.clip(launch, start, end))
    to_idle = (thread != UNKNOWN) & (late > start) & (not has_others)
    usual = float(np.median((end - late)[to_idle])) if to_idle.any() else 0.0
    held = _held_from(ops, after, late, end, usual)
    before = np.where(after > 0, owner[after - 1], UNKNOWN)
    if until > reach[-1]:
        last = int(owner[-1])
        more = (int(reach[-1]), until, until, until, last, last, step_thread)
        columns = (start, end, late, held, after, before, thread)
        return Gaps(*(np.append(c, value) for c, value in zip(columns, more, strict=True)))
    return Gaps(start, end, late, held, after, before, thread)


def _held_from(ops: pl.DataFrame, after: Int64s, late: Int64s, end: Int64s, usual: float) -> Int64s:
    """From when on the device of each gap had its work, and did not begin it for long; else `end`.

    What the work depends on by its streams had ended, or the device would not idle. The call itself
    may take long, as it loads code or copies from pageable memory; what it launches is not there
    before it returns, and may then be late by as much. Where one launch has several ops, as a
    graph has, and one of them has run, the host is done with all of them.

    Args:
        after: row of the op that ends each gap.
        late, end: of the gaps, as `late_until` and `t1` in `Gaps`.
        usual: latency of a launch to an idle device.
    """
    known = ops["thread"].to_numpy()[after] != UNKNOWN
    begun, returned = ops["launch_t0"].to_numpy()[after], ops["launch_t1"].to_numpy()[after]
    fed = np.clip(returned, late, end)
    under_way = _again(ops["correlation"])[after]
    least = np.where(under_way, HELD_NS, np.maximum(HELD_LATENCIES * usual, returned - begun))
    is_held = known & (end - fed >= np.maximum(least, HELD_NS))
    return np.where(is_held, fed, end)


def _again(correlation: pl.Series) -> Bools:
    """Which ops are of a launch that an op before them is of."""
    ordered = np.sort(correlation.to_numpy())
    repeated = ordered[1:] == ordered[:-1]
    if not (repeated & (ordered[1:] != UNKNOWN)).any():  # without graphs; faster than to tell which
        return np.zeros(len(ordered), dtype=np.bool_)
    return ((correlation != UNKNOWN) & ~correlation.is_first_distinct()).to_numpy()


def held_up(gaps: Gaps) -> Intervals:
    """When the device had its work, and something else than its own work held it up.

    All of it is `idle_latency`.
    """
    return union(gaps.held_from, gaps.t1)


def host_state(
    calls: pl.DataFrame,
    ranges: pl.DataFrame,
    quiet: Quiet,
    marks: PhaseRanges,
    marker: StepMarker | None,
    step_thread: int,
    threads: set[int],
) -> HostState:
    """The sets of time that decide causes, for the threads that launch GPU work."""
    profiler, queue = (
        ranges.filter(pl.col("source") == int(source)) for source in (Source.PROFILER, Source.QUEUE)
    )
    data = marks.select("data") & (marks.thread == step_thread)
    others = threads - {step_thread}
    inferred = EMPTY
    if marker is not None and marker.inside is not None and len(marker.inside.t0):
        low, high = int(marker.inside.t0[0]), int(marker.inside.t1[-1])
        outside = complement(marker.inside, low, high)
        inferred = subtract(outside, _sets(calls, {step_thread}).get(step_thread, EMPTY))
    data_annotated = union(marks.t0[data], marks.t1[data])
    between = subtract(inferred, quiet.host)
    known = merge(data_annotated, between)
    quiet = quiet._replace(
        data=_long(subtract(quiet.data, known)), unknown=_long(subtract(quiet.unknown, known))
    )
    in_call = _sets(calls, others)
    in_range = _sets(ranges, others, ~pl.col("source").is_in(NOTES))
    return HostState(
        profiler=union(profiler["t0"].to_numpy(), profiler["t1"].to_numpy()),
        queue=union(queue["t0"].to_numpy(), queue["t1"].to_numpy()),
        data_annotated=data_annotated,
        data_inferred=merge(between, quiet.data),
        quiet=quiet,
        sync=_sets(calls, {step_thread, *threads}, pl.col("blocking")),
        busy={t: merge(in_call.get(t, EMPTY), in_range.get(t, EMPTY)) for t in others},
        step_thread=step_thread,
    )


def _long(stretches: Intervals) -> Intervals:
    """The long ones of what ranges leave; a little around a wait that is known is Python's."""
    long = stretches.t1 - stretches.t0 >= LONG_NS
    return Intervals(stretches.t0[long], stretches.t1[long])


def _sets(
    rows: pl.DataFrame, threads: set[int], chosen: pl.Expr | None = None
) -> dict[int, Intervals]:
    is_wanted = pl.col("thread").is_in(sorted(threads))
    # Lazily, so that only the wanted rows of these columns are copied.
    wanted = (
        rows.lazy()
        .filter(is_wanted if chosen is None else is_wanted & chosen)
        .select("thread", "t0", "t1")
        .collect()
    )
    if not len(wanted):
        return {}
    parts = [wanted] if len(threads) == 1 else wanted.partition_by("thread")
    return {
        int(part["thread"][0]): union(part["t0"].to_numpy(), part["t1"].to_numpy())
        for part in parts
    }


def idle_causes(gaps: Gaps, host: HostState, loaders: set[int]) -> dict[str, Intervals]:
    """Time of the gaps as disjoint sets by cause, plus `data_inferred` inside idle_data_wait.

    A gap that ends with an op of unknown launch is unexplained, and so is a long stretch in which
    the host does nothing, if its neighbours do not tell why. A loader thread is no step thread:
    where it is late, what counts is what the step thread does.
    """
    known = gaps.thread != UNKNOWN
    by_cause: dict[str, list[Intervals]] = {cause: [] for cause in (*IDLE_CAUSES, "data_inferred")}
    by_cause["idle_unexplained"].append(union(gaps.t0[~known], gaps.t1[~known]))
    by_cause["idle_latency"].append(union(gaps.late_until[known], gaps.t1[known]))
    for thread in np.unique(gaps.thread[known]).tolist():
        of_thread = gaps.thread == thread
        late = union(gaps.t0[of_thread], gaps.late_until[of_thread])
        if thread == host.step_thread or thread in loaders:
            busy, own_sync = EMPTY, EMPTY
        else:
            busy, own_sync = host.busy.get(thread, EMPTY), host.sync.get(thread, EMPTY)
        profiler = intersect(late, host.profiler)
        late = subtract(late, profiler)
        quiet = subtract(late, busy)
        annotated = intersect(quiet, host.data_annotated)
        inferred = subtract(intersect(quiet, host.data_inferred), annotated)
        data = merge(annotated, inferred)
        late = subtract(late, data)
        step_sync = intersect(subtract(late, busy), host.sync.get(host.step_thread, EMPTY))
        sync = merge(step_sync, intersect(late, own_sync))
        unknown = intersect(subtract(late, sync), host.quiet.unknown)
        for cause, part in (
            ("idle_profiler", profiler),
            ("idle_data_wait", data),
            ("data_inferred", inferred),
            ("idle_sync", sync),
            ("idle_unexplained", unknown),
            ("idle_host", subtract(late, merge(sync, unknown))),
        ):
            by_cause[cause].append(part)
    return {cause: merge(*parts) for cause, parts in by_cause.items()}


def main_causes(gaps: Gaps, by_cause: dict[str, Intervals]) -> list[str]:
    """The cause that fills most of each gap."""
    cause = np.zeros(len(gaps.t0), dtype=np.int8)
    most = np.full(len(gaps.t0), -1, dtype=np.int64)
    for number, name in enumerate(IDLE_CAUSES):
        spent = _spent(by_cause[name], gaps)
        cause[spent > most] = number
        most = np.maximum(most, spent)
    causes: list[str] = np.array(IDLE_CAUSES, dtype=np.object_)[cause].tolist()
    return causes


def _spent(part: Intervals, gaps: Gaps) -> Int64s:
    """How much of each gap a part of the idle time is. Of most causes it lies in few gaps."""
    spent = np.zeros(len(gaps.t0), dtype=np.int64)
    low, high = np.searchsorted(gaps.t1, part.t0, "right"), np.searchsorted(gaps.t0, part.t1)
    edges = np.zeros(len(gaps.t0) + 1, dtype=np.int64)
    np.add.at(edges, low, 1)
    np.add.at(edges, high, -1)
    rows = np.flatnonzero(np.cumsum(edges[:-1]))
    spent[rows] = measure_between(part, gaps.t0[rows], gaps.t1[rows])
    return spent


def idle_after_sync(gaps: Gaps, ops: pl.DataFrame, sync_ends: Int64s) -> Intervals:
    """Host-late idle from a synchronisation until the host is ahead of the GPU again.

    A gap counts if a synchronisation ended between the launch of the last op that was launched
    ahead of the GPU and the launch that ends the gap.
    """
    late = gaps.late_until > gaps.t0
    if not late.any() or not len(sync_ends):
        return EMPTY
    launch, since = _last_ahead(gaps, ops)
    at = np.searchsorted(np.sort(sync_ends), launch, "right") - 1
    last_sync = np.where(at >= 0, np.sort(sync_ends)[np.maximum(at, 0)], np.iinfo(np.int64).min)
    hit = late & (last_sync > since)
    return union(gaps.t0[hit], gaps.late_until[hit])


def _last_ahead(gaps: Gaps, ops: pl.DataFrame) -> tuple[Int64s, Int64s]:
    """Of each gap, when the op that ends it was launched, and the last one ahead of the GPU."""
    launch = ops["launch_t0"].to_numpy()
    # An op without a launch says nothing of the host.
    not_ahead = ops["thread"].to_numpy() == UNKNOWN
    not_ahead[gaps.after[gaps.late_until > gaps.t0]] = True
    ahead = np.maximum.accumulate(np.where(not_ahead, -1, np.arange(len(launch))))
    since = np.where(ahead >= 0, launch[np.maximum(ahead, 0)], np.iinfo(np.int64).min)
    # What no op ends lasts until something would be launched.
    ended = np.where(gaps.after == gaps.before, gaps.t1, launch[gaps.after])
    return ended, since[gaps.after]


def sync_cost(gaps: Gaps, ops: pl.DataFrame, syncs: Intervals, blamed: Intervals) -> Int64s:
    """What the GPU would idle less in each gap if no call waited for it, at most; ns per gap.

    Without its waiting calls the host would be earlier by as long as they lasted, and no more:
    what it does besides, as writing a checkpoint, takes its time in either case. So from the last
    launch ahead of the GPU on, the gaps together cost no more than the calls have lasted until the
    launch that ends each of them.

    Args:
        syncs: when the host was in a waiting call.
        blamed: idle time that may be charged to them: in the calls, and of the busy host.
    """
    launch, since = _last_ahead(gaps, ops)
    idle = measure_between(blamed, gaps.t0, gaps.late_until)
    # A launch from another thread may have been made before the last one ahead.
    lasted = np.maximum(measure_between(syncs, since, launch), 0)
    if not len(since):
        return np.empty(0, dtype=np.int64)
    order = np.argsort(since, kind="stable")
    idle, lasted = idle[order], lasted[order]
    first = np.concatenate([[True], np.diff(since[order]) != 0])
    run = np.cumsum(first) - 1
    spent = np.cumsum(idle)
    total = spent - (spent - idle)[first][run]
    charged = total - _most_so_far(np.maximum(total - lasted, 0), run)
    before = np.where(first, 0, np.concatenate([[0], charged[:-1]]))
    cost = np.empty_like(idle)
    cost[order] = np.maximum(charged - before, 0)
    return cost


def _most_so_far(values: Int64s, run: Int64s) -> Int64s:
    """The largest of the values, none below 0, of the same run up to each; the runs ascend."""
    apart = int(values.max(initial=0)) + 1
    if apart * (int(run[-1]) + 1) < 1 << 62:
        base = run * apart
        return np.asarray(np.maximum.accumulate(base + values) - base, dtype=np.int64)
    known, rank = np.unique(values, return_inverse=True)
    base = run * len(known)
    most: Int64s = known[np.maximum.accumulate(base + rank) - base]
    return most
