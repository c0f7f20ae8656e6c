"""Who owns each nanosecond of the used windows of a device, to the path of the owner.

Work of a class owns its time as the partition counts it: by the growth of the union of its
operations in the order of their start. Idle time is owned by what the host did in it: the call that
waited, the range that loaded data, the module or operator that ran, or else what made the launch
that ended the gap. So the owners of a class sum to that class of the partition exactly.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
import polars as pl
from msgspec.structs import replace

from traceprobe.model.codes import UNKNOWN, Int64s, Source
from traceprobe.model.numbering import numbered
from traceprobe.model.sidecar import KernelOwners
from traceprobe.model.taxonomy import BUSY, IDLE_CAUSES, PARTITION, Level
from traceprobe.timeline.device_timeline import DeviceTimeline
from traceprobe.timeline.host_paths import HostNest, Paths, host_nests
from traceprobe.timeline.idle import Gaps
from traceprobe.timeline.intervals import (
    EMPTY,
    Intervals,
    intersect,
    measure_between,
    subtract,
    union,
)
from traceprobe.timeline.kernel_owners import OwnedKernels, owned_kernels
from traceprobe.timeline.partition import class_of_op
from traceprobe.timeline.rank_collectives import summary_windows

_OF_HOST = ("idle_host", "idle_data_wait", "idle_unexplained")
"""Idle time that is described by what the host did meanwhile."""
_Shares = tuple[Int64s, ...]
"""Columns of `Attribution.shares`, in its order; a path may have several rows."""


class Attribution(msgspec.Struct, frozen=True):
    """Owners of time.

    Args:
        paths: of the owners, by number.
        above: path of what encloses the launch of each operation, UNKNOWN for nothing.
        shares: `class` (index in `PARTITION`), `path`, `ns`, `count`: operations of an owner of
            busy time that begin in the windows, calls of one that waits; a row each.
        names: those that the paths are made of.
        replays, unfit: of CUDA graphs, as `OwnedKernels`.
    """

    paths: Paths
    above: Int64s
    shares: pl.DataFrame
    names: Sequence[str]
    replays: int = 0
    unfit: int = 0


class Owners(msgspec.Struct, frozen=True):
    """What encloses the launches of a device, whichever of its windows are asked for.

    Args:
        paths: those found so far. nests: by thread. waiting: calls that wait for the GPU.
        owned: paths above the operations. launched: their own.
    """

    paths: Paths
    nests: Mapping[int, HostNest]
    waiting: pl.DataFrame
    owned: OwnedKernels
    launched: Int64s

    def copy(self) -> Owners:
        """The same, to whose paths others can be added."""
        paths = self.paths.copy()
        nests = {number: replace(nest, paths=paths) for number, nest in self.nests.items()}
        return replace(self, paths=paths, nests=nests)


def find_owners(
    account: DeviceTimeline, names: Sequence[str], noted: KernelOwners | None = None
) -> Owners:
    """What encloses the launches of a device.

    Args:
        names: of the trace.
        noted: what the recording knows of kernels that nothing encloses.
    """
    threads = {*account.ops["thread"].unique().to_list(), account.process.host.step_thread}
    waiting = account.process.calls.filter("blocking")
    threads |= set(waiting["thread"].unique().to_list())
    paths, nests = host_nests(account.process, names, sorted(threads - {UNKNOWN}))
    owned = _launch_paths(account, paths, nests, names, noted)
    launched = paths.below(owned.above, Level.KERNEL, account.ops["name"].to_numpy().astype(int))
    return Owners(paths, nests, waiting, owned, launched)


def attribution(account: DeviceTimeline, owners: Owners) -> Attribution:
    """The owners of the windows that the summary covers.

    Args:
        owners: of the same device; they stay as they are.
    """
    owners = owners.copy()
    inside, owned = _summarised(account), owners.owned
    exclusive = {name: intersect(own, inside) for name, own in account.own.items()}
    # Summed one after the other: together they have more rows than the trace.
    shares = [
        _by_owner(_busy(account, exclusive, owners.launched, inside)),
        *map(_by_owner, _idle(account, exclusive, owners, inside)),
    ]
    return Attribution(
        owners.paths, owned.above, _summed(shares), owned.names, owned.replays, owned.unfit
    )


def _summarised(account: DeviceTimeline) -> Intervals:
    chosen = summary_windows(account)
    return union(account.edges[:-1][chosen], account.edges[1:][chosen])


def _launch_paths(
    account: DeviceTimeline,
    paths: Paths,
    nests: Mapping[int, HostNest],
    names: Sequence[str],
    noted: KernelOwners | None,
) -> OwnedKernels:
    """Path above each operation: what encloses its launch, or what the recording noted of it."""
    ops = account.ops
    thread, launch = ops["thread"].to_numpy(), ops["launch_t0"].to_numpy()
    above = np.full(len(ops), UNKNOWN, dtype=np.int64)
    for number, nest in nests.items():
        mine = np.flatnonzero(thread == number)
        above[mine] = nest.paths_at(launch[mine])
    if noted is None:
        return OwnedKernels(above, names)
    return owned_kernels(account.process, ops, above, paths, names, noted)


def _shares(kind: Int64s | int, path: Int64s, ns: Int64s, count: Int64s | int = 0) -> _Shares:
    return tuple(np.broadcast_to(values, path.shape) for values in (kind, path, ns, count))


def _summed(shares: Sequence[_Shares]) -> pl.DataFrame:
    """One row for each class and path that has time or operations."""
    together = map(np.concatenate, zip(*shares, strict=True))
    kind, path, ns, count = _by_owner(tuple(together))
    some = (ns > 0) | (count > 0)
    return pl.DataFrame(
        {"class": kind[some], "path": path[some], "ns": ns[some], "count": count[some]}
    )


def _by_owner(shares: _Shares) -> _Shares:
    """The same with one row for each class and path, by these."""
    kind, path, ns, count = shares
    width = int(path.max(initial=0)) + 1
    owners, place = numbered(kind * width + path)
    sums = np.zeros((2, len(owners)), dtype=np.int64)
    np.add.at(sums[0], place, ns)
    np.add.at(sums[1], place, count)
    return owners // width, owners % width, sums[0], sums[1]


def _within(instants: Int64s, inside: Intervals) -> Int64s:
    """1 for instants in a set, else 0."""
    at = np.searchsorted(inside.t0, instants, "right") - 1
    ends = np.append(inside.t1, np.iinfo(np.int64).min)
    return ((at >= 0) & (instants < ends[at])).astype(np.int64)


def _owned(t0: Int64s, t1: Int64s, exclusive: Intervals) -> tuple[Int64s, Int64s, Int64s]:
    """What each of some intervals, in the order of their start, adds to the union of them.

    Returns:
        (start, end, ns): of the part that it adds, and how much of a set is in that.
    """
    start, end = _growth(t0, t1)
    return start, end, measure_between(exclusive, start, end)


def _growth(t0: Int64s, t1: Int64s) -> tuple[Int64s, Int64s]:
    """Start and end of what each of some intervals adds to those before it."""
    reach = np.maximum.accumulate(np.concatenate([[np.iinfo(np.int64).min], t1]))[:-1]
    start = np.maximum(t0, reach)
    return start, np.maximum(t1, start)


def _busy(
    account: DeviceTimeline,
    exclusive: Mapping[str, Intervals],
    launched: Int64s,
    inside: Intervals,
) -> _Shares:
    """Time of operations, each with its own path."""
    kind = account.ops.select(class_of_op()).to_series().to_numpy()
    t0, t1 = account.ops["t0"].to_numpy(), account.ops["t1"].to_numpy()
    ns = np.zeros(len(t0), dtype=np.int64)
    for number, name in enumerate(BUSY):
        rows = np.flatnonzero(kind == number)
        ns[rows] = _owned(t0[rows], t1[rows], exclusive[name])[2]
    return _shares(kind, launched, ns, _within(t0, inside))


def _idle(
    account: DeviceTimeline,
    exclusive: Mapping[str, Intervals],
    owners: Owners,
    inside: Intervals,
) -> Iterator[_Shares]:
    """Idle time, by cause."""
    paths, nests, launched = owners.paths, owners.nests, owners.launched
    named = {
        "idle_sync": _calls(owners.waiting, paths, nests),
        "idle_data_wait": _loading(account, nests),
        "idle_profiler": _profiling(account, paths),
    }
    ended = np.where(
        account.gaps.after == account.gaps.before, paths.nothing(), launched[account.gaps.after]
    )
    ended[account.gaps.thread == UNKNOWN] = paths.nothing()
    threads, step = list(_by_thread(account.gaps)), account.process.host.step_thread
    for cause in IDLE_CAUSES:
        kind, rest = PARTITION.index(cause), exclusive[cause]
        if cause in named:
            rows = named[cause].sort("t0", -pl.col("t1"))
            path = rows["path"].to_numpy()
            start, end, ns = _owned(rows["t0"].to_numpy(), rows["t1"].to_numpy(), rest)
            calls = _within(rows["t0"].to_numpy(), inside)
            yield _shares(kind, path, ns, calls if cause == "idle_sync" else 0)
            rest = subtract(rest, union(start, end))
        yield from _gaps(threads, step, kind, rest, ended, nests if cause in _OF_HOST else {})


class _ThreadGaps(NamedTuple):
    """Gaps that end with what one thread launched: their rows, their starts, and all as one set."""

    thread: int
    rows: Int64s
    t0: Int64s
    whole: Intervals


def _by_thread(gaps: Gaps) -> Iterator[_ThreadGaps]:
    for thread in numbered(gaps.thread)[0].tolist():
        rows = np.flatnonzero(gaps.thread == thread)
        t0 = gaps.t0[rows]
        yield _ThreadGaps(thread, rows, t0, union(t0, gaps.t1[rows]))


def _gaps(
    threads: Sequence[_ThreadGaps],
    step: int,
    kind: int,
    idle: Intervals,
    ended: Int64s,
    nests: Mapping[int, HostNest],
) -> Iterator[_Shares]:
    """Idle time by what the host ran in it, as far as some nests tell, else by what ended it.

    Autograd's thread waits for the one of the step, until that calls it; from then on the step's
    waits in that call.

    Args:
        threads: those that end gaps. step: that of the step.
        ended: path of what ended each gap.
    """
    for gaps in threads if len(idle.t0) else ():
        here = intersect(idle, gaps.whole)
        if not len(here.t0):
            continue
        own = nests.get(gaps.thread)
        ran = [nests[number] for number in dict.fromkeys((step, gaps.thread)) if number in nests]
        pieces = _cut(here, np.concatenate([gaps.t0, *(nest.edges() for nest in ran)]))
        path = ended[gaps.rows[np.searchsorted(gaps.t0, pieces.t0, "right") - 1]]
        for nest in ran:
            inner, level = nest.paths_after(pieces.t0)
            runs = np.isin(level, (Level.MODULE, Level.LINE, Level.OPERATOR))
            if own is not None and nest is not own:
                runs &= nest.last_start(pieces.t0) > own.last_start(pieces.t0)
            path = np.where(runs, inner, path)
        yield _shares(kind, path, pieces.t1 - pieces.t0)


def _cut(time: Intervals, instants: Int64s) -> Intervals:
    """The same time in pieces that end at instants."""
    if not len(time.t0):
        return EMPTY
    # Few of the instants are inside, and sorting all of them would take longest.
    inside = instants[_within(instants, time) > 0]
    starts = np.sort(np.concatenate([time.t0, inside]))
    starts = starts[np.append(True, starts[1:] != starts[:-1])]  # `np.unique` hashes, and is slow
    at = np.searchsorted(time.t0, starts, "right") - 1
    return Intervals(starts, np.minimum(np.append(starts[1:], time.t1[-1]), time.t1[at]))


def _calls(waiting: pl.DataFrame, paths: Paths, nests: Mapping[int, HostNest]) -> pl.DataFrame:
    """Calls that wait for the GPU: times and paths."""
    parts = [_rows(*3 * [np.empty(0, dtype=np.int64)])]
    for number, nest in nests.items():
        calls = waiting.filter(pl.col("thread") == number)
        t0, t1, name = (calls[c].to_numpy().astype(np.int64) for c in ("t0", "t1", "name"))
        parts.append(_rows(t0, t1, paths.below(nest.paths_at(t0), Level.CALL, name)))
    return pl.concat(parts)


def _loading(account: DeviceTimeline, nests: Mapping[int, HostNest]) -> pl.DataFrame:
    """Ranges in which the step thread waits for data."""
    marks, step = account.process.marks, account.process.host.step_thread
    none = np.empty(0, dtype=np.int64)
    if step not in nests:
        return _rows(none, none, none)
    nest, data = nests[step], marks.select("data") & (marks.thread == step)
    known = np.isin(nest.t0, marks.t0[data]) & np.isin(nest.t1, marks.t1[data])
    known &= nest.level == Level.RANGE
    start, end = _growth(nest.t0[known], nest.t1[known])
    rows = np.flatnonzero(known)[start < end]
    start, end = start[start < end], end[start < end]
    pieces = _cut(Intervals(start, end), np.concatenate([start, nest.lines.t0, nest.lines.t1]))
    path = nest.path[rows[np.searchsorted(start, pieces.t0, "right") - 1]]
    return _rows(pieces.t0, pieces.t1, nest.below_lines(path, pieces.t0))


def _profiling(account: DeviceTimeline, paths: Paths) -> pl.DataFrame:
    """What the profiler notes of its own work."""
    rows = account.process.ranges.filter(pl.col("source") == int(Source.PROFILER))
    name = rows["name"].to_numpy().astype(np.int64)
    above = np.full(len(name), UNKNOWN, dtype=np.int64)
    path = paths.below(above, Level.CALL, name)
    return _rows(rows["t0"].to_numpy(), rows["t1"].to_numpy(), path)


def _rows(t0: Int64s, t1: Int64s, path: Int64s) -> pl.DataFrame:
    return pl.DataFrame({"t0": t0, "t1": t1, "path": path}, schema_overrides={"path": pl.Int64})
