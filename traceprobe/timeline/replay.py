"""Steady iterations of one device as a list that can be played again: what waited for what.

The host is a line of launches in the order in which they were made, and between them the time that
it needed. A training loop's threads take turns and share a line; one that launches while others do
has a line of its own. Each stream is another line. An operation starts once its stream is free, its
launch has been made, and what it needs of other streams has ended. What it needs is told by the
events that streams wait for (`timeline/dependencies.py`). Where the trace has none, a collective
needs what was launched before it, and the optimizer the collectives launched before it; and where
not all waits are known, an operation that started late for no other reason, just when one on
another stream ended, needs that.

Neighbours of a kind are joined as long as all of them together last less than `GRAIN` of a step, so
that the list is short.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import polars as pl

from traceprobe.model.accounting import SLACK_NS
from traceprobe.model.codes import UNKNOWN, Bools, Int64s, Kind, Operation
from traceprobe.model.taxonomy import COMPUTE_PHASES, NO_PARTNER, OFF_DEVICE
from traceprobe.timeline import host_lines
from traceprobe.timeline.beside_communication import communication_columns, packing_host_ns
from traceprobe.timeline.dependencies import Dependencies, dependencies
from traceprobe.timeline.device_timeline import DeviceTimeline
from traceprobe.timeline.operators import launching_operators
from traceprobe.timeline.partition import TRANSFER_KINDS
from traceprobe.timeline.stalls import stalls

MAX_ITERATIONS = 4
COMMUNICATION = ("slowed_ns", "packing_ns", "packing_host_ns")
"""Columns with what there would not be without communication."""
NOT_SLOWED = ("pause_ns", "stall_ns")
"""Columns with parts of the host's time that a profiler makes no longer."""
GRAIN = 1 / 200
"""Longest row of joined operations, as a part of the mean step."""
MAX_OPS = 400_000
"""Operations of the played iterations; with more there is no replay."""
NEAR_NS = 10_000
"""An operation that starts within this time after the end of another may have waited for it."""
TOLD_NEAR_NS = 50_000
"""The same of one whose stream was told to wait, where the trace does not say for what: on AMD's
GPUs, whose traces have no records of events, it then starts some 20 µs later."""
GROUPS = 1 << 31
"""Groups are told apart by their numbers modulo this, so that every reader of JSON can."""
KINDS = (*COMPUTE_PHASES, *OFF_DEVICE)
"""Copies inside the device and memsets belong to the phase that launches them."""
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


class Needs(msgspec.Struct, frozen=True):
    """Pairs of operations, the second of which must end before the first begins.

    Args:
        op, needs: rows of the operations. recorded: whether the trace says so.
    """

    op: Int64s
    needs: Int64s
    recorded: Bools
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
    if not len(chosen) <= len(ops) <= MAX_OPS:
        return None
    step = float(np.diff(account.edges).mean())
    beside = communication_columns(account, names)[ops["number"].to_numpy()]
    rows, needs, latency = launched_rows(account, ops, beside, names)
    rows = _closed(rows, account, int(chosen[0]), int(chosen[-1]), names)
    return _joined(rows, needs, latency, chosen, step * GRAIN)


def launched_ops(account: DeviceTimeline, chosen: Int64s) -> pl.DataFrame:
    """Operations of some iterations, and of the one before, in the order of their launches.

    The one before shows what the first of them waited for. `number` is the row of `account.ops`.
    """
    shown = [int(chosen[0]) - 1, *chosen.tolist()]
    return (
        account.ops.with_row_index("number")
        .filter(
            pl.col("iteration").is_in(shown)
            & (pl.col("thread") != UNKNOWN)
            & ~pl.col("thread").is_in(sorted(account.process.loaders))
        )
        .sort("launch_t0", "t0")
    )


def consecutive(account: DeviceTimeline) -> Int64s:
    """The last run of used iterations without one between that is not."""
    used = account.index[account.used]
    if not len(used):
        return used
    breaks = np.flatnonzero(np.diff(used) > 1)
    return used[breaks[-1] + 1 if len(breaks) else 0 :][-MAX_ITERATIONS:]


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
    needs = _needs(ops, told, kind, stream, ready)
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


def _needs(
    ops: pl.DataFrame, told: Dependencies, kind: Int64s, stream: Int64s, ready: Int64s
) -> Needs:
    """What operations need of other streams, as far as the trace tells or it can be inferred.

    Args:
        told: what they need because of events.
        kind, stream, ready: of each operation; from `ready` on it would start, if it needed
            nothing.
    """
    t0, t1 = ops["t0"].to_numpy(), ops["t1"].to_numpy()
    pairs = [(told.op, told.needs, told.recorded)]
    if not len(told.op):
        design = [(row, of) for row, of in _by_design(ops, kind) if t1[of] <= t0[row]]
        design = [(row, of) for row, of in design if stream[of] != stream[row]]
        at = np.array(design, np.int64).reshape(-1, 2)
        pairs.append((at[:, 0], at[:, 1], np.zeros(len(at), bool)))
    late = np.zeros(0, np.int64)
    if not told.all_recorded:
        explained = ready.copy()
        np.maximum.at(explained, told.op, t1[told.needs])
        near = np.full(len(t0), NEAR_NS)
        near[told.open] = TOLD_NEAR_NS
        late, other = _just_after(t0, t1, stream, explained, near)
        pairs.append((late, other, np.zeros(len(late), bool)))
    op, needs, recorded = (np.concatenate([pair[n] for pair in pairs]) for n in range(3))
    _, first = np.unique(np.stack([op, needs]), axis=1, return_index=True)
    # A wait that was for something else than it seemed is known where the start tells for what.
    unresolved = told.lost - int(np.isin(told.open, late).sum())
    unresolved += int((~np.isin(told.contradicted, late)).sum())
    return Needs(op[first], needs[first], recorded[first].astype(bool), unresolved)


def _just_after(
    t0: Int64s, t1: Int64s, stream: Int64s, ready: Int64s, near_ns: Int64s
) -> tuple[Int64s, Int64s]:
    """Operations that started late, just when one of another stream had ended, and that one.

    Args:
        near_ns: by how much later each may have started.
    """
    order = np.argsort(t1, kind="stable")
    late = np.flatnonzero(t0 - ready > SLACK_NS)
    at = np.searchsorted(t1[order], t0[late], "right") - 1
    known = at >= 0
    late, other = late[known], order[at[known]]
    near = (t0[late] - t1[other] <= near_ns[late]) & (stream[other] != stream[late])
    near &= other < late
    return late[near], other[near]


def _by_design(ops: pl.DataFrame, kind: Int64s) -> list[tuple[int, int]]:
    """Collectives need what was launched before them, the first of the optimizer needs them."""
    comm = kind == KINDS.index("communication")
    if not comm.any():
        return []
    number = np.arange(len(kind))
    last_kernel = np.maximum.accumulate(np.where(kind < len(COMPUTE_PHASES), number, -1))
    last_comm = np.maximum.accumulate(np.where(comm, number, -1))
    pairs = [(int(i), int(last_kernel[i])) for i in np.flatnonzero(comm) if last_kernel[i] >= 0]
    optimizer = np.flatnonzero(kind == KINDS.index("optimizer"))
    _, first = np.unique(ops["iteration"].to_numpy()[optimizer], return_index=True)
    pairs += [(int(i), int(last_comm[i])) for i in optimizer[first] if last_comm[i] >= 0]
    return pairs


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
