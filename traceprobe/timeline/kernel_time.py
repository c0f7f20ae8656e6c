"""The time of a device in kernels of each class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from traceprobe.model.codes import Int64s, Kind
from traceprobe.model.kernel_classes import kernel_class
from traceprobe.model.numbering import numbered
from traceprobe.model.taxonomy import KERNEL_CLASSES, Phase
from traceprobe.timeline.intervals import Intervals, union
from traceprobe.timeline.kernel_period import is_update
from traceprobe.timeline.partition import exclusive


def time_by_class(
    ops: pl.DataFrame, names: Sequence[str], edges: Int64s, chosen: Int64s
) -> dict[str, int]:
    """Time of the device in each class of kernels of forward and backward pass, ns.

    Kernels that run at once do not count twice: classes claim time in the order of
    `KERNEL_CLASSES`, as phases do, so that matrices come before what runs beside them. The
    optimizer's kernels and those of the loader are left out: other findings are about them. So are
    those of a graph's replay that are named like an optimizer's.

    Args:
        ops: of one device, sorted by start; columns kind, phase, name, t0, t1.
        edges: edges of its windows, ns. chosen: indices of the windows that count.
    """
    left_out = [int(Phase.OPTIMIZER), int(Phase.INPUT)]
    kernels = ops.select("kind", "phase", "name", "t0", "t1").filter(
        (pl.col("kind") == int(Kind.KERNEL)) & ~pl.col("phase").is_in(left_out)
    )
    replayed = kernels["phase"] == int(Phase.GRAPH)
    if replayed.any():
        update = pl.Series(is_update(kernels["name"].to_numpy(), names), dtype=pl.Boolean)
        kernels = kernels.filter(~(replayed & update))
    name, t0, t1 = (kernels[c].to_numpy() for c in ("name", "t0", "t1"))
    distinct, of_row = numbered(name)
    classes = np.array([KERNEL_CLASSES.index(kernel_class(names[i])) for i in distinct], dtype=int)
    of_kernel = classes[of_row]
    sets: Mapping[str, Intervals] = {
        each: union(t0[of_kernel == number], t1[of_kernel == number])
        for number, each in enumerate(KERNEL_CLASSES)
    }
    return {each: int(ns[chosen].sum()) for each, ns in exclusive(sets, edges).items()}
