"""What changed between two traces, by operator and by kernel, as HTA and traceprobe tell it."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import traceprobe
from traceprobe.compare.compare import compare
from traceprobe.compare.run import observe
from traceprobe.model.events import Trace

CHANGED = ("trace_diff/control/control.json.gz", "trace_diff/test/test.json.gz")
"""Two traces of one program, before and after a change."""
TOLERANCE = 0.001
DIFF = """
import json, sys
from hta.common.trace import Trace
from hta.trace_diff import DeviceType, LabeledTrace, TraceDiff

def labeled(name, path):
    return LabeledTrace(label=name, t=Trace(trace_files={0: path}))

if __name__ == "__main__":
    control, test = labeled("control", sys.argv[1]), labeled("test", sys.argv[2])
    steps = [int(n) for n in sys.argv[3].split(",")]
    found = {}
    for device in (DeviceType.CPU, DeviceType.GPU):
        rows = TraceDiff.compare_traces(
            control, test, control_iteration=steps, test_iteration=steps, device_type=device
        )
        columns = [f"{run}_{each}" for run in ("control", "test")
                   for each in ("counts", "total_duration")]
        found[device.name] = {
            name: [float(value) for value in values]
            for name, *values in rows[columns].itertuples()
        }
    json.dump(found, open(sys.argv[4], "w"))
"""


def difference(paths: list[Path], ask: Callable[..., Any]) -> dict[str, Any]:
    """Calls and durations by operator and by kernel in two traces, as both tell them.

    Each is told by how many names have the same numbers as in HTA, of both traces: as `compare` has
    them, and where a call or a kernel belongs to the `ProfilerStep` range that it or its launch
    begins in, as in HTA.

    Args:
        paths: of the traces. ask: runs a program with HTA, with arguments, and reads what it wrote.
    """
    traces = [traceprobe.load(path) for path in paths]
    reports = [traceprobe.analyze(trace) for trace in traces]
    labels = [[i.label for i in report.ranks[0].iterations if i.used] for report in reports]
    if labels[0] != labels[1]:
        raise SystemExit(f"the traces have other steps: {labels}")
    steps = len(labels[0])
    numbers = ",".join(label.rpartition("#")[2] for label in labels[0])
    theirs = ask(DIFF, *paths, numbers)
    operators = {
        each.name: [
            each.base_count * steps,
            each.base_host_ms * steps * 1e3,
            each.new_count * steps,
            each.new_host_ms * steps * 1e3,
        ]
        for each in compare(*map(observe, reports)).operators or ()
    }
    launched = [trace.gpu_ops.filter("linked") for trace in traces]
    by_step = {
        "CPU": [_by_name(t, t.host_operators, "t0", labels[0]) for t in traces],
        "GPU": [
            _by_name(t, o, "launch_t0", labels[0]) for t, o in zip(traces, launched, strict=True)
        ],
    }
    listed: list[bool] = []
    for place, report in enumerate(reports):
        kernels = report.frame("kernels").group_by("name").agg(pl.col("count", "total_ns").sum())
        for name, count, ns in kernels.rows():
            whole = next(n for n in theirs["GPU"] if n.startswith(name.removesuffix("…")))
            said = theirs["GPU"][whole][2 * place : 2 * place + 2]
            listed.append(_alike([count, ns / 1e3], said))
    return {
        "steps": steps,
        "operators": len(operators),
        "operators_same": sum(_alike(v, theirs["CPU"].get(n)) for n, v in operators.items()),
        "operators_different": sorted(
            name
            for name, values in operators.items()
            if not _alike(values, theirs["CPU"].get(name))
        ),
        "calls_by_range": _same_by_range(operators, by_step["CPU"], theirs["CPU"]),
        "kernels_listed": len(listed),
        "kernels_listed_same": sum(listed),
        "kernels": len(theirs["GPU"]),
        "kernels_by_range": _same_by_range(theirs["GPU"], by_step["GPU"], theirs["GPU"]),
    }


def _by_name(
    trace: Trace, rows: pl.DataFrame, column: str, labels: list[str]
) -> dict[str, list[float]]:
    """Number and durations in µs by name, of what begins in the ranges of some steps."""
    steps = [n for n, name in enumerate(trace.names) if name in labels]
    ranges = trace.host_ranges.filter(pl.col("name").is_in(steps)).sort("t0")
    start, end = ranges["t0"].to_numpy(), ranges["t1"].to_numpy()
    begin = rows[column].to_numpy()
    at = np.searchsorted(start, begin, "right") - 1
    inside = (at >= 0) & (begin < end[np.maximum(at, 0)])
    sums = (
        rows.filter(inside).group_by("name").agg(pl.len(), ns=(pl.col("t1") - pl.col("t0")).sum())
    )
    return {trace.names[name]: [float(count), ns / 1e3] for name, count, ns in sums.rows()}


def _same_by_range(names: Any, runs: list[dict[str, list[float]]], theirs: Any) -> int:
    none = [0.0, 0.0]
    return sum(
        _alike([*runs[0].get(name, none), *runs[1].get(name, none)], theirs.get(name))
        for name in names
    )


def _alike(mine: list[float], theirs: list[float] | None) -> bool:
    return theirs is not None and all(
        math.isclose(a, b, rel_tol=TOLERANCE, abs_tol=1e-9)
        for a, b in zip(mine, theirs, strict=True)
    )
