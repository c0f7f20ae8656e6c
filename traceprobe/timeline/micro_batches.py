"""How many micro-batches an update adds up the gradients of."""

from __future__ import annotations

import numpy as np
import polars as pl

from traceprobe.model.codes import Kind
from traceprobe.model.taxonomy import Phase

_FORWARD, _BACKWARD = int(Phase.FORWARD), int(Phase.BACKWARD)
_ALIKE = 0.05
"""By what part of the most forward kernels of a pass those of the others may be fewer."""


def micro_batches(ops: pl.DataFrame) -> int | None:
    """Passes of an iteration whose forward halves launch equally much; None with one.

    A pass begins with the first forward kernel after a backward one. Passes of several networks
    launch differently, and are no micro-batches of one. Of backward passes the first one differs,
    which has no gradients to add to.

    Args:
        ops: of judged iterations, with columns iteration, kind, phase, launch_t0, t0.
    """
    counts = []
    kernels = ops.filter(
        (pl.col("kind") == int(Kind.KERNEL)) & pl.col("phase").is_in([_FORWARD, _BACKWARD])
    ).sort("iteration", "launch_t0", "t0")
    for _, rows in kernels.group_by("iteration", maintain_order=True):
        forward = rows["phase"].to_numpy() == _FORWARD
        begins = np.flatnonzero(forward & ~np.append(False, forward[:-1]))
        passes = np.add.reduceat(forward, begins) if len(begins) else begins
        if len(passes) < 2 or passes.min() < (1 - _ALIKE) * passes.max():
            return None
        counts.append(len(passes))
    return counts[0] if counts and min(counts) == max(counts) else None
