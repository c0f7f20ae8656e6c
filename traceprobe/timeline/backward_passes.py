"""Nodes of backward passes: when autograd's thread ran which, and what of the GPU each launched."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from traceprobe.model.codes import Bools, Int64s, Kind
from traceprobe.model.events import rows_named
from traceprobe.model.taxonomy import Phase
from traceprobe.timeline.intervals import count_begun

Floats = npt.NDArray[np.float64]
NODE = "autograd::engine::evaluate_function: "
"""How the profiler begins the name of what the engine runs for a node."""


class Nodes:
    """Nodes that one thread ran, one after the other.

    Args:
        operators: HOST_OPERATORS of the thread. names: of the trace.

    Attributes:
        rows: those of the nodes, by time. t0, t1: when each ran.
    """

    def __init__(self, operators: pl.DataFrame, names: Sequence[str]) -> None:
        self._operators, self._names = operators, names
        self.rows = self._called(NODE).sort("t0")
        self.t0, self.t1 = self.rows["t0"].to_numpy(), self.rows["t1"].to_numpy()

    def holding(self, *beginnings: str) -> Bools:
        """Which of them are, or call, operators whose names begin so."""
        return self.around(self._called(*beginnings)["t0"].to_numpy())

    def around(self, times: Int64s) -> Bools:
        """Which of them run at any of these times."""
        at, inside = self.at(times)
        found = np.zeros(len(self.t0), dtype=np.bool_)
        found[at[inside]] = True
        return found

    def at(self, times: Int64s) -> tuple[Int64s, Bools]:
        """The node that began last before each time, and whether it lasts until then."""
        found = count_begun(self.t0, times) - 1
        return found, (found >= 0) & (times <= self.t1[np.maximum(found, 0)])

    def passes(self, program: pl.DataFrame) -> Iterator[tuple[int, int]]:
        """First node and end of each pass.

        The program waits while a pass runs: what it does parts passes.

        Args:
            program: as `program_operators` gives it.
        """
        inner = np.flatnonzero(np.diff(count_begun(program["t0"].to_numpy(), self.t0))) + 1
        yield from pairwise([0, *inner.tolist(), len(self.t0)])

    def _called(self, *beginnings: str) -> pl.DataFrame:
        return rows_named(self._operators, self._names, lambda name: name.startswith(beginnings))


def program_operators(
    ops: pl.DataFrame, operators: pl.DataFrame, names: Sequence[str]
) -> pl.DataFrame:
    """Outermost operators of the threads that run forward passes, but for nodes; by time."""
    threads = ops.filter(pl.col("phase") == int(Phase.FORWARD))["thread"].unique()
    rows = operators.filter(pl.col("thread").is_in(threads.implode())).sort("thread", "t0")
    ended = pl.col("t1").cum_max().shift(1).over("thread")
    outermost = rows.filter(ended.is_null() | (pl.col("t0") >= ended))
    return rows_named(outermost, names, lambda name: not name.startswith(NODE)).sort("t0")


class Launched(NamedTuple):
    """Kernels of each node: the sum of their durations, ns, and how many."""

    ns: Floats
    kernels: Floats


def launched(
    ops: pl.DataFrame, nodes: Nodes, names: Sequence[str], wanted: Callable[[str], bool]
) -> Launched:
    """Those with wanted names.

    Args:
        ops: of the thread, with columns kind, name, launch_t0, t0, t1.
    """
    kernels = rows_named(ops.filter(pl.col("kind") == int(Kind.KERNEL)), names, wanted)
    at, inside = nodes.at(kernels["launch_t0"].to_numpy())
    ns = (kernels["t1"] - kernels["t0"]).to_numpy()[inside]
    each = (np.bincount(at[inside], weights, len(nodes.t0)) for weights in (ns, None))
    return Launched(*(column.astype(np.float64) for column in each))
