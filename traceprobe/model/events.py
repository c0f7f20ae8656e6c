"""The event model that both formats are read into: frames of typed columns.

Every time is an int64 nanosecond on the trace's own clock. A *process* is identified by `pid`, a
*device* by `(pid, device)` because device ordinals are local to a process, a *host thread* by
`(pid, thread)`. Rows of one process are in the order of their start. Names are indices into
`Trace.names`, so that a regular expression runs once per distinct name and never once per event.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import polars as pl

from traceprobe.model.numbering import row_order
from traceprobe.model.operands import Operands
from traceprobe.model.quality import Quality

GPU_OPS: Mapping[str, Any] = {
    "pid": pl.Int64,  # process
    "device": pl.Int64,  # ordinal inside the process
    "stream": pl.Int64,  # CUDA stream
    "kind": pl.Int8,  # Kind
    "name": pl.Int32,  # index into Trace.names
    "t0": pl.Int64,  # start, ns
    "t1": pl.Int64,  # end, ns
    "bytes": pl.Int64,  # size of a copy, or of a collective's message; UNKNOWN where not recorded
    "pageable": pl.Boolean,  # a copy from or to pageable host memory
    "graph": pl.Boolean,  # replayed from a CUDA graph
    "correlation": pl.Int64,  # UNKNOWN where not recorded
    "linked": pl.Boolean,  # a launch row with this correlation exists
    "launch_t0": pl.Int64,  # start of the call that launched it, ns; UNKNOWN without one
    "launch_t1": pl.Int64,  # end of that call, ns
    "thread": pl.Int64,  # host thread of the launch site
    "role": pl.Int8,  # Role of the operator that launched it
    "operation": pl.Int8,  # Operation of communication, else UNKNOWN
    "group": pl.Int64,  # process group: the same number in every rank's file; UNKNOWN without one
    "group_size": pl.Int64,  # ranks in that group; UNKNOWN where not recorded
    "grid": pl.Int32,  # tells launches of one kernel with other grids apart; UNKNOWN without one
    "occupancy": pl.Int8,  # threads of the device that a kernel fills, percent; or UNKNOWN
}
"""Columns of GPU work: kernels, copies, memsets, collectives; a row each."""

HOST_WORK: Mapping[str, Any] = {
    "pid": pl.Int64,  # process
    "thread": pl.Int64,  # thread of the host, as the trace numbers it
    "t0": pl.Int64,  # start, ns
    "t1": pl.Int64,  # end, ns
}
"""Columns of stretches in which a thread runs operators, or waits in the operating system."""

HOST_CALLS: Mapping[str, Any] = {
    **HOST_WORK,
    "name": pl.Int32,  # index into Trace.names
    "call": pl.Int8,  # Call
    "blocking": pl.Boolean,  # does not return before the GPU has caught up
    "correlation": pl.Int64,  # UNKNOWN where not recorded
    "recorded": pl.Boolean,  # at least one GPU op carries this correlation
}
"""Columns of calls of CUDA or HIP."""

STREAM_EVENTS: Mapping[str, Any] = {
    **HOST_WORK,
    "kind": pl.Int8,  # StreamEvent
    "device": pl.Int64,  # UNKNOWN where not recorded
    "stream": pl.Int64,  # the recorded one, or that which waits or is waited for; or UNKNOWN
    "event": pl.Int64,  # number of the CUDA event in its process; UNKNOWN where not recorded
    "record": pl.Int64,  # correlation of the record that a wait is for; UNKNOWN where not recorded
    "correlation": pl.Int64,  # UNKNOWN where not recorded
}
"""Columns of calls that order streams, or wait for them. Most profiles have only the calls: with
device, stream and event UNKNOWN, the call's name says what it waits for; where other waits have
them, those without are of streams without work, whose rows Kineto leaves out. A host wait with a
device, and neither stream nor event, is for all that the device was given. What waits without its
call (of the driver, say) has its own times and no thread."""

HOST_RANGES: Mapping[str, Any] = {
    **HOST_WORK,
    "name": pl.Int32,  # index into Trace.names
    "source": pl.Int8,  # Source
}
"""Columns of ranges: annotations, operators, and what the profiler notes of itself."""

HOST_OPERATORS: Mapping[str, Any] = {
    **HOST_WORK,
    "name": pl.Int32,  # index into Trace.names
    "sequence": pl.Int64,  # what a forward operator and its backward one share; else UNKNOWN
    "forward_thread": pl.Int64,  # of a backward operator: autograd's number of the forward's thread
    "operands": pl.Int32,  # index into Trace.operands; UNKNOWN where shapes were not recorded
}
"""Columns of operators of the framework, in no order: there are many, and few are looked at."""

HOST_MODULES: Mapping[str, Any] = {**HOST_WORK, "name": pl.Int32}
"""Columns of calls of `nn.Module`s, in no order."""
HOST_FRAMES: Mapping[str, Any] = {**HOST_WORK, "name": pl.Int32}
"""Columns of frames of the program's own Python code, in no order. The number in a name is that of
the line that runs, or of the `def` that it is in."""
GPU_SAMPLES: Mapping[str, Any] = {
    "pid": pl.Int64,  # process
    "device": pl.Int64,  # ordinal inside the process
    "metric": pl.Int8,  # index into taxonomy.GPU_METRICS
    "t0": pl.Int64,  # start of what the sample is the mean of, ns
    "t1": pl.Int64,  # its end: when the counter was read
    "percent": pl.Int8,  # of what the unit could do in that time, whole, 0 to 100
}
"""Columns of samples of hardware counters. Those of one metric of a device do not overlap."""
KERNEL_COUNTERS: Mapping[str, Any] = {
    "order": pl.Int64,  # of the kernel among those that were counted
    "name": pl.Int64,  # index into the names; UNKNOWN where the profiler lost it
    "operator": pl.Int64,  # the same of the operator that launched it
    "metric": pl.Int64,  # the same of the counter
    "value": pl.Float64,  # in the counter's own unit
}
"""Columns of what a profiler counted of each kernel, in a capture that has no times of kernels."""


class Origin(msgspec.Struct, frozen=True):
    """Where a trace came from. `name` is the file's base name: no directory leaves this machine.

    Args:
        base_ns: what the time stamps in the file leave out of the trace's clock.
        utc_ns: UTC at the zero of that clock, where the file says when its capture began.
    """

    name: str
    sha256: str
    format: str
    dialect: str
    producer: str
    bytes: int
    base_ns: int = 0
    utc_ns: int | None = None


class Device(msgspec.Struct, frozen=True):
    """One accelerator as one process sees it (`kind` "gpu"), or the process's own CPU ("cpu").

    Args:
        capability: compute capability, e.g. "9.0".
        multiprocessors: SMs or CUs; of a slice, its own.
    """

    pid: int
    index: int
    name: str | None
    kind: str = "gpu"
    capability: str | None = None
    multiprocessors: int | None = None
    memory_bytes: int | None = None
    warp_size: int | None = None


class Trace(msgspec.Struct, frozen=True):
    """One input file as columns.

    `gpu_ops`, `host_calls`, `stream_events`, `host_ranges`, `host_operators`, `host_modules`,
    `host_frames`, `gpu_samples` and `kernel_counters` follow the schemas above; `host_work`
    (threads run one operator after the other) and `host_waits` (they wait in the operating system)
    HOST_WORK.

    Args:
        rank_of: rank of each process where the file records it.
        thread_names: (pid, thread) to the name the program gave the thread.
        profiled: what a profiler that slows the host recorded: "operators", "stacks", "memory",
            "shapes".
        operands: the distinct ones that operators were called with.
        metadata: whitelisted facts (world size, library versions, capture calibration).
    """

    origin: Origin
    names: list[str]
    gpu_ops: pl.DataFrame
    host_calls: pl.DataFrame
    host_ranges: pl.DataFrame
    devices: tuple[Device, ...]
    quality: Quality
    rank_of: Mapping[int, int] = msgspec.field(default_factory=dict)
    thread_names: Mapping[tuple[int, int], str] = msgspec.field(default_factory=dict)
    profiled: frozenset[str] = frozenset()
    metadata: Mapping[str, Any] = msgspec.field(default_factory=dict)
    host_operators: pl.DataFrame = msgspec.field(
        default_factory=lambda: pl.DataFrame(schema=HOST_OPERATORS)
    )
    host_modules: pl.DataFrame = msgspec.field(
        default_factory=lambda: pl.DataFrame(schema=HOST_MODULES)
    )
    operands: list[Operands] = msgspec.field(default_factory=list)
    host_frames: pl.DataFrame = msgspec.field(
        default_factory=lambda: pl.DataFrame(schema=HOST_FRAMES)
    )
    host_work: pl.DataFrame = msgspec.field(default_factory=lambda: pl.DataFrame(schema=HOST_WORK))
    host_waits: pl.DataFrame = msgspec.field(default_factory=lambda: pl.DataFrame(schema=HOST_WORK))
    stream_events: pl.DataFrame = msgspec.field(
        default_factory=lambda: pl.DataFrame(schema=STREAM_EVENTS)
    )
    gpu_samples: pl.DataFrame = msgspec.field(
        default_factory=lambda: pl.DataFrame(schema=GPU_SAMPLES)
    )
    kernel_counters: pl.DataFrame = msgspec.field(
        default_factory=lambda: pl.DataFrame(schema=KERNEL_COUNTERS)
    )


def frame(
    schema: Mapping[str, Any], columns: dict[str, Any], by: Sequence[str] = ()
) -> pl.DataFrame:
    """Build a frame with exactly `schema`'s columns and dtypes; a missing column is an error.

    Args:
        columns: arrays of equal length, which may be of narrower types; those of the frame are
            taken out, so that no column is in memory twice.
        by: columns to sort the rows by; rows that are equal in all of them keep their order.
    """
    # One column after the other: a sort of the whole frame takes as much memory again.
    leads = by.index("t0") + 1 if "t0" in by else len(by)
    keys = [columns[c] for c in by]
    order = row_order(keys[:leads], keys[leads:]) if by else slice(None)
    return pl.DataFrame(
        {c: pl.Series(c, columns.pop(c)[order], dtype=t) for c, t in schema.items()}
    )


def rows_named(
    rows: pl.DataFrame, names: Sequence[str], wanted: Callable[[str], bool]
) -> pl.DataFrame:
    """The rows whose names are wanted; each name is looked at once.

    Args:
        rows: with `name`, an index into `names`.
    """
    found = [i for i in rows["name"].unique().to_list() if wanted(names[i])]
    return rows.filter(pl.col("name").is_in(found)) if found else rows.clear()


def rows_of(rows: pl.DataFrame, column: str, value: int) -> pl.DataFrame:
    """The rows whose `column` is `value`: a view of the frame where it is sorted by that column.

    Most traces hold one process and one device, and a copy of a big one takes as much again.
    """
    values = rows[column].to_numpy()
    if (values[1:] >= values[:-1]).all():
        low, high = (np.searchsorted(values, value, side) for side in ("left", "right"))
        return rows[int(low) : int(high)]
    return rows.filter(pl.col(column) == value)
