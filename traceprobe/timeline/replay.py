"""Steady iterations of one device as a list that can be played again: what waited for what.

The host is a line of launches in the order in which they were made, and between them the time that
it needed. A training loop's threads take turns and share a line; one that launches while others do
has a line of its own. Each stream is another line. An operation starts once its stream is free, its
launch has been made, and what it needs of other streams (`timeline/stream_needs.py`) has ended.

Neighbours of a kind are joined as long as all of them together last less than `GRAIN` of a step, so
that the list is short.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import polars as pl

from traceprobe.model.codes import UNKNOWN, Bools, Int64s, Kind, Operation
from traceprobe.model.taxonomy import NO_PARTNER, OFF_DEVICE
from traceprobe.timeline import host_lines
from traceprobe.timeline.beside_communication import communication_columns, packing_host_ns
from traceprobe.timeline.dependencies import dependencies
from traceprobe.timeline.device_timeline import DeviceTimeline
from traceprobe.timeline.operators import launching_operators
from traceprobe.timeline.partition import TRANSFER_KINDS
from traceprobe.timeline.played_ops import MAX_OPS, consecutive, launched_ops
from traceprobe.timeline.stalls import stalls
from traceprobe.timeline.stream_needs import KINDS, Needs, stream_needs

COMMUNICATION = ("slowed_ns", "packing_ns", "packing_host_ns")
"""Columns with what there would not be without communication."""
NOT_SLOWED = ("pause_ns", "stall_ns")
"""Columns with parts of the host's time that a profiler makes no longer."""
GRAIN = 1 / 200
"""Longest row of joined operations, as a part of the mean step."""
GROUPS = 1 << 31
"""Groups are told apart by their numbers modulo this, so that every reader of JSON can."""
FIRST = np.iinfo(np.int64).min // 2
"""Stands for the end of what a stream did before its first operation."""


class Schedule(msgspec.Struct, frozen=True):
    """Operations, or joined neighbours, in the order of their launch.

    Args:
        columns: as in `traceprobe.records.replay.Replay`, which has what they mean; but `name` is
            an index into the names of the trace, and times are on its clock.
        more_rows, more_needs: further needs, by row; distances.
        latency_ns: from the end of a launch to the start of its operation on an idle device.
        recorded, inferred, unresolved: needs by where they come from, and waits without any.
    """

    columns: pl.DataFrame
    more_rows: Int64s
    more_needs: Int64s
    latency_ns: int
    recorded: int
    inferred: int
    unresolved: int


def schedule(account: DeviceTimeline, names: Sequence[str]) -> Schedule | None:
    """The last used iterations; None where there are too few, or the trace has no launches.

    Args:
        names: of the trace.
    """
    chosen = consecutive(account)
    if len(chosen) < 2:
        return None
    ops = launched_ops(account, chosen)
    if not len(chosen) <= len(ops) <= MAX_OPS or not ops["iteration"].is_in(chosen.tolist()).any():
        return None
    step = float(np.diff(account.edges).mean())
    beside = communication_columns(account, names)[ops["number"].to_numpy()]
    rows, needs, latency = launched_rows(account, ops, beside, names)
    rows = _closed(rows, account, int(chosen[0]), int(chosen[-1]), names)
    return _joined(rows, needs, latency, chosen, step * GRAIN)


