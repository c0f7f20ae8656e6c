"""Backward passes that are recorded themselves: gradients of gradients, `create_graph=True`.

An operator with a sequence number is recorded for a backward pass. In a node of one, such are of a
forward pass that is run again, as `torch.utils.checkpoint` has it; the operators of the node itself
have none, for it runs without gradients, and come last, for they need what was run again. If the
last one has a number, the node's own operators are recorded: it computes gradients, and nothing
twice. So are those of the nodes beside it then; where they are not, it launches its own work
without operators, as a function with Triton kernels does.
"""

from __future__ import annotations

import numpy as np

from traceprobe.ingest.joins import Table
from traceprobe.model.codes import UNKNOWN, Bools


def in_recorded_nodes(operators: Table, node: Bools, backward: Bools) -> Bools:
    """The operators in nodes of autograd that are recorded, told by the last operator of each.

    Args:
        operators: `thread`, `t0`, `t1`, `sequence`. node: which of them are nodes. backward: which
            are rows of the backward pass, nodes among them.
    """
    found = np.zeros(len(node), dtype=np.bool_)
    for thread in np.unique(operators["thread"][node]).tolist():
        mine = operators["thread"] == thread
        nodes, rows = np.flatnonzero(mine & node), np.flatnonzero(mine & ~backward)
        if not len(rows):
            continue
        nodes = nodes[np.argsort(operators["t0"][nodes], kind="stable")]
        # Those that begin at once enclose one another: the longer first.
        rows = rows[np.lexsort((-operators["t1"][rows], operators["t0"][rows]))]
        t0, t1 = operators["t0"][rows], operators["t1"][rows]
        within = np.searchsorted(operators["t0"][nodes], t0, "right") - 1
        inside = (within >= 0) & (t0 < operators["t1"][nodes[np.maximum(within, 0)]])
        # What an operator calls is below autograd, and has no number.
        before = np.concatenate([t0[:1], np.maximum.accumulate(t1)[:-1]])
        last = np.full(len(nodes), UNKNOWN, dtype=np.int64)
        outer = np.flatnonzero(inside & (t0 >= before))
        last[within[outer]] = outer  # of several assignments the last holds
        filled = np.flatnonzero(last != UNKNOWN)
        numbered = operators["sequence"][rows[last[filled]]] != UNKNOWN
        beside = np.zeros(len(filled), dtype=np.bool_)
        beside[1:] |= numbered[:-1]
        beside[:-1] |= numbered[1:]
        recorded = np.zeros(len(nodes), dtype=np.bool_)
        recorded[filled] = numbered & beside
        found[rows[inside & recorded[within]]] = True
    return found
