"""Samples of hardware counters that PyTorch's profiler takes, of CUPTI's PM sampling.

Rows of phase "C", one for each counter and sample, in a process "GPU 0 Counters" for each GPU. A
sample is the mean from its time to that of the next.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from traceprobe.ingest.joins import Table
from traceprobe.ingest.sample_times import MOST_PERCENT, on_clock_of_ops, sample_ends
from traceprobe.ingest.untrusted_values import bounded_text, digits
from traceprobe.model.events import GPU_SAMPLES, UNKNOWN, Int64s, Quality
from traceprobe.model.taxonomy import GPU_METRICS

CATEGORY = "hardware_counters"
_PROCESS = re.compile(r"GPU (\d{1,9}) Counters")
_OF_PEAK = ".pct_of_peak_sustained_elapsed"
"""The unit of those that are a part of what is possible; others are other numbers."""
_NAMED = tuple(
    (re.compile(pattern), metric)
    for pattern, metric in (
        (r"sm__cycles_active\.", "sm_active"),
        (r"sm__(inst_executed_)?pipe_tensor_", "tensor_active"),
        (r"dramc?__(bytes_read|read_throughput)\.", "dram_read"),
        (r"dramc?__(bytes_write|write_throughput)\.", "dram_write"),
        (r"nvlrx__bytes\.", "nvlink_rx"),
        (r"nvltx__bytes\.", "nvlink_tx"),
        # The GPU reads what it receives.
        (r"pcie__read_(bytes|throughput)\.", "pcie_rx"),
        (r"pcie__write_(bytes|throughput)\.", "pcie_tx"),
    )
)
"""How the names of CUPTI's metrics begin, to ours."""


def metric_number(name: object) -> int:
    """Index into GPU_METRICS of a counter; UNKNOWN of one that is not among them."""
    text = bounded_text(name)
    if not text.endswith(_OF_PEAK):
        return UNKNOWN
    return next((GPU_METRICS.index(to) for of, to in _NAMED if of.match(text)), UNKNOWN)


def gpu_number(process: object) -> int:
    """The GPU that the rows of a process are of; UNKNOWN of others."""
    of = _PROCESS.fullmatch(bounded_text(process))
    found = None if of is None else digits(of[1])
    return UNKNOWN if found is None else found


def gpu_samples(rows: Table | None, ops: Mapping[str, Any], quality: Quality) -> dict[str, Any]:
    """Columns of GPU_SAMPLES, of what lies between the first GPU op and the last.

    None where the clocks of GPU and host differ: nothing says which of the two the samples follow.
    Of several counters that mean the same the first counts.

    Args:
        rows: t0, gpu, metric, counter, percent. ops: columns of GPU_OPS.
    """
    none = {c: np.empty(0, dtype=np.int64) for c in GPU_SAMPLES}
    if rows is None or not on_clock_of_ops(quality):
        return none
    low, high = ops["t0"].min(), ops["t1"].max()
    parts = []
    for pid, device in np.unique(np.stack([ops["pid"], ops["device"]]), axis=1).T.tolist():
        for metric in range(len(GPU_METRICS)):
            mine = (rows["gpu"] == device) & (rows["metric"] == metric)
            if mine.any():
                mine &= rows["counter"] == rows["counter"][mine].min()
                part = {"pid": pid, "device": device, "metric": metric, **_series(rows, mine)}
                inside = (part["t1"] > low) & (part["t0"] < high)
                parts.append({c: np.broadcast_to(v, len(inside))[inside] for c, v in part.items()})
    return {c: np.concatenate([p[c] for p in parts]) for c in GPU_SAMPLES} if parts else none


def _series(rows: Table, mine: np.typing.NDArray[np.bool_]) -> dict[str, Int64s]:
    starts, first = np.unique(rows["t0"][mine], return_index=True)
    percent = np.minimum(rows["percent"][mine][first], 100)
    return {"t0": starts, "t1": sample_ends(starts), "percent": percent}


def plausible_percent(values: np.typing.NDArray[np.float64]) -> Int64s:
    """Whole percent; UNKNOWN of what is none."""
    inside = (values >= 0) & (values <= MOST_PERCENT)
    return np.where(inside, np.rint(np.where(inside, values, 0)), UNKNOWN).astype(np.int64)