def launched_rows(
    account: DeviceTimeline, ops: pl.DataFrame, beside: pl.DataFrame, names: Sequence[str]
) -> tuple[pl.DataFrame, Needs, int]:
    """One row for each operation in launch order, what each needs, and the latency of launches.

    `awaits` is the number of a row here, UNKNOWN for none.
    """
    t0, t1 = ops["t0"].to_numpy(), ops["t1"].to_numpy()
    kind = _kinds(ops)
    stream = np.unique(ops["stream"].to_numpy(), return_inverse=True)[1].astype(np.int64)
    before = _stream_free(stream, t1)
    line = host_lines.lines(account, ops)
    told = dependencies(ops, account.process.events)
    stuck = stalls(account.process, names)
    host = host_lines.host_times(account, ops, line, told, stuck)
    launched = host.launched
    kernels = ops["kind"].to_numpy() == int(Kind.KERNEL)
    latency = _latency(t0, t1, launched, before, ops["launch_t0"].to_numpy(), kernels)
    ready = np.maximum(before, launched + latency)
    needs = stream_needs(ops, told, kind, stream, ready)
    needed = np.full(len(ops), np.iinfo(np.int64).min)
    np.maximum.at(needed, needs.op, t1[needs.needs])
    # The first of a stream may have waited for what was launched before the recording began.
    late = np.where(before > FIRST, t0 - np.maximum(ready, needed), 0)
    message = ops["kind"].to_numpy() == int(Kind.COMM)
    operators = launching_operators(ops, account.process.operators)
    columns = {
        "iteration": ops["iteration"].to_numpy(),
        "kind": kind,
        "stream": stream,
        "line": line,
        "host_ns": host.spent,
        "pause_ns": host.paused,
        "stall_ns": host.stalled,
        "duration_ns": t1 - t0,
        "lag_ns": np.maximum(late, 0),
        "slowed_ns": beside["slowed_ns"].to_numpy(),
        "packing_ns": beside["packing_ns"].to_numpy(),
        "packing_host_ns": packing_host_ns(beside, launched, host.spent),
        "data_wait_ns": host.fetching,
        "awaits": host.awaits,
        "bytes": np.where(message, ops["bytes"].to_numpy(), UNKNOWN),
        "group": _groups(ops),
        "t0": t0,
        "t1": t1,
        "name": np.where(operators == UNKNOWN, ops["name"].to_numpy(), operators),
    }
    return pl.DataFrame(columns), needs, latency


def _closed(
    rows: pl.DataFrame, account: DeviceTimeline, first: int, last: int, names: Sequence[str]
) -> pl.DataFrame:
    """The rows, of which the first launch of the step thread comes after what follows the last.

    The iterations are played again and again. Before their first launch the host did what the
    iteration before ends with, which may be one that is not played: instead, it does what the last
    of them ends with, up to the launch that follows. Packing is no more than the host's time then.
    """
    marker = account.process.marker
    if marker is None or marker.iteration_at(marker.ends[[last]])[0] != last + 1:
        return rows  # nothing follows, or a pause of the profiler
    after = launched_ops(account, np.array([last + 1]))
    if len(after) > MAX_OPS:
        return rows
    line = host_lines.lines(account, after) if len(after) else np.empty(0, np.int64)
    follows = np.flatnonzero((after["iteration"].to_numpy() == last + 1) & (line == 0))
    begins = np.flatnonzero((rows["iteration"] == first) & (rows["line"] == 0))
    if not len(follows) or follows[0] == 0 or not len(begins):
        return rows
    told = dependencies(after, account.process.events)
    host = host_lines.host_times(account, after, line, told, stalls(account.process, names))
    launch = int(follows[0])
    spent = int(host.spent[launch])
    changed = {
        "host_ns": spent,
        "pause_ns": int(host.paused[launch]),
        "stall_ns": int(host.stalled[launch]),
        "packing_host_ns": min(spent, int(rows["packing_host_ns"][int(begins[0])])),
    }
    here = pl.int_range(pl.len()) == int(begins[0])
    return rows.with_columns(
        pl.when(here).then(ns).otherwise(name).alias(name) for name, ns in changed.items()
    )


def _groups(ops: pl.DataFrame) -> Int64s:
    """Number of the process group of each message, as `Replay.group` has it."""
    message = (ops["kind"] == int(Kind.COMM)).to_numpy()
    group, operation = ops["group"].to_numpy(), ops["operation"].to_numpy()
    many = ops["group_size"].to_numpy() > 2
    alone = (operation == int(Operation.COPY)) | ((operation == int(Operation.SEND_RECV)) & many)
    found = np.where(group == UNKNOWN, UNKNOWN, group % GROUPS)
    return np.where(message, np.where(alone, NO_PARTNER, found), UNKNOWN)


def _kinds(ops: pl.DataFrame) -> Int64s:
    """Index into `KINDS`: of a kernel its phase, of anything else what it moves."""
    kind = ops["kind"].to_numpy()
    found = ops["phase"].to_numpy().astype(np.int64)
    for name in OFF_DEVICE:
        found[np.isin(kind, [int(k) for k in TRANSFER_KINDS[name]])] = KINDS.index(name)
    return found


def _stream_free(stream: Int64s, t1: Int64s) -> Int64s:
    """When the stream of each operation had done what was launched before."""
    free = np.full(len(t1), FIRST, dtype=np.int64)
    for mine in np.unique(stream):
        rows_of_it = np.flatnonzero(stream == mine)
        free[rows_of_it[1:]] = np.maximum.accumulate(t1[rows_of_it])[:-1]
    return free


