"""Kernels so short that starting and ending them is most of what they take.

The device takes 1 to 3 µs for a kernel of almost no work, and about one more until the next of its
stream begins. The host need not be late for that: where it is far ahead, many such kernels cost
time all the same. Those of the optimizer are left out, of which other findings tell.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import polars as pl

from traceprobe.model.codes import Int64s, Kind
from traceprobe.model.taxonomy import Phase
from traceprobe.timeline.compiled_code import program_lines
from traceprobe.timeline.intervals import Intervals
from traceprobe.timeline.process_timeline import ProcessTimeline
from traceprobe.timeline.spent import spent_by


class TinyKernels(msgspec.Struct, frozen=True):
    """Such kernels of some operations.

    Args:
        count: how many. ns: sum of their durations.
        gap_ns: idle time of the device right after them, no longer each than such a kernel.
        names, lines: of the kernels and of the program, ns, the most first; lines where the trace
            has them.
    """

    count: int
    ns: int
    gap_ns: int
    names: dict[str, int]
    lines: dict[str, int]


def tiny_kernels(
    ops: pl.DataFrame,
    idle: Intervals,
    process: ProcessTimeline,
    names: Sequence[str],
    longest_ns: int,
) -> TinyKernels | None:
    """Those among operations of one device; None without any.

    Args:
        ops: with columns kind, phase, name, thread, launch_t0, t0, t1.
        idle: when the device does nothing.
        names: of the trace.
        longest_ns: the longest kernel that counts.
    """
    found = ops.filter(
        (pl.col("kind") == int(Kind.KERNEL))
        & (pl.col("phase") != int(Phase.OPTIMIZER))
        & (pl.col("t1") - pl.col("t0") <= longest_ns)
    )
    if found.is_empty():
        return None
    length = (found["t1"] - found["t0"]).to_list()
    called = [names[number] for number in found["name"].to_list()]
    lines = program_lines(found.select("thread", t0="launch_t0"), process, names)
    return TinyKernels(
        count=len(length),
        ns=sum(length),
        gap_ns=int(np.minimum(_idle_after(found, idle), longest_ns).sum()),
        names=spent_by(called, length),
        lines=spent_by(lines, length),
    )


def _idle_after(ops: pl.DataFrame, idle: Intervals) -> Int64s:
    """Idle time that begins as each operation ends; of those that end as one, it is the first's."""
    end = np.unique(ops["t1"].to_numpy())
    if not len(idle.t0):
        return np.zeros(len(end), dtype=np.int64)
    at = np.minimum(np.searchsorted(idle.t0, end), len(idle.t0) - 1)
    return np.where(idle.t0[at] == end, idle.t1[at] - idle.t0[at], 0)
