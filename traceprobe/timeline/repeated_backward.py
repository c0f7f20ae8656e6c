"""Backward work that is done again, for another loss of the same forward pass.

Autograd notes with each node of a backward pass the number of its forward operator. The same node
runs twice where a second backward pass goes through a graph that the first one retained; one pass
for the sum of both losses would have run it once. Where a pass itself is recorded
(`create_graph=True`), as for a penalty on gradients, it has to go through the graph again.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import polars as pl

from traceprobe.model.codes import UNKNOWN
from traceprobe.model.events import rows_named
from traceprobe.timeline.backward_passes import NODE, Nodes, launched
from traceprobe.timeline.process_timeline import ProcessTimeline


class RepeatedBackward(msgspec.Struct, frozen=True):
    """Kernels of nodes that had run before.

    Args:
        ns: sum of their durations. kernels: how many. iterations: in how many they were looked for.
    """

    ns: int
    kernels: int
    iterations: int


def repeated_backward(
    ops: pl.DataFrame, process: ProcessTimeline, names: Sequence[str]
) -> RepeatedBackward | None:
    """Those of one device; None without any.

    Args:
        ops: of the process and of judged iterations, with columns kind, thread, name, launch_t0,
            t0, t1.
        names: of the trace.
    """
    noted = process.operators.filter(pl.col("sequence") != UNKNOWN)
    nodes = rows_named(noted, names, lambda name: name.startswith(NODE))
    if process.marker is None or nodes.is_empty() or ops.is_empty():
        return None
    ns = kernels = 0.0
    for thread in nodes["thread"].unique().to_list():
        of_thread = pl.col("thread") == thread
        mine = Nodes(noted.filter(of_thread), names)
        again = mine.rows.select(
            pl.int_range(pl.len()).over("forward_thread", "sequence", "name") > 0
        ).to_series()
        forward = noted.filter(of_thread & (pl.col("forward_thread") <= 0))
        if not again.any() or mine.around(forward["t0"].to_numpy()).any():
            continue
        found = launched(ops.filter(of_thread), mine, names, lambda _: True)
        ns += float(found.ns[again.to_numpy()].sum())
        kernels += float(found.kernels[again.to_numpy()].sum())
    if not kernels:
        return None
    judged = np.unique(process.marker.iteration_at(ops["launch_t0"].to_numpy()))
    return RepeatedBackward(round(ns), round(kernels), int((judged != UNKNOWN).sum()))