def _latency(
    t0: Int64s, t1: Int64s, launched: Int64s, before: Int64s, began: Int64s, kernels: Bools
) -> int:
    """Median time from the end of a launch to the start on a stream that was idle by then.

    Where kernels start before the call returns, it is taken to be none. What starts only after
    something else has ended, on whatever stream, may have waited for that.
    """
    ends = np.sort(t1)
    ended = ends[np.maximum(np.searchsorted(ends, t0, "right") - 1, 0)]
    alone = (ended <= launched) | (ended > t0)
    late = kernels & (began > before) & (before > FIRST) & alone
    return max(int(np.median((t0 - launched)[late])), 0) if late.any() else 0


def _joined(
    launched: pl.DataFrame, needs: Needs, latency: int, chosen: Int64s, grain: float
) -> Schedule:
    """Neighbours joined into rows of up to `grain` ns, those of the chosen iterations."""
    row_of = np.cumsum(_begins(launched, needs, grain)) - 1
    count = int(row_of[-1]) + 1
    awaits = launched["awaits"].to_numpy()
    first = ("iteration", "kind", "stream", "line", "data_wait_ns", "bytes", "group")
    joined = (
        launched.with_columns(
            row=row_of,
            awaits=pl.Series(np.where(awaits == UNKNOWN, UNKNOWN, row_of[awaits])),
        )
        .group_by("row", maintain_order=True)
        .agg(
            pl.col((*first, "awaits")).first(),
            pl.col("host_ns").first().alias("first_host_ns"),
            pl.col("host_ns", *NOT_SLOWED, "duration_ns", "lag_ns", *COMMUNICATION).sum(),
            (pl.col("duration_ns") + pl.col("lag_ns")).last().alias("tail_ns"),
            pl.len().cast(pl.Int64).alias("ops"),
            pl.col("t0").min().alias("start_ns"),
            pl.col("t1").max().alias("end_ns"),
            pl.col("name").sort_by("duration_ns").last(),
        )
        .drop("row")
    )
    kept = (joined["iteration"] >= chosen[0]).to_numpy()
    above = int(np.flatnonzero(kept)[0])
    number = np.arange(count)
    target = joined["awaits"].to_numpy()
    nearest, more = _by_row(row_of[needs.op], row_of[needs.needs], joined["end_ns"].to_numpy())
    more = more[kept[more[:, 0]]] if len(more) else more
    used = kept[row_of[needs.op]]
    columns = joined.with_columns(
        iteration=np.searchsorted(chosen, joined["iteration"].to_numpy()),
        awaits=np.where(target == UNKNOWN, 0, number - target),
        needs=np.where(nearest == UNKNOWN, 0, number - nearest),
    ).filter(pl.Series(kept))
    return Schedule(
        columns,
        more[:, 0] - above,
        more[:, 0] - more[:, 1],
        latency,
        int((needs.recorded & used).sum()),
        int((~needs.recorded & used).sum()),
        needs.unresolved,
    )


def _by_row(row: Int64s, needed: Int64s, ends: Int64s) -> tuple[Int64s, Int64s]:
    """What each row needs that ends last, UNKNOWN for nothing, and pairs of all other needs."""
    nearest = np.full(len(ends), UNKNOWN, dtype=np.int64)
    real = needed < row
    pairs = np.unique(np.stack([row[real], needed[real]], axis=1), axis=0)
    order = np.argsort(ends[pairs[:, 1]], kind="stable")
    nearest[pairs[order, 0]] = pairs[order, 1]
    return nearest, pairs[nearest[pairs[:, 0]] != pairs[:, 1]]


def _begins(launched: pl.DataFrame, needs: Needs, grain: float) -> Bools:
    """Operations with which a row begins."""
    columns = {name: launched[name].to_numpy() for name in launched.columns}
    begins = np.zeros(len(launched), dtype=bool)
    begins[0] = True
    for name in ("iteration", "kind", "stream", "line"):
        begins[1:] |= columns[name][1:] != columns[name][:-1]
    awaits = columns["awaits"]
    begins |= (awaits != UNKNOWN) | (columns["data_wait_ns"] > 0)
    begins |= columns["kind"] == KINDS.index("communication")
    begins[needs.op] = True
    targets = np.concatenate([awaits[awaits != UNKNOWN], needs.needs]) + 1
    begins[targets[targets < len(launched)]] = True
    for spent in (columns["host_ns"], columns["duration_ns"] + columns["lag_ns"]):
        cell = (np.cumsum(spent) / max(grain, 1)).astype(np.int64)
        begins[1:] |= cell[1:] != cell[:-1]
    return begins
