"""Where the host is held up by the driver, a compiler or Python, which no profiler slows down.

Launching takes longer beside a profiler. Taking memory from the driver, giving it back, compiling
and collecting garbage do not.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from traceprobe.model.events import rows_named
from traceprobe.model.garbage import is_collecting
from traceprobe.timeline.compiled_code import compilations
from traceprobe.timeline.device_allocations import find_allocations
from traceprobe.timeline.intervals import Intervals, union
from traceprobe.timeline.process_timeline import ProcessTimeline


def memory_calls(process: ProcessTimeline, names: Sequence[str]) -> pl.DataFrame:
    """As `find_allocations`, of the threads that train."""
    return find_allocations(process.calls, process.operators, process.training_threads, names)


def garbage_collections(process: ProcessTimeline, names: Sequence[str]) -> pl.DataFrame:
    """Collections of garbage that stop the threads that train: `thread`, `t0`, `t1`.

    Those of another thread do where none of these begins an operator or a call meanwhile.
    """
    rows = rows_named(process.ranges, names, is_collecting).select("thread", "t0", "t1")
    threads = sorted(process.training_threads)
    own = rows["thread"].is_in(threads)
    if own.all():
        return rows
    begun = pl.concat(
        each.filter(pl.col("thread").is_in(threads)).select("t0")
        for each in (process.calls, process.operators)
    )
    times = np.sort(begun["t0"].to_numpy())
    t0, t1 = rows["t0"].to_numpy(), rows["t1"].to_numpy()
    stopped = np.searchsorted(times, t0, "right") == np.searchsorted(times, t1)
    return rows.filter(own | pl.Series(stopped, dtype=pl.Boolean))


def stalls(process: ProcessTimeline, names: Sequence[str]) -> Intervals:
    """When the host takes or gives back device memory, compiles or collects garbage."""
    found = (
        find(process, names).select("t0", "t1")
        for find in (memory_calls, compilations, garbage_collections)
    )
    rows = pl.concat(found)
    return union(rows["t0"].to_numpy(), rows["t1"].to_numpy())
