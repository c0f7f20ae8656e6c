"""Cutting a few steps out of a trace: a small file that its own viewers still open.

What is kept is what the analysis would read, chosen by allow-lists: host rows by their start, GPU
work by its launch. Environments, command lines, folders and user names stay behind.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

from traceprobe.errors import UsageError
from traceprobe.ingest.read_trace import read_trace
from traceprobe.model.codes import UNKNOWN
from traceprobe.model.events import Trace, rows_of
from traceprobe.slicing.window import SlicePlan, Window
from traceprobe.system.atomic_write import compress, write_beside
from traceprobe.timeline.iteration_groups import find_iterations
from traceprobe.version import __version__


def slice_trace(
    source: Path,
    target: Path,
    steps: tuple[int, int],
    step: str | None = None,
    *,
    replace: bool = False,
) -> None:
    """Write some iterations of a trace to a file, gzipped if its name ends in .gz.

    Kept are those with first <= index < last. The last of them has no end in the slice; ask for
    one more than you need.

    Args:
        step: regular expression of the ranges that are steps; None looks for them.
        replace: whether a file of the target's name is overwritten.

    Raises:
        UsageError: there is no step marker, too few steps, or the target cannot be written.
    """
    trace = read_trace(source)
    plan = SlicePlan(trace, _windows(trace, steps, step), _note(trace, steps))
    with write_beside(target, replace=replace) as temporary:
        if trace.origin.format == "nsys":
            from traceprobe.slicing.nsight import write_nsight_slice as write
        else:
            from traceprobe.slicing.kineto import write_kineto_slice as write
        write(source, temporary, plan)
        if target.suffix == ".gz":
            compress(temporary)


def _windows(trace: Trace, steps: tuple[int, int], step: str | None) -> dict[int, Window]:
    windows = {}
    for pid in sorted({d.pid for d in trace.devices}):
        of_process = pl.col("pid") == pid
        ops, ranges = trace.gpu_ops.filter(of_process), trace.host_ranges.filter(of_process)
        calls = trace.host_calls.filter(of_process)
        operators = rows_of(trace.host_operators, "pid", pid)
        marker = find_iterations(ranges, operators, ops, calls, trace.names, step)
        if marker is None:
            raise UsageError(
                f"{trace.origin.name}: process {pid} has no step marker; name the steps with --step"
            )
        first, last = steps
        if not 0 <= first < last or first >= len(marker.starts):
            raise UsageError(
                f"--steps {first}:{last}: process {pid} has steps 0 to {len(marker.starts) - 1}"
            )
        low = int(marker.starts[first])
        high = int(marker.ends[min(last, len(marker.ends)) - 1])
        launch = ops["launch_t0"].to_numpy()
        inside = (ops["thread"].to_numpy() != UNKNOWN) & (launch >= low) & (launch < high)
        work = ops.filter(inside)
        if not len(work):
            raise UsageError(f"--steps {first}:{last}: process {pid} launched no GPU work in them")
        gpu_low, gpu_high = int(work["t0"].to_numpy().min()), int(work["t1"].to_numpy().max())
        windows[pid] = Window(low, high, gpu_low, gpu_high)
    return windows


def _note(trace: Trace, steps: tuple[int, int]) -> dict[str, object]:
    return {
        "sliced_by": f"traceprobe {__version__}",
        "source_sha256": trace.origin.sha256,
        "steps": f"{steps[0]}:{steps[1]}",
    }
