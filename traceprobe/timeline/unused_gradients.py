"""Backward work for gradients that no update uses.

The backward pass gives a parameter its gradient, or adds to the one that it has. An optimizer's
`zero_grad()` takes away those of its own parameters. Hence a parameter whose gradient is added to
in the first pass after an update, where others begin anew, is in no optimizer that was zeroed, or
belongs to another network, whose gradients are zeroed before its own pass: nobody uses the sum.
Gradients that are set to zero instead of taken away are added to as well: of a program that sets
anything to zero between its passes nothing is told.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
import numpy as np
import polars as pl

from traceprobe.model.codes import UNKNOWN, Bools, Int64s, Kind
from traceprobe.model.events import rows_named
from traceprobe.model.kernel_classes import multiplies
from traceprobe.model.numbering import numbered
from traceprobe.model.taxonomy import Phase
from traceprobe.timeline.intervals import count_begun
from traceprobe.timeline.process_timeline import ProcessTimeline

NODE = "autograd::engine::evaluate_function: "
_ACCUMULATES = f"{NODE}torch::autograd::AccumulateGrad"
_CAST = f"{NODE}ToCopyBackward"
_ADDS, _BEGINS = "aten::add_", "aten::detach"
"""What accumulating a gradient calls: one that begins anew is detached, and a hook may add it to
something else then."""
_ZEROES = ("aten::zero_", "aten::_foreach_zero_")
_NEAR = 6
"""Nodes of views and casts between a product and the gradient that it is for, at most."""


class UnusedGradients(msgspec.Struct, frozen=True):
    """Kernels of backward passes that compute such gradients.

    Args:
        ns: sum of their durations. gradients: how many were added to. iterations: in how many
            they were looked for.
    """

    ns: int
    gradients: int
    iterations: int


class _Nodes:
    """Nodes of the backward passes that one thread ran, one after the other.

    Args:
        operators: HOST_OPERATORS of the thread. names: of the trace.

    Attributes:
        t0, t1: when each ran. casts: which ones cast a gradient.
        anew, adds: which ones begin a gradient, or add to one.
    """

    def __init__(self, operators: pl.DataFrame, names: Sequence[str]) -> None:
        def called(*beginnings: str) -> pl.DataFrame:
            return rows_named(operators, names, lambda name: name.startswith(beginnings))

        rows = called(NODE).sort("t0")
        self.t0, self.t1 = rows["t0"].to_numpy(), rows["t1"].to_numpy()
        self.casts = self._holds(called(_CAST))
        accumulates = self._holds(called(_ACCUMULATES))
        self.anew = accumulates & self._holds(called(_BEGINS))
        self.adds = accumulates & ~self.anew & self._holds(called(_ADDS))

    def _holds(self, operators: pl.DataFrame) -> Bools:
        at, inside = self.at(operators["t0"].to_numpy())
        found = np.zeros(len(self.t0), dtype=np.bool_)
        found[at[inside]] = True
        return found

    def at(self, times: Int64s) -> tuple[Int64s, Bools]:
        """The node that began last before each time, and whether it lasts until then."""
        found = count_begun(self.t0, times) - 1
        return found, (found >= 0) & (times <= self.t1[np.maximum(found, 0)])


def unused_gradients(
    ops: pl.DataFrame, process: ProcessTimeline, names: Sequence[str]
) -> UnusedGradients | None:
    """Those of one device; None without any.

    Args:
        ops: of the process and of judged iterations, with columns kind, phase, thread, name,
            launch_t0, t0, t1.
        names: of the trace.
    """
    marker = process.marker
    nodes = rows_named(process.operators, names, lambda name: name.startswith(NODE))
    if marker is None or nodes.is_empty() or ops.is_empty():
        return None
    judged = np.unique(marker.iteration_at(ops["launch_t0"].to_numpy()))
    judged = judged[judged != UNKNOWN]
    threads = nodes["thread"].unique().to_list()
    program = _program(ops, process.operators, names)
    if not rows_named(program, names, lambda name: name in _ZEROES).is_empty():
        return None
    updates = ops.filter(pl.col("phase") == int(Phase.OPTIMIZER))["launch_t0"].to_numpy()
    fresh = np.sort(np.concatenate([updates, marker.starts]))
    ns = count = 0
    for thread in threads:
        of_thread = pl.col("thread") == thread
        mine = _Nodes(process.operators.filter(of_thread), names)
        if not mine.adds.any():
            continue
        kernels = _Kernels(ops.filter(of_thread), mine, names)
        for first, end in _first_passes(mine, program["t0"].to_numpy(), fresh):
            alike = mine.adds[first:end].any() and mine.anew[first:end].any()
            if not alike or marker.iteration_at(mine.t0[[first]])[0] not in judged:
                continue
            ns, count = ns + kernels.wasted(first, end), count + int(mine.adds[first:end].sum())
    return UnusedGradients(ns, count, len(judged)) if ns else None


def _program(ops: pl.DataFrame, operators: pl.DataFrame, names: Sequence[str]) -> pl.DataFrame:
    """Outermost operators of the threads that run forward passes, but for nodes; by time."""
    threads = ops.filter(pl.col("phase") == int(Phase.FORWARD))["thread"].unique()
    rows = operators.filter(pl.col("thread").is_in(threads.implode())).sort("thread", "t0")
    ended = pl.col("t1").cum_max().shift(1).over("thread")
    outermost = rows.filter(ended.is_null() | (pl.col("t0") >= ended))
    nodes = [number for number, name in enumerate(names) if name.startswith(NODE)]
    return outermost.filter(~pl.col("name").is_in(nodes)).sort("t0")


def _first_passes(nodes: _Nodes, program: Int64s, fresh: Int64s) -> Iterator[tuple[int, int]]:
    """First nodes, and ends, of passes that are the first after an update.

    The program waits while a pass runs: what it does parts passes.
    """
    edges = np.flatnonzero(np.diff(count_begun(program, nodes.t0))) + 1
    edges = np.concatenate([[0], edges, [len(nodes.t0)]])
    before = np.iinfo(np.int64).min
    for first, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        if not (nodes.adds | nodes.anew)[first:end].any():
            continue
        last, now = np.searchsorted(fresh, [before, nodes.t0[first]]).tolist()
        if now > last:
            yield first, end
        before = int(nodes.t1[end - 1])


class _Kernels:
    """Kernels that the nodes of one thread launched."""

    def __init__(self, ops: pl.DataFrame, nodes: _Nodes, names: Sequence[str]) -> None:
        ops = ops.filter(pl.col("kind") == int(Kind.KERNEL))
        at, inside = nodes.at(ops["launch_t0"].to_numpy())
        ns = (ops["t1"] - ops["t0"]).to_numpy()
        distinct, of_row = numbered(ops["name"].to_numpy())
        product = np.array([multiplies(names[n]) for n in distinct.tolist()], dtype=np.bool_)
        product = inside & product[of_row] if len(of_row) else inside
        count = len(nodes.t0)
        self.ns = np.bincount(at[inside], ns[inside], count)
        self.products_ns = np.bincount(at[product], ns[product], count)
        self.products = np.bincount(at[product], minlength=count)
        self._nodes = nodes

    def wasted(self, first: int, end: int) -> int:
        """Duration of those of a pass that are for gradients which it adds to.

        Behind the last gradient that begins anew all of them are. Before it, these are what adds,
        the cast of a gradient that is added, and what computes it: of a node with several
        products one half is for what the node was given, the other for its weights.
        """
        nodes = self._nodes
        adds = np.flatnonzero(nodes.adds[first:end]) + first
        last = int(np.flatnonzero(nodes.anew[first:end])[-1]) + first
        behind = self.ns[last + 1 : int(adds[-1]) + 1].sum()
        own = 0.0
        for node in adds[adds < last].tolist():
            own += self.ns[node]
            for before in range(node - 1, max(node - _NEAR, first) - 1, -1):
                if nodes.adds[before] or nodes.anew[before]:
                    break
                if before == node - 1 and nodes.casts[before]:
                    own += self.ns[before]
                if self.products[before]:
                    part = 1 if self.products[before] == 1 else 2
                    own += self.products_ns[before] / part
                    break
        return round(float(behind + own))
