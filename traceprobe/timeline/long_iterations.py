"""Iterations that do more than the others: an evaluation, a checkpoint, a recompilation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from msgspec.structs import replace

from traceprobe.formatting import duration, significant
from traceprobe.model.accounting import (
    ALIKE,
    ALIKE_PACE,
    AS_LONG,
    CLOCK_CHANGED,
    FEWEST_REGULAR,
    LENGTHS_DIFFER,
    LONE_WAIT,
    LONG_ITERATION,
    MOST_LONG,
    SKIPPED_AS_LONG,
)
from traceprobe.model.codes import Bools, Int64s
from traceprobe.model.taxonomy import BUSY, PARTITION
from traceprobe.timeline.device_timeline import DeviceTimeline
from traceprobe.timeline.partition import class_of_op

_PASSES = ("forward", "backward", "recompute")


class LongIterations(msgspec.Struct, frozen=True):
    """The long ones among the used iterations of a device.

    Args:
        windows: their numbers, ascending.
        every: distance between them, where at least `FEWEST_REGULAR` are recorded at it, and every
            iteration that is so far from one of them is long too; None otherwise.
        extra: class of the partition to ns that they have more of it, together, than as many
            regular ones; what they have less of is left out.
        more_work: class of the partition to operations that they have more of, together, of the
            classes of which each of them has more operations than any regular one.
        extra_ns: their length beyond that of as many regular ones.
        once: whether this happened once: in one iteration, or in two that follow each other, and
            no step without the profiler and no period of the loop tells that it recurs.
        beside: steps without the profiler that are long by about as much. timed: among how many;
            0 where none is.
        period: steps after which the loop repeats itself, where that alone tells that it recurs.
    """

    windows: Int64s
    every: int | None
    extra: Mapping[str, int]
    more_work: Mapping[str, int]
    extra_ns: int
    once: bool
    beside: int = 0
    timed: int = 0
    period: int | None = None


class TimedSteps(NamedTuple):
    """Steps of the loop that were timed without the profiler; an iteration is one of them.

    Args:
        ns: length of each by the host's clock; empty where only the period is known.
        waited: what they wait for data, mean, ns; None where that was not timed.
        period: steps after which the loop repeats itself; 1 where it is not known to.
        ahead: whether the host runs ahead of a device, and is done with a step before that is.
    """

    ns: Sequence[float]
    waited: float | None = None
    period: int = 1
    ahead: bool = False


class LoaderPace(NamedTuple):
    """What was timed of a loader, ns.

    Args:
        batch: that one worker takes for a batch. step: that all together take for those of a step.
            Both are 0 where that is not known.
        waited: that a step without the profiler waits for data; None where that was not timed.
    """

    batch: float = 0.0
    step: float = 0.0
    waited: float | None = None


def long_iterations(
    account: DeviceTimeline, loader: LoaderPace | None = None, timed: TimedSteps | None = None
) -> LongIterations | None:
    """The long iterations of a device; None where there are none, or so many that they are usual.

    Waiting for data does not make an iteration long: loaders deliver in bursts, and that is their
    pace. Only a single wait that is many times as long as an iteration happened once; and not where
    the loader is slower than the loop, and a worker needs as long for a batch, nor where the loop
    waits as much without the profiler.

    Few iterations are recorded, so a long one that is alone among them may recur. Steps without the
    profiler that are long by about as much tell that, or where too few were timed a period.
    """
    used = np.flatnonzero(account.used)
    if len(used) < MOST_LONG + 1:
        return None
    length = np.diff(account.edges)[used]
    waited = account.exclusive["idle_data_wait"][used]
    working = length - waited
    long = working > LONG_ITERATION * np.median(working)
    works = bool(long.any())
    if not works:
        long = length > LONE_WAIT * np.median(length)
        if long.sum() != 1 or _is_burst(length, waited, long, loader):
            return None
    counts = {name: each[used] for name, each in _operations(account).items()}
    long = _without_updates(counts, long)
    if not 0 < long.sum() * MOST_LONG <= len(used):
        return None
    working = long & np.any([n > n[~long].max() for n in counts.values()], axis=0)
    # Beside some that run more, one that runs the same more slowly is only that.
    long = working if working.any() else long
    if not working.any() and _has_longer_input(account, used, long):
        return None
    windows, rest = used[long], used[~long]
    numbers = account.index[windows]
    every = _period(numbers, account.index[used])
    if every is None and _are_of_any_length(counts, length, long):
        return None
    extra_ns = round(float(length[long].sum() - long.sum() * length[~long].mean()))
    if extra_ns <= 0:  # they work more, and wait so much less
        return None
    once = len(windows) == 1 or (len(windows) == 2 and bool(numbers[1] - numbers[0] == 1))
    beside, period = 0, None
    # A single wait for data is told from a burst of the loader by other means.
    if timed is not None and works:
        beside = _beside(timed, account, rest, extra_ns / len(windows))
        if once and not beside and _is_due(timed, numbers, account.index[used]):
            period = timed.period
    more = {
        name: round(float(ns[windows].sum() - len(windows) * ns[rest].mean()))
        for name, ns in account.exclusive.items()
    }
    return LongIterations(
        windows=windows,
        every=every,
        extra={name: ns for name, ns in more.items() if ns > 0},
        more_work={
            name: round(float(n[long].sum() - long.sum() * n[~long].mean()))
            for name, n in counts.items()
            if n[long].min() > n[~long].max()
        },
        extra_ns=extra_ns,
        once=once and not beside and period is None,
        beside=beside,
        timed=len(timed.ns) if timed is not None and beside else 0,
        period=period,
    )


def _without_updates(counts: Mapping[str, Int64s], long: Bools) -> Bools:
    """Which are long for another reason than an update of which the others are micro-batches."""
    updates = counts["optimizer"]
    if updates[~long].any():
        return long
    others = [n > n[~long].max() for name, n in counts.items() if name != "optimizer"]
    found: Bools = long & ((updates == 0) | np.any(others, axis=0))
    return found


def _are_of_any_length(counts: Mapping[str, Int64s], length: Int64s, long: Bools) -> bool:
    """Whether iterations do the same more or less often, as with episodes of any length.

    Then the others differ too, what long ones run more is of all classes alike, and takes as much
    longer.
    """
    each = np.array(list(counts.values()))
    total = each.sum(axis=0)
    if total.min() == 0 or total[~long].max() < LENGTHS_DIFFER * total[~long].min():
        return False
    parts = each / total
    alike = np.abs(parts[:, long].mean(axis=1) - parts[:, ~long].mean(axis=1)).max()
    pace = length / total
    slower = pace[long] / np.median(pace[~long])
    as_fast = max(slower.max(), 1 / slower.min()) <= ALIKE_PACE
    return bool(alike <= ALIKE and as_fast)


def _has_longer_input(account: DeviceTimeline, used: Int64s, long: Bools) -> bool:
    """Whether long iterations are so because their passes have more to do, by as many kernels.

    So it is with longer sequences or larger batches: their kernels have more blocks, while the
    update of the parameters takes as long whatever the input. Where the same kernels with as many
    blocks take longer, the GPU was slower.
    """
    spent = {name: account.exclusive[name][used] for name in (*_PASSES, "optimizer")}
    passes = np.sum([spent[name] for name in _PASSES], axis=0)
    length = np.diff(account.edges)[used]
    more = passes[long].mean() - passes[~long].mean()
    update, blocks = spent["optimizer"], _blocks(account)[used]
    as_fast = 0 < update[long].max() <= CLOCK_CHANGED * update[~long].mean()
    larger = blocks[long].min() > CLOCK_CHANGED * blocks[~long].max()
    return bool(as_fast and larger and 2 * more > length[long].mean() - length[~long].mean())


def _blocks(account: DeviceTimeline) -> Int64s:
    """Blocks of all kernels that begin in each window, as far as the trace has them."""
    grid = account.ops["grid"].to_numpy()
    return _by_window(account, grid > 0, grid)


def _beside(timed: TimedSteps, account: DeviceTimeline, regular: Int64s, extra_ns: float) -> int:
    """How many steps without the profiler are long by about as much as recorded iterations.

    None where they may as well be long because they wait for data. A host that runs ahead of the
    device waits in a long step for what others launched, too: what all steps take beyond the work
    of the device is then what the long ones do.

    Args:
        regular: the windows of the other iterations. extra_ns: what a long one has more than they.
    """
    steps = np.array(timed.ns, dtype=np.float64)
    if not len(steps):
        return 0
    usual = float(np.median(steps))
    worked = sum(account.exclusive[name][regular].mean() for name in BUSY if timed.ahead)
    # The host of a device that has work ahead is slow to catch up, too, but no slower than that.
    long = steps > LONG_ITERATION * max(usual, worked)
    more = (steps - usual)[long]
    if usual * CLOCK_CHANGED < worked:
        more = np.full(more.size, (steps.sum() - len(steps) * worked) / max(more.size, 1))
    alike = more[(more * AS_LONG >= extra_ns) & (more <= AS_LONG * extra_ns)]
    waited = timed.waited
    if waited is None:
        waited = float(account.exclusive["idle_data_wait"][regular].mean())
    return 0 if 2 * waited * len(steps) > alike.sum() else len(alike)


def _is_due(timed: TimedSteps, long: Int64s, used: Int64s) -> bool:
    """Whether the loop repeats itself just when iterations are long, as far as is recorded.

    Where a whole period was timed without the profiler, its steps would show it.
    """
    if timed.period == 1 or len(timed.ns) >= timed.period:
        return False
    due = used[np.isin(used % timed.period, long % timed.period)]
    return np.array_equal(due, long)


def _is_burst(length: Int64s, wait: Int64s, long: Bools, loader: LoaderPace | None) -> bool:
    """Whether a lone wait is one of many, as the loop has them without the profiler, too.

    Then it is nearer to waiting as all of these iterations do than as those without the lone wait.
    Or workers that are slower than the loop began together.
    """
    if loader is None:
        return False
    if loader.waited is not None and 2 * loader.waited > wait.mean() + wait[~long].mean():
        return True
    return loader.step > float(np.median(length)) and int(wait.max()) <= loader.batch


def _period(long: Int64s, used: Int64s) -> int | None:
    """The distance at which iterations are long, by their numbers; None where they have none.

    Any two have a distance, so two say nothing of a third.
    """
    apart = np.unique(np.diff(long))
    if len(long) < FEWEST_REGULAR or len(apart) > 1 or apart[0] == 1:
        return None
    distance = int(apart[0])
    due = used[(used - long[0]) % distance == 0]
    return distance if np.array_equal(due, long) else None


def _operations(account: DeviceTimeline) -> dict[str, Int64s]:
    """How many operations of each busy class of the partition begin in each window."""
    kind = account.ops.select(class_of_op()).to_series().to_numpy()
    return {name: _by_window(account, kind == PARTITION.index(name)) for name in BUSY}


def _by_window(account: DeviceTimeline, chosen: Bools, weight: Int64s | None = None) -> Int64s:
    """How many of the chosen operations begin in each window, or the sum of their weights."""
    window = np.searchsorted(account.edges, account.ops["t0"].to_numpy()[chosen], "right") - 1
    last = len(account.edges) - 1
    inside = (window >= 0) & (window < last)
    weights = None if weight is None else weight[chosen][inside]
    return np.bincount(window[inside], weights, minlength=last).astype(np.int64)


def without(account: DeviceTimeline, long: LongIterations) -> DeviceTimeline:
    """The account of the regular iterations alone."""
    used, reasons = account.used.copy(), list(account.reasons)
    used[long.windows] = False
    median = float(np.median(np.diff(account.edges)[used])) / 1e6
    for k, ns in zip(
        account.index[long.windows].tolist(),
        np.diff(account.edges)[long.windows].tolist(),
        strict=True,
    ):
        reasons[k] = f"{SKIPPED_AS_LONG}: {duration(ns)}, the others {significant(median)} ms"
    return replace(account, used=used, reasons=reasons)
