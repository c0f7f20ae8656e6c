"""The operation of a collective by PyTorch's range around its launch, as `nccl:all_to_all`.

NCCL's kernels have names of their own: up to version 2.18 one kernel runs several operations, and
an all-to-all is made of sends and receives. PyTorch notes the operation with the kernel from 2.2
on; before that, and for what is launched in groups, its range is all that tells.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from traceprobe.ingest.collective_metadata import collective_operation
from traceprobe.ingest.joins import per_name
from traceprobe.model.codes import UNKNOWN, Int64s, Kind, Operation


def operations_by_ranges(
    gpu: Mapping[str, Any], ranges: Mapping[str, Any], names: Sequence[str]
) -> Int64s:
    """Operation of each GPU op: that of the range around its launch where nothing better is known.

    Args:
        gpu: columns of GPU ops with their `operation` so far. ranges: columns of host ranges.
    """
    found: Int64s = np.asarray(gpu["operation"], dtype=np.int64).copy()
    said = per_name(ranges["name"], names, _operation).astype(np.int64)
    marks = said != int(Operation.OTHER)
    open_rows = (gpu["kind"] == int(Kind.COMM)) & (gpu["group"] == UNKNOWN)
    for thread in np.unique(ranges["thread"][marks]).tolist():
        own = np.flatnonzero(marks & (ranges["thread"] == thread))
        own = own[np.argsort(ranges["t0"][own], kind="stable")]
        rows = np.flatnonzero(open_rows & (gpu["thread"] == thread))
        at = np.searchsorted(ranges["t0"][own], gpu["launch_t0"][rows], "right") - 1
        around = own[np.maximum(at, 0)]
        inside = (at >= 0) & (gpu["launch_t0"][rows] < ranges["t1"][around])
        found[rows[inside]] = said[around[inside]]
    return found


def _operation(name: str) -> Operation:
    return collective_operation(name) if name.startswith("nccl:") else Operation.OTHER
