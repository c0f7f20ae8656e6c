"""Samples of hardware counters that Nsight Systems takes with `--gpu-metrics-devices`.

`GPU_METRICS(timestamp, typeId, metricId, value)` has a row for each counter and sample, and
`TARGET_INFO_GPU_METRICS(typeId, metricId, metricName)` says what the numbers stand for: which
counters there are depends on the GPU. The lowest byte of `typeId` is the GPU. `timestamp` is where
the sample starts: on an H200 `GR Active` is what kernels take of the time up to the next one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from traceprobe.ingest.joins import Table, keep_rows
from traceprobe.ingest.nsight.tables import MISSING, Database
from traceprobe.ingest.sample_times import MOST_PERCENT, on_clock_of_ops, sample_ends
from traceprobe.ingest.untrusted_values import bounded_text
from traceprobe.model.codes import UNKNOWN
from traceprobe.model.events import GPU_SAMPLES
from traceprobe.model.quality import Quality
from traceprobe.model.taxonomy import GPU_METRICS

_TABLE, _NAMES = "GPU_METRICS", "TARGET_INFO_GPU_METRICS"
_MOST_NUMBERS = 500
"""Pairs of type and metric: a GPU has some 50 metrics."""
_UNIT = re.compile(r"\s*\[throughput %\]$")
_NAMED: Mapping[str, str] = {
    # User Guide, "Available metrics"; the GeForce of a laptop said the second.
    "sms active": "sm_active",
    "sm active": "sm_active",
    "tensor active": "tensor_active",
    "tensor active / fp16 active": "tensor_active",  # TU10x, where both share a pipe
    "dram read bandwidth": "dram_read",
    "dram write bandwidth": "dram_write",
    "dram read throughput": "dram_read",
    "dram write throughput": "dram_write",
    "vram read bandwidth": "dram_read",
    "vram write bandwidth": "dram_write",
    "nvlink bytes received": "nvlink_rx",
    "nvlink bytes transmitted": "nvlink_tx",
    # Exports of GH100: bytes by what they are for. Protocol is in the older counters, too.
    "nvlink rx requests user data": "nvlink_rx",
    "nvlink rx requests protocol data": "nvlink_rx",
    "nvlink rx responses user data": "nvlink_rx",
    "nvlink rx responses protocol data": "nvlink_rx",
    "nvlink tx requests user data": "nvlink_tx",
    "nvlink tx requests protocol data": "nvlink_tx",
    "nvlink tx responses user data": "nvlink_tx",
    "nvlink tx responses protocol data": "nvlink_tx",
    "pcie read throughput": "pcie_rx",  # what the GPU receives, says the User Guide
    "pcie write throughput": "pcie_tx",
    "pcie rx throughput": "pcie_rx",
    "pcie tx throughput": "pcie_tx",
}
"""Names without their unit, in lower case, to ours. Those with other units are other numbers."""

_BUSY = "gr active"
"""Not read: kernels say the same. `benchmarks/gpu_counters.py` checks the samples' time with it."""


def gpu_samples(db: Database, ops: Mapping[str, Any], quality: Quality) -> dict[str, Any]:
    """Columns of GPU_SAMPLES, from the first GPU op to the last; none without the tables.

    None either where the clocks of GPU and host differ: nothing says which of the two the samples
    follow.

    A sample is the mean of its counter until the next.

    Args:
        ops: columns of GPU_OPS.
    """
    none = {c: np.empty(0, dtype=np.int64) for c in GPU_SAMPLES}
    columns = db.columns.get(_TABLE, set())
    metrics = _metrics(db)
    if not on_clock_of_ops(quality):
        return none
    if not metrics or not {"timestamp", "typeId", "metricId", "value"} <= columns:
        return none
    wanted = {"timestamp": MISSING, **dict.fromkeys(("typeId", "metricId", "value"), UNKNOWN)}
    numbers = ", ".join(sorted({str(metric) for _, metric in metrics}))
    low, high = int(ops["t0"].min()), int(ops["t1"].max())
    rows = db.integers(
        _TABLE, wanted, f"metricId IN ({numbers}) AND timestamp BETWEEN {low} AND {high}"
    )
    if rows is None:
        return none
    rows = keep_rows(rows, (rows["value"] >= 0) & (rows["value"] <= MOST_PERCENT))
    series = [
        _series(rows, [pair for pair in metrics if pair[0] & 0xFF == gpu and metrics[pair] == name])
        | {"gpu": gpu, "metric": GPU_METRICS.index(name)}
        for gpu in sorted({kind & 0xFF for kind, _ in metrics})
        for name in GPU_METRICS
    ]
    places = _places(db, ops)
    parts = [
        {**each, "pid": pid, "device": device}
        for each in series
        for (pid, device), gpu in places.items()
        if gpu == each["gpu"] and len(each["t0"])
    ]
    if not parts:
        return none
    return {
        column: np.concatenate([np.broadcast_to(p[column], len(p["t0"])) for p in parts])
        for column in GPU_SAMPLES
    }


def _metrics(db: Database) -> dict[tuple[int, int], str]:
    """(typeId, metricId) to our name, of the metrics that have one."""
    found: dict[tuple[int, int], str] = {}
    texts: set[tuple[int, str]] = set()
    for kind, metric, text in db.rows(_NAMES, ("typeId", "metricId", "metricName")):
        if isinstance(kind, int) and isinstance(metric, int) and len(found) < _MOST_NUMBERS:
            said = _plain(bounded_text(text))
            if said in _NAMED and (kind, said) not in texts:  # one that is there twice counts once
                texts.add((kind, said))
                found[kind, metric] = _NAMED[said]
    return found


def is_known(name: str) -> bool:
    """Whether a name in an export is that of a counter which is read, or which checks the clock."""
    plain = _plain(name)
    return plain in _NAMED or plain == _BUSY


def _plain(name: str) -> str:
    return _UNIT.sub("", name.strip().lower())


def _series(rows: Table, pairs: list[tuple[int, int]]) -> dict[str, Any]:
    """What the samples of one metric of a GPU cover, and their percent: the sum of its parts."""
    of = [(rows["typeId"] == kind) & (rows["metricId"] == metric) for kind, metric in pairs]
    times, sums = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    for mine in of:
        stamp, first = np.unique(rows["timestamp"][mine], return_index=True)
        percent = rows["value"][mine][first].astype(np.int64)
        times, inverse = np.unique(np.concatenate([times, stamp]), return_inverse=True)
        sums = np.bincount(inverse, np.concatenate([sums, percent])).astype(np.int64)
    return {"t0": times, "t1": sample_ends(times), "percent": np.minimum(sums, 100)}


def _places(db: Database, ops: Mapping[str, Any]) -> dict[tuple[int, int], int]:
    """Number of the GPU of each (pid, device), as `TARGET_INFO_GPU` has it."""
    seen = db.rows("TARGET_INFO_CUDA_DEVICE", ("gpuId", "cudaId", "pid"))
    exact = {(pid, ordinal): gpu for gpu, ordinal, pid in seen}
    gpus = db.rows("TARGET_INFO_GPU", ("id", "cuDevice"))
    by_ordinal = {ordinal: gpu for gpu, ordinal in gpus if ordinal is not None}
    if len(by_ordinal) < len(gpus):  # 2021 captures give every GPU ordinal 0
        by_ordinal = {}
    found = {}
    pairs = np.unique(np.stack([ops["pid"], ops["device"]]), axis=1)
    for pid, device in pairs.T.tolist():
        gpu = exact.get((pid, device), by_ordinal.get(device, device))
        if isinstance(gpu, int):
            found[pid, device] = gpu
    return found
