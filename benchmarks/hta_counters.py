"""Counters of kernels that the profiler counted instead of timing them, by HTA and traceprobe."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl

import traceprobe
from traceprobe.model.codes import UNKNOWN

COUNTED = "cupti_profiler/benchmark_result_924719_1679055439_trace.json.gz"
"""A trace that was recorded with `profiler_metrics`."""
THEIRS = """
import json, sys
from hta.analyzers.cupti_counter_analysis import CUDA_SASS_INSTRUCTION_COUNTER_FLOPS as METRICS
from hta.trace_analysis import TraceAnalysis

if __name__ == "__main__":
    (rows,) = TraceAnalysis(trace_files={0: sys.argv[1]}).get_cupti_counter_data_with_operators([0])
    json.dump(
        [
            [row["name"], row["bottom_level_op"], {name: row[name] for name in METRICS}]
            for row in rows.sort_values("ts").to_dict("records")
        ],
        open(sys.argv[2], "w"),
    )
"""


def counters(path: Path, ask: Callable[..., Any]) -> dict[str, int]:
    """Kernels that both list, and of how many of them operator and all counters are the same.

    Args:
        ask: runs a program with HTA, with arguments, and reads what it wrote.
    """
    theirs = ask(THEIRS, path)
    trace = traceprobe.load(path)
    ours = [
        (
            None if rows["operator"][0] == UNKNOWN else trace.names[rows["operator"][0]],
            {trace.names[metric]: value for metric, value in rows.select("metric", "value").rows()},
        )
        for rows in trace.kernel_counters.partition_by("order", maintain_order=True)
    ]
    pairs = list(zip(ours, theirs, strict=True))
    return {
        "kernels": len(pairs),
        "metrics": trace.kernel_counters.select(pl.col("metric").n_unique()).item(),
        "operators_same": sum(one[0] == other[1] for one, other in pairs),
        "values_same": sum(one[1] == other[2] for one, other in pairs),
    }
