"""Steady iterations of one device as a list that can be played again: what waited for what.

The host is one line: launches in the order in which they were made, whatever the thread (a training
loop's threads take turns), and between them the time that it needed. Each stream is another line.
An operation starts once its stream is free, its launch has been made, and what it needs of other
streams has ended. What it needs is not in a trace; it is found in two ways: a collective needs what
was launched before it, and the optimizer needs the collectives launched before it; and where an
operation started late for no other reason, just when one on another stream ended, it needs that.

Neighbours of a kind are joined as long as all of them together last less than `GRAIN` of a step, so
that the list is short.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from traceprobe.model.events import UNKNOWN, Bools, Int64s, Kind
from traceprobe.model.taxonomy import COMPUTE_PHASES, OFF_DEVICE
from traceprobe.timeline.device_timeline import DeviceTimeline
from traceprobe.timeline.intervals import Intervals, measure_until, merge, subtract, union
from traceprobe.timeline.partition import TRANSFER_KINDS

MAX_ITERATIONS = 4
GRAIN = 1 / 200
"""Longest row of joined operations, as a part of the mean step."""
MAX_OPS = 400_000
"""Operations of the played iterations; with more there is no replay."""
NEAR_NS = 10_000
"""An operation that starts within this time after the end of another may have waited for it."""
SLACK_NS = 3_000
"""Starts that are late by less need no explanation."""
MOST = 0.9
"""A call that lasts for more of its copy than this waits for the copy."""
QUEUE = 1000
"""With so many operations launched and not ended, a launch may wait for room: CUDA holds 1024."""
LONG_CALL_NS = 20_000
"""A launch that takes longer beside a full queue waited for room."""
KINDS = (*COMPUTE_PHASES, *OFF_DEVICE)
"""Copies inside the device and memsets belong to the phase that launches them."""
FIRST = np.iinfo(np.int64).min // 2
"""Stands for the end of what a stream did before its first operation."""


@dataclass(frozen=True)
class Schedule:
    """Operations, or joined neighbours, in the order of their launch.

    Args:
        columns: int64, as in `traceprobe.records.replay.Replay`, which has what they mean.
        latency_ns: from the end of a launch to the start of its operation on an idle device.
    """

    columns: pl.DataFrame
    latency_ns: int


def schedule(account: DeviceTimeline) -> Schedule | None:
    """The last used iterations; None where there are too few, or the trace has no launches."""
    chosen = _consecutive(account)
    if len(chosen) < 2:
        return None
    # The one before shows what the first of them waited for.
    shown = [int(chosen[0]) - 1, *chosen.tolist()]
    ops = account.ops.filter(
        pl.col("iteration").is_in(shown)
        & (pl.col("thread") != UNKNOWN)
        & ~pl.col("thread").is_in(sorted(account.process.loaders))
    ).sort("launch_t0", "t0")
    if not len(chosen) <= len(ops) <= MAX_OPS:
        return None
    step = float(np.diff(account.edges).mean())
    launched, latency = _launched(account, ops)
    return Schedule(_joined(launched, chosen, step * GRAIN), latency)


def _consecutive(account: DeviceTimeline) -> Int64s:
    """The last run of used iterations without one between that is not."""
    used = account.index[account.used]
    if not len(used):
        return used
    breaks = np.flatnonzero(np.diff(used) > 1)
    return used[breaks[-1] + 1 if len(breaks) else 0 :][-MAX_ITERATIONS:]


def _launched(account: DeviceTimeline, ops: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """One row for each operation in launch order, and the latency of launches.

    `awaits` and `needs` are numbers of rows here, UNKNOWN for none.
    """
    t0, t1 = ops["t0"].to_numpy(), ops["t1"].to_numpy()
    kind = _kinds(ops)
    stream = np.unique(ops["stream"].to_numpy(), return_inverse=True)[1].astype(np.int64)
    before = _stream_free(stream, t1)
    launched, host, awaits, data = _host(account, ops)
    kernels = ops["kind"].to_numpy() == int(Kind.KERNEL)
    latency = _latency(t0, launched, before, ops["launch_t0"].to_numpy(), kernels)
    ready = np.maximum(before, launched + latency)
    needs = _needs(ops, kind, stream, ready)
    needed = np.where(needs == UNKNOWN, np.iinfo(np.int64).min, t1[needs])
    message = ops["kind"].to_numpy() == int(Kind.COMM)
    columns = {
        "iteration": ops["iteration"].to_numpy(),
        "kind": kind,
        "stream": stream,
        "host_ns": host,
        "duration_ns": t1 - t0,
        "lag_ns": np.maximum(t0 - np.maximum(ready, needed), 0),
        "data_wait_ns": data,
        "awaits": awaits,
        "needs": needs,
        "bytes": np.where(message, ops["bytes"].to_numpy(), UNKNOWN),
    }
    return pl.DataFrame(columns), latency


def _kinds(ops: pl.DataFrame) -> Int64s:
    """Index into `KINDS`: of a kernel its phase, of anything else what it moves."""
    kind = ops["kind"].to_numpy()
    found = ops["phase"].to_numpy().astype(np.int64)
    for name in OFF_DEVICE:
        found[np.isin(kind, [int(k) for k in TRANSFER_KINDS[name]])] = KINDS.index(name)
    return found


def _host(account: DeviceTimeline, ops: pl.DataFrame) -> tuple[Int64s, Int64s, Int64s, Int64s]:
    """End of each launch, host time before it, the row the host waits for, and time for data.

    A blocking copy is launched when its call begins; the rest of the call is waiting.
    """
    own = _blocking_copies(ops)
    launched = np.where(own, ops["launch_t0"].to_numpy(), ops["launch_t1"].to_numpy())
    reached = np.maximum.accumulate(launched)
    previous = np.concatenate([[ops["launch_t0"][0]], reached[:-1]])
    awaits, waits = _waiting(account, ops, own, reached)
    host = account.process.host
    data = subtract(merge(host.data_annotated, host.data_inferred), host.profiler)
    left_out = merge(waits, data, host.profiler)
    at = np.maximum(launched, previous)
    unspent = measure_until(left_out, at) - measure_until(left_out, previous)
    fetching = measure_until(data, at) - measure_until(data, previous)
    return launched, np.maximum(at - previous - unspent, 0), awaits, fetching


def _blocking_copies(ops: pl.DataFrame) -> Bools:
    """Copies whose calls last as long as they do, whether the API says that it blocks or not."""
    copies = np.isin(ops["kind"].to_numpy(), [int(Kind.H2D), int(Kind.D2H), int(Kind.D2D)])
    t0, t1, ended = (ops[column].to_numpy() for column in ("t0", "t1", "launch_t1"))
    waited: Bools = copies & (ended - t0 > MOST * (t1 - t0))
    return waited


def _waiting(
    account: DeviceTimeline, ops: pl.DataFrame, own: Bools, reached: Int64s
) -> tuple[Int64s, Intervals]:
    """Before each launch the operation that the host waits for, and when it waits.

    It waits in blocking calls, in blocking copies (`own`) for the copy itself, and in launches
    beside a full queue. What a call waited for is what had ended last when it returned.

    Args:
        reached: the last end of a launch so far, for each operation.
    """
    t1, count = ops["t1"].to_numpy(), len(ops)
    began, ended = ops["launch_t0"].to_numpy(), ops["launch_t1"].to_numpy()
    full = ~own & (ended - began > LONG_CALL_NS) & (_outstanding(account, began, ended) >= QUEUE)
    blocking = _blocking(account, ops, began[own])
    calls_t0 = np.concatenate([blocking["t0"].to_numpy(), began[full], began[own]])
    calls_t1 = np.concatenate([blocking["t1"].to_numpy(), ended[full], ended[own]])
    order = np.argsort(t1, kind="stable")
    last = np.searchsorted(t1[order], calls_t1, "right") - 1
    target = np.where(last >= 0, order[np.maximum(last, 0)], count)
    target[len(target) - int(own.sum()) :] = np.flatnonzero(own)
    after_calls = np.searchsorted(reached, blocking["t1"].to_numpy(), "left")
    row = np.concatenate([after_calls, np.flatnonzero(full), np.flatnonzero(own) + 1])
    known = (row < count) & (target < row)
    awaits = np.full(count, UNKNOWN, dtype=np.int64)
    for mine, of in zip(row[known].tolist(), target[known].tolist(), strict=True):
        if awaits[mine] == UNKNOWN or t1[of] > t1[awaits[mine]]:
            awaits[mine] = of
    until = np.clip(t1[np.minimum(target, count - 1)], calls_t0, calls_t1)
    # Beside a full queue all of the call is waiting, also where what it waited for is not known.
    return awaits, merge(union(calls_t0[known], until[known]), union(began[full], ended[full]))


def _outstanding(account: DeviceTimeline, began: Int64s, ended: Int64s) -> Int64s:
    """Operations that were launched before each of these calls and had not ended when it did."""
    launches = np.sort(account.ops["launch_t0"].to_numpy())
    ends = np.sort(account.ops["t1"].to_numpy())
    return np.searchsorted(launches, began) - np.searchsorted(ends, ended, "right")


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


def _stream_free(stream: Int64s, t1: Int64s) -> Int64s:
    """When the stream of each operation had done what was launched before."""
    free = np.full(len(t1), FIRST, dtype=np.int64)
    for mine in np.unique(stream):
        rows_of_it = np.flatnonzero(stream == mine)
        free[rows_of_it[1:]] = np.maximum.accumulate(t1[rows_of_it])[:-1]
    return free


def _latency(t0: Int64s, launched: Int64s, before: Int64s, began: Int64s, kernels: Bools) -> int:
    """Median time from the end of a launch to the start on a stream that was idle by then.

    Where kernels start before the call returns, it is taken to be none.
    """
    late = kernels & (began > before) & (before > FIRST)
    return max(int(np.median((t0 - launched)[late])), 0) if late.any() else 0


def _needs(ops: pl.DataFrame, kind: Int64s, stream: Int64s, ready: Int64s) -> Int64s:
    """The operation of another stream that each one waited for."""
    t0, t1 = ops["t0"].to_numpy(), ops["t1"].to_numpy()
    needs = np.full(len(t0), UNKNOWN, dtype=np.int64)
    order = np.argsort(t1, kind="stable")
    late = np.flatnonzero(t0 - ready > SLACK_NS)
    at = np.searchsorted(t1[order], t0[late], "right") - 1
    known = at >= 0
    late, other = late[known], order[at[known]]
    near = (stream[other] != stream[late]) & (t0[late] - t1[other] <= NEAR_NS) & (other < late)
    needs[late[near]] = other[near]
    for row, target in _by_design(ops, kind):
        if t1[target] <= t0[row] and (needs[row] == UNKNOWN or t1[needs[row]] < t1[target]):
            needs[row] = target
    return needs


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


def _joined(launched: pl.DataFrame, chosen: Int64s, grain: float) -> pl.DataFrame:
    """Neighbours joined into rows of up to `grain` ns, those of the chosen iterations."""
    begins = _begins(launched, grain)
    row_of = np.cumsum(begins) - 1
    count = int(row_of[-1]) + 1

    def back(targets: Int64s) -> Int64s:
        """Distance of each row to the row of the operation that it refers to."""
        return np.where(targets == UNKNOWN, 0, np.arange(count) - row_of[targets])

    first = ("iteration", "kind", "stream", "data_wait_ns", "awaits", "needs", "bytes")
    joined = (
        launched.group_by(pl.Series("row", row_of), maintain_order=True)
        .agg(
            pl.col(first).first(),
            pl.col("host_ns").first().alias("first_host_ns"),
            pl.col("host_ns", "duration_ns", "lag_ns").sum(),
            (pl.col("duration_ns") + pl.col("lag_ns")).last().alias("tail_ns"),
        )
        .drop("row")
    )
    return joined.with_columns(
        iteration=np.searchsorted(chosen, joined["iteration"].to_numpy()),
        awaits=back(joined["awaits"].to_numpy()),
        needs=back(joined["needs"].to_numpy()),
    ).filter(joined["iteration"] >= chosen[0])


def _begins(launched: pl.DataFrame, grain: float) -> Bools:
    """Operations with which a row begins."""
    columns = {name: launched[name].to_numpy() for name in launched.columns}
    begins = np.zeros(len(launched), dtype=bool)
    begins[0] = True
    for name in ("iteration", "kind", "stream"):
        begins[1:] |= columns[name][1:] != columns[name][:-1]
    awaits, needs = columns["awaits"], columns["needs"]
    begins |= (awaits != UNKNOWN) | (columns["data_wait_ns"] > 0) | (needs != UNKNOWN)
    begins |= columns["kind"] == KINDS.index("communication")
    targets = np.concatenate([awaits[awaits != UNKNOWN], needs[needs != UNKNOWN]]) + 1
    begins[targets[targets < len(launched)]] = True
    for spent in (columns["host_ns"], columns["duration_ns"] + columns["lag_ns"]):
        cell = (np.cumsum(spent) / max(grain, 1)).astype(np.int64)
        begins[1:] |= cell[1:] != cell[:-1]
    return begins
