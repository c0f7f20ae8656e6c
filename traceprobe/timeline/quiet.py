"""Long stretches in which the host of a process seems to do nothing, and what lies around them.

No thread that launches work makes a call or runs an operator then. Without a range that says so,
what the process waited for is told by its neighbours: a batch that is copied to the device at
either end was waited for (trainers that fetch one batch ahead copy first and wait then), and so was
one that another thread had just made, as its ranges say, when it is copied; results
that were copied to the host are being worked on, by a simulator, a metric, a checkpoint, and values
that are read one after the other, with nothing learnt in between, are acted on, or printed. A
step that goes on with its backward pass or its update has had its batch, and before a loader is
asked for one nobody waits for it: whatever the host did there, it did not wait for data.

A host that runs operators is not quiet. But operators that launch nothing, until a batch is copied,
run on the CPU, and make that batch: the loop is its own loader.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl

from traceprobe.model.accounting import (
    BATCH_BYTES,
    LONG_INTERVALS,
    LONG_NS,
    RECURS,
    SCALAR_BYTES,
    TAIL,
)
from traceprobe.model.codes import UNKNOWN, Bools, Int64s, Kind, Role
from traceprobe.model.taxonomy import Phase
from traceprobe.timeline.intervals import (
    EMPTY,
    Intervals,
    complement,
    measure_between,
    measure_until,
    merge,
    subtract,
    union,
)

_LAUNCHED = (
    *("launch_t0", "launch_t1", "t0", "t1", "thread", "kind", "bytes", "name"),
    *("iteration", "phase", "role"),
)


class Quiet(NamedTuple):
    """Disjoint sets of host time.

    Args:
        data: a batch was probably waited for, or made by operators of the CPU. host: results were
            worked on, or the host was busy in the midst of a step, or before it asked for a batch.
            unknown: the rest.
    """

    data: Intervals
    host: Intervals
    unknown: Intervals


class _Launches(NamedTuple):
    """What the threads of a process launched, in this order.

    Args:
        begin: starts of the calls. batch: whether each brings a batch to the device.
        reads: whether each reads something from it. large: whether that is more than a scalar.
        least: how long a stretch lasts that is long, ns.
    """

    rows: pl.DataFrame
    begin: Int64s
    batch: Bools
    reads: Bools
    large: Bools
    least: float
    step_thread: int

    def outside(self, busy: Intervals) -> Intervals:
        """The long stretches between the first and the last launch that are in none of these."""
        free = complement(busy, int(self.begin[0]), int(self.begin[-1]))
        long = free.t1 - free.t0 >= self.least
        return Intervals(free.t0[long], free.t1[long])

    def around(self, stretches: Intervals) -> tuple[Int64s, Int64s]:
        """The last launch before each, and the first after it."""
        before = np.searchsorted(self.begin, stretches.t0, "right") - 1
        # The last launch ends what begins before it.
        return np.maximum(before, 0), np.searchsorted(self.begin, stretches.t1)


def quiet_stretches(
    ops: pl.DataFrame,
    calls: pl.DataFrame,
    work: pl.DataFrame,
    named: Intervals,
    loading: Intervals,
    computing: Intervals,
    blocked: Intervals,
    making: Intervals,
    threads: set[int],
    step_thread: int,
    reading: set[int],
) -> Quiet:
    """The long quiet stretches of a process between its first and its last launch.

    Args:
        ops: its GPU ops with `iteration` and `phase`. calls: its host calls. work: its rows of
            `HOST_WORK`.
        named: when its step thread is inside a range that names a phase, compiles, or collects
            garbage. loading: when it is inside one of a loader.
        computing: when its operators may be of a network, an optimizer or a loader that is known.
        blocked: when it waits in the operating system; empty where that is not recorded.
        making: when other threads are inside ranges of a loader.
        threads: those that launch work, and the step thread, `step_thread`.
        reading: names of operators of a CPU run that read a value.
    """
    rows = (
        ops.select(_LAUNCHED)
        .filter(pl.col("thread").is_in(sorted(threads)))
        .sort("launch_t0", "t0")
    )
    if len(rows) < 2:
        return Quiet(EMPTY, EMPTY, EMPTY)
    launches = _launches(rows, step_thread, reading)
    begin, end = launches.begin, rows["launch_t1"].to_numpy()
    calling, working = (_on_threads(each, threads) for each in (calls, work))
    driven = merge(union(begin, np.maximum(end, begin + 1)), calling, named)
    free = launches.outside(merge(driven, working, loading))
    # Where operators are recorded, so is a loader.
    acting = bool(len(working.t0) or reading)
    quiet = _told_by_neighbours(launches, free, loading, blocked, making, acting=acting)
    made = _made_by_operators(
        launches, launches.outside(merge(driven, computing)), working, computing
    )
    return Quiet(merge(quiet.data, made), subtract(quiet.host, made), subtract(quiet.unknown, made))


def _launches(rows: pl.DataFrame, step_thread: int, reading: set[int]) -> _Launches:
    begin = rows["launch_t0"].to_numpy()
    copied = (rows["kind"] == int(Kind.D2H)).to_numpy()
    return _Launches(
        rows,
        begin,
        batch=_batches(rows),
        reads=copied | rows["name"].is_in(sorted(reading)).to_numpy(),
        large=copied & (rows["bytes"] > SCALAR_BYTES).to_numpy(),
        least=max(LONG_NS, LONG_INTERVALS * float(np.median(np.diff(begin)))),
        step_thread=step_thread,
    )


def _told_by_neighbours(
    launches: _Launches,
    stretches: Intervals,
    loading: Intervals,
    blocked: Intervals,
    making: Intervals,
    *,
    acting: bool,
) -> Quiet:
    """Quiet stretches by what is launched, and asked of a loader, around them.

    Args:
        loading, blocked, making: as in `quiet_stretches`.
        acting: whether values that are read in a row may be acted on.
    """
    if not len(stretches.t0):
        return Quiet(EMPTY, EMPTY, EMPTY)
    before, after = launches.around(stretches)
    result, batch = launches.reads[before], launches.batch
    worked_on = launches.large[before]
    # After a scalar, as of a loss that is printed, either may follow; a thread that waits for
    # another process or a file does not work on results.
    waits = 2 * _inside(blocked, stretches) >= stretches.t1 - stretches.t0
    asks_later = _between(loading.t0, stretches.t1, launches.begin[after])
    # It is at work for most of the stretch, and done shortly before its end.
    made = 2 * _inside(making, stretches) >= stretches.t1 - stretches.t0
    handed = batch[after] & made & _between(making.t1, stretches.t1 - LONG_NS, stretches.t1)
    near = ~result & (batch[before] | batch[after])
    waited = ~asks_later & (near | (~worked_on & (handed | waits)))
    acted = np.zeros(len(before), dtype=np.bool_)
    if acting:
        read = result & ~worked_on
        between = _between_reads(launches, stretches, before, after)
        acted = ~waits & (between | _acts_on(launches.rows, before, after, read))
    busy = ~waited & (asks_later | worked_on | acted | _goes_on(launches, before, after))

    def chosen(which: Bools) -> Intervals:
        return Intervals(stretches.t0[which], stretches.t1[which])

    return Quiet(chosen(waited), chosen(busy), chosen(~waited & ~busy))


def _made_by_operators(
    launches: _Launches, stretches: Intervals, working: Intervals, computing: Intervals
) -> Intervals:
    """Of stretches those in which operators that launch nothing make the batch that ends them.

    Args:
        working: when operators run. computing: as in `quiet_stretches`.
    """
    before, after = launches.around(stretches)
    made = launches.batch[after] & ~_goes_on(launches, before, after) & ~launches.large[before]
    made &= measure_until(computing, launches.begin[after]) == measure_until(
        computing, stretches.t1
    )
    made &= 2 * _inside(working, stretches) >= stretches.t1 - stretches.t0
    return Intervals(stretches.t0[made], stretches.t1[made])


def _between(times: Int64s, low: Int64s, high: Int64s) -> Bools:
    """Whether any of some ascending times is from `low` to `high`."""
    return np.searchsorted(times, low) < np.searchsorted(times, high, "right")


def _inside(times: Intervals, stretches: Intervals) -> Int64s:
    """How much of each stretch lies in some times, ns."""
    return measure_between(times, stretches.t0, stretches.t1)


def _acts_on(launched: pl.DataFrame, before: Int64s, after: Int64s, read: Bools) -> Bools:
    """Which stretches come in a row, each after a value was read, with no learning in between.

    So a simulator takes the actions of a policy, one after the other; batches would be learnt from.

    Args:
        read: which stretches follow the reading of a scalar.
    """
    phase = launched["phase"].to_numpy()
    learns = np.isin(phase, (int(Phase.BACKWARD), int(Phase.OPTIMIZER)))
    learnt = np.concatenate([[0], np.cumsum(learns)])
    chained = read[:-1] & read[1:] & (learnt[before[1:] + 1] == learnt[after[:-1]])
    none = np.zeros(1, dtype=np.bool_)
    return np.asarray(
        np.concatenate([chained, none]) | np.concatenate([none, chained]), dtype=np.bool_
    )


def _between_reads(
    launches: _Launches, stretches: Intervals, before: Int64s, after: Int64s
) -> Bools:
    """Which stretches lie between values that are read, with next to nothing beside them.

    So a tensor is printed, or a metric made. A batch that was waited for is copied to the device,
    and learnt from.
    """
    rows = launches.rows
    iteration, kind = (rows[c].to_numpy() for c in ("iteration", "kind"))
    place, last = np.arange(len(rows)), len(rows) - 1
    earlier = np.maximum.accumulate(np.where(launches.reads, place, 0))[before]
    later = np.minimum.accumulate(np.where(launches.reads, place, last)[::-1])[::-1][after]
    learns = _by_autograd(launches) | (rows["phase"] == int(Phase.OPTIMIZER)).to_numpy()
    changes = np.concatenate([[0], np.cumsum(learns | (kind == int(Kind.H2D)))])
    worked = np.concatenate([[0], np.cumsum((rows["t1"] - rows["t0"]).to_numpy())])
    reads = launches.reads[earlier] & launches.reads[later]
    same = reads & (iteration[earlier] == iteration[later]) & (changes[earlier] == changes[later])
    short = worked[later] - worked[earlier] <= TAIL * (stretches.t1 - stretches.t0)
    return np.asarray(same & short, dtype=np.bool_)


def _on_threads(rows: pl.DataFrame, threads: set[int]) -> Intervals:
    """When any of the threads is in one of the rows."""
    chosen = rows["thread"].is_in(sorted(threads)).to_numpy()
    return union(rows["t0"].to_numpy()[chosen], rows["t1"].to_numpy()[chosen])


def _goes_on(launches: _Launches, before: Int64s, after: Int64s) -> Bools:
    """Which stretches end with the backward pass or the update of the step that they began in.

    Only kernels of autograd are surely backward: what the step thread launches then may be the
    forward pass of a further part of the batch, whose data may have been waited for. The first
    gradient, that of the loss itself, is filled in by the step thread. What else it launches before
    is the end of the loss, and no pass over further data, where it is a tenth at most of what was
    launched since the step or its last backward pass, and nothing is copied to the device.
    """
    rows = launches.rows
    iteration, phase = (rows[c].to_numpy() for c in ("iteration", "phase"))
    update = phase[after] == int(Phase.OPTIMIZER)
    by_autograd = _by_autograd(launches)
    place = np.arange(len(phase))
    changes = np.diff(iteration, prepend=UNKNOWN) != 0
    since = np.maximum.accumulate(np.where(changes | by_autograd, place, 0))[before]
    following = np.where(by_autograd, place, len(place) - 1)
    autograd = np.minimum.accumulate(following[::-1])[::-1][after]
    copied = np.cumsum(rows["kind"].to_numpy() == int(Kind.H2D))
    short = (autograd - after <= (after - since) * TAIL) & (copied[autograd] == copied[before])
    ends = (autograd - after <= 1) | (short & (iteration[autograd] == iteration[before]))
    backward = by_autograd[autograd] & ends
    begun = (phase[before] != int(Phase.INPUT)) & (iteration[before] != UNKNOWN)
    same = begun & (iteration[before] == iteration[after])
    return np.asarray(same & (update | backward), dtype=np.bool_)


def _by_autograd(launches: _Launches) -> Bools:
    """What is surely of the backward pass, by its threads or by what operators say."""
    phase, role, thread = (launches.rows[c].to_numpy() for c in ("phase", "role", "thread"))
    elsewhere = (phase == int(Phase.BACKWARD)) & (thread != launches.step_thread)
    return np.asarray((role == int(Role.BACKWARD)) | elsewhere, dtype=np.bool_)


def _batches(launched: pl.DataFrame) -> Bools:
    """Which ops copy a batch to the device: sizes that recur, and are no scalar's."""
    size = launched["bytes"].to_numpy()
    copies = (launched["kind"].to_numpy() == int(Kind.H2D)) & (size >= BATCH_BYTES)
    sizes, counts = np.unique(size[copies], return_counts=True)
    return np.asarray(copies & np.isin(size, sizes[counts >= RECURS]), dtype=np.bool_)
