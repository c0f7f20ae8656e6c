"""Samples of hardware counters as rows of the model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from traceprobe.ingest.joins import Table
from traceprobe.ingest.sample_times import on_clock_of_ops, sample_ends
from traceprobe.model.codes import Int64s
from traceprobe.model.events import GPU_SAMPLES
from traceprobe.model.quality import Quality
from traceprobe.model.taxonomy import GPU_METRICS


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
