"""Samples of hardware counters that PyTorch's profiler takes, of CUPTI's PM sampling.

Rows of phase "C", one for each counter and sample, in a process "GPU 0 Counters" for each GPU. A
sample is the mean from its time to that of the next.
"""

from __future__ import annotations

import re

import numpy as np

from traceprobe.ingest.sample_times import MOST_PERCENT
from traceprobe.ingest.untrusted_values import bounded_text, digits
from traceprobe.model.codes import UNKNOWN, Int64s
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


def plausible_percent(values: np.typing.NDArray[np.float64]) -> Int64s:
    """Whole percent; UNKNOWN of what is none."""
    inside = (values >= 0) & (values <= MOST_PERCENT)
    return np.where(inside, np.rint(np.where(inside, values, 0)), UNKNOWN).astype(np.int64)
