"""What of a device has a value at every instant: launches that wait, bandwidths, occupancy.

Each is a step function: a row (`time_ns`, `value`) holds until the next one of its kind, begins
with the first change and ends with the one back to 0. Rows in which nothing changes are left out.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from traceprobe.model.codes import UNKNOWN, Bools, Kind, Operation
from traceprobe.timeline.collectives import bus_factor

COPIES: Mapping[str, Kind] = {
    "h2d": Kind.H2D,
    "d2h": Kind.D2H,
    "d2d": Kind.D2D,
    "p2p": Kind.COMM,
    "memset": Kind.MEMSET,
}
"""Kinds of copies; of communication, those between devices that no kernel makes."""
_STEPS: Mapping[str, type[pl.DataType]] = {"time_ns": pl.Int64, "value": pl.Int64}
_THOUSAND = 1000


def waiting_launches(ops: pl.DataFrame) -> pl.DataFrame:
    """From when to when each launch waits for its stream: one row for each launch and stream.

    A launch counts from the start of its call to the start of the first operation that it put on
    the stream, so that a graph of many kernels is one launch, as it is one for the host: they share
    a correlation number, whether or not the trace says that they are of a graph. What no call is
    known of is left out, and a start that the file puts before its call is no wait.

    Args:
        ops: columns of GPU_OPS, of one process.

    Returns:
        Columns `stream`, `t0` and `t1`, ns.
    """
    columns = ("device", "stream", "correlation", "launch_t0", "t0", "linked")
    launched = ops.select(columns).filter(pl.col("linked") & (pl.col("correlation") != UNKNOWN))
    shared = is_shared(launched["correlation"])
    waiting = launched.select("stream", "launch_t0", "t0")
    if shared.any():
        graphs = (
            launched.filter(shared)
            .group_by("device", "stream", "correlation", "launch_t0", maintain_order=True)
            .agg(pl.col("t0").min())
            .select("stream", "launch_t0", "t0")
        )
        waiting = pl.concat([waiting.filter(~shared), graphs])
    return waiting.select("stream", t0="launch_t0", t1=pl.max_horizontal("t0", "launch_t0"))


def is_shared(correlation: pl.Series) -> Bools:
    """Which operations have the correlation number of another one, as kernels of a graph have."""
    numbers = correlation.to_numpy()
    ordered = np.sort(numbers)
    repeated = ordered[1:][ordered[1:] == ordered[:-1]]
    return np.isin(numbers, repeated) if len(repeated) else np.zeros(len(numbers), dtype=np.bool_)


def launch_queue(ops: pl.DataFrame) -> pl.DataFrame:
    """Outstanding launches: those called and not yet started (`waiting_launches`), in all.

    A launch that puts work on several streams counts on each. HTA's queue length is the same
    (`get_queue_length_time_series`), of twelve calls that it knows by name, graphs not among them.

    Returns:
        Columns `time_ns` and `value`, a number of launches.
    """
    waiting = waiting_launches(ops)
    called, started = (np.sort(waiting[c].to_numpy()) for c in ("t0", "t1"))
    time = np.concatenate([called, started])
    order = np.argsort(time, kind="stable")  # of two that are sorted
    time, value = time[order], np.cumsum(np.where(order < len(called), 1, -1))
    last = np.diff(time, append=time[-1:] + 1) != 0
    return pl.DataFrame({"time_ns": time[last], "value": value[last]}, schema=_STEPS).filter(
        _changes(pl.col("value"))
    )


def launch_queue_by_stream(ops: pl.DataFrame) -> pl.DataFrame:
    """The same as `launch_queue` for each stream, with a column `stream`, by which it is sorted."""
    waiting = waiting_launches(ops)
    return _steps(waiting.with_columns(amount=1, key="stream")).rename({"key": "stream"})


def copy_bandwidth(ops: pl.DataFrame) -> pl.DataFrame:
    """Bandwidth of the copies that run, GB/s (10⁹ bytes), by kind of copy.

    Each copy has the mean of its own size over its own time; those that run at once add up. A copy
    within the device counts its size once, though it reads and writes as much. What has no size on
    record, or no length, is left out.

    Args:
        ops: columns of GPU_OPS, of one device.

    Returns:
        Columns `kind` (of `COPIES`, in their order), `time_ns` and `value`.
    """
    order = list(COPIES)
    kinds = {int(kind): order.index(name) for name, kind in COPIES.items()}
    copied = (pl.col("kind") != int(Kind.COMM)) | (pl.col("operation") == int(Operation.COPY))
    copies = _sized(ops.filter(pl.col("kind").is_in(list(kinds)) & copied))
    megabytes = (pl.col("bytes") * _THOUSAND / (pl.col("t1") - pl.col("t0"))).round()
    steps = _steps(
        copies.with_columns(
            amount=megabytes.cast(pl.Int64),
            key=pl.col("kind").replace_strict(kinds, return_dtype=pl.Int64),
        )
    )
    names = dict(enumerate(order))
    return steps.select(
        pl.col("key").replace_strict(names, return_dtype=pl.String).alias("kind"),
        "time_ns",
        pl.col("value") / _THOUSAND,
    )


def collective_bandwidth(ops: pl.DataFrame) -> pl.DataFrame:
    """Bus bandwidth of the collectives that run, GB/s, as nccl-tests defines it (`bus_factor`).

    A collective's time holds its wait for the slowest rank, so this is at least what the links
    reach. Those of unknown size or group are left out, as are operations without a definition.

    Args:
        ops: columns of GPU_OPS, of one device.

    Returns:
        Columns `time_ns` and `value`.
    """
    rows = _sized(ops.filter(pl.col("kind") == int(Kind.COMM)))
    key = ["operation", "group_size"]
    distinct = rows.select(key).unique(maintain_order=True)
    factors = [
        bus_factor(Operation(operation), None if size == UNKNOWN else size)
        for operation, size in distinct.rows()
    ]
    known = distinct.with_columns(factor=pl.Series(factors, dtype=pl.Float64)).drop_nulls()
    moved = pl.col("bytes") * pl.col("factor") * _THOUSAND / (pl.col("t1") - pl.col("t0"))
    rows = rows.join(known, on=key, how="inner", maintain_order="left")
    steps = _steps(rows.with_columns(amount=moved.round().cast(pl.Int64), key=0))
    return _of_all(steps).with_columns(pl.col("value") / _THOUSAND)


def occupancy(ops: pl.DataFrame) -> pl.DataFrame:
    """Part of the device's threads that are taken, percent, as the profiler estimates for kernels.

    Idle multiprocessors count as empty. Kernels that run at once add up, to no more than 100.
    Empty where the trace notes nothing: Kineto has it of CUDA kernels (`est. achieved occupancy
    %`), Nsight Systems does not.

    Args:
        ops: columns of GPU_OPS, of one device.

    Returns:
        Columns `time_ns` and `value`.
    """
    rows = ops.filter((pl.col("occupancy") != UNKNOWN) & (pl.col("t1") > pl.col("t0")))
    steps = _steps(rows.with_columns(amount=pl.col("occupancy").cast(pl.Int64), key=0))
    limited = _of_all(steps).with_columns(pl.col("value").clip(upper_bound=100).cast(pl.Float64))
    return limited.filter(_changes(pl.col("value")))


def _sized(ops: pl.DataFrame) -> pl.DataFrame:
    return ops.filter((pl.col("bytes") > 0) & (pl.col("t1") > pl.col("t0")))


def _of_all(steps: pl.DataFrame) -> pl.DataFrame:
    return steps.select("time_ns", "value")


def _steps(rows: pl.DataFrame) -> pl.DataFrame:
    """Sum of the amounts of the rows that hold at each instant, for each key.

    Amounts are integers, so that a sum that comes back to 0 is 0.

    Args:
        rows: columns `key`, `t0`, `t1` (ns, not before t0) and `amount`.

    Returns:
        Columns `key`, `time_ns` and `value`, by key and time, one row at each change.
    """
    key, amount = (np.tile(rows[c].to_numpy().astype(np.int64), 2) for c in ("key", "amount"))
    amount[len(rows) :] *= -1
    time = np.concatenate([rows["t0"].to_numpy(), rows["t1"].to_numpy()])
    order = np.lexsort((time, key))
    key, time, amount = key[order], time[order], amount[order]
    # What ends and what starts at one instant is one change; each key's amounts sum to 0, so that
    # the sums need no new start at the next.
    value = np.cumsum(amount)
    last = np.ones(len(time), dtype=bool)
    last[:-1] = (time[1:] != time[:-1]) | (key[1:] != key[:-1])
    steps = pl.DataFrame(
        {"key": key[last], "time_ns": time[last], "value": value[last]},
        schema={"key": pl.Int64, **_STEPS},
    )
    return steps.filter(_changes(pl.col("value")))


def _changes(value: pl.Expr) -> pl.Expr:
    """Where a step function that is 0 before its first row changes."""
    return value != value.shift(1, fill_value=0)
