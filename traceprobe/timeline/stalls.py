"""Where the host is held up by the driver or by a compiler, which no profiler slows down.

Launching takes longer beside a profiler. Taking memory from the driver, giving it back, and
compiling do not.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from traceprobe.timeline.compiled_code import compilations
from traceprobe.timeline.device_allocations import find_allocations
from traceprobe.timeline.intervals import Intervals, union
from traceprobe.timeline.process_timeline import ProcessTimeline


def memory_calls(process: ProcessTimeline, names: Sequence[str]) -> pl.DataFrame:
    """As `find_allocations`, of the threads that train."""
    threads = {process.host.step_thread, *process.ops["thread"].unique().to_list()}
    return find_allocations(process.calls, process.operators, threads, names)


def stalls(process: ProcessTimeline, names: Sequence[str]) -> Intervals:
    """When the host takes or gives back device memory, or compiles."""
    rows = pl.concat(
        found.select("t0", "t1")
        for found in (memory_calls(process, names), compilations(process, names))
    )
    return union(rows["t0"].to_numpy(), rows["t1"].to_numpy())
