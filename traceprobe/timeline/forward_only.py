"""Forward work that no backward pass goes through, by autograd's numbers.

While gradients are recorded, PyTorch notes with each operator the number of the node that it adds
to the graph, or, if it adds none, of the next one. The backward pass notes that number with what it
runs for the node. A number that no backward operator has is of a node that was made for nothing:
nobody asked for gradients by that way. Work under `no_grad()` has no numbers.

Threads count on their own. A number that another thread's backward pass has as well does not tell,
so work of several threads may be missed, and none is taken for what it is not. Neither is that of
the last iteration: its backward pass may be cut off, or still be due, as in a pipeline.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import polars as pl

from traceprobe.model.codes import UNKNOWN, Kind
from traceprobe.model.taxonomy import Phase
from traceprobe.timeline.compiled_code import program_lines
from traceprobe.timeline.operators import launching_rows
from traceprobe.timeline.process_timeline import ProcessTimeline
from traceprobe.timeline.spent import spent_by


class ForwardOnly(msgspec.Struct, frozen=True):
    """Kernels of the forward pass that no backward pass goes through, of some operations.

    Args:
        ns: sum of their durations. kernels: how many. iterations: in how many they were looked for.
        operators, lines: which ones launched them and from where, ns, the most first; lines where
            the trace has them.
    """

    ns: int
    kernels: int
    iterations: int
    operators: dict[str, int]
    lines: dict[str, int]


def forward_only(
    ops: pl.DataFrame, process: ProcessTimeline, names: Sequence[str]
) -> ForwardOnly | None:
    """The same among operations of one device; None without any, or without a backward operator.

    Args:
        ops: of the process and of judged iterations, with columns kind, phase, thread,
            launch_t0, t0, t1.
        names: of the trace.
    """
    operators = process.operators.filter(pl.col("sequence") != UNKNOWN)
    backward = operators.filter(pl.col("forward_thread") > 0)
    if backward.is_empty() or process.marker is None:
        return None
    iteration = process.marker.iteration_at(ops["launch_t0"].to_numpy())
    looked_at = (iteration >= 0) & (iteration < len(process.marker.starts) - 1)
    ops, iteration = ops.filter(looked_at), iteration[looked_at]
    forward = operators.filter(pl.col("forward_thread") <= 0)
    known = forward["sequence"].is_in(backward["sequence"].unique().implode())
    alone = (~known).to_numpy() & (forward["sequence"] < backward["sequence"].max()).to_numpy()
    if not alone.any() or ops.is_empty():
        return None
    kernels = ops.filter(
        (pl.col("kind") == int(Kind.KERNEL)) & (pl.col("phase") == int(Phase.FORWARD))
    )
    at = launching_rows(kernels, forward)
    mine = (at != UNKNOWN) & alone[np.maximum(at, 0)]
    if not mine.any():
        return None
    found, row = kernels.filter(mine), at[mine]
    length = (found["t1"] - found["t0"]).to_list()
    called = [names[i] for i in forward["name"].to_numpy()[row].tolist()]
    lines = program_lines(found.select("thread", t0="launch_t0"), process, names)
    return ForwardOnly(
        ns=sum(length),
        kernels=len(length),
        iterations=len(np.unique(iteration)),
        operators=spent_by(called, length),
        lines=spent_by(lines, length),
    )
