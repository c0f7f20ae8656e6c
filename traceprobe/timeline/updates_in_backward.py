"""Updates that are made inside the backward pass, by hooks of the parameters.

Each of them updates what has its gradient by then; none ends a step. The end of the pass does.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import polars as pl

from traceprobe.model.codes import BACKWARD_NODES, UNKNOWN, Bools, Int64s, Role
from traceprobe.model.events import rows_named
from traceprobe.timeline.intervals import EMPTY, Intervals, union

_SPAN = ("thread", "t0", "t1")


class UpdatingPasses(msgspec.Struct, frozen=True):
    """Backward passes that update parameters.

    Args:
        ends: ascending host times at which they end.
        thread: the one that runs the forward passes between them, which is the step thread.
    """

    ends: Int64s
    thread: int


class BackwardNodes:
    """When each thread of a process ran nodes of backward passes.

    Args:
        operators: HOST_OPERATORS of the process.
        ops: GPU_OPS of the process; of a run on a CPU, the outermost operators.
        names: of the trace.
    """

    def __init__(self, operators: pl.DataFrame, ops: pl.DataFrame, names: Sequence[str]) -> None:
        self._operators, self._ops = operators, ops
        nodes = pl.concat(
            rows_named(rows, names, lambda name: name.startswith(BACKWARD_NODES)).select(*_SPAN)
            for rows in (operators, ops)
        )
        thread, t0, t1 = (nodes[c].to_numpy() for c in _SPAN)
        self._of_thread: dict[int, Intervals] = {
            one: union(t0[thread == one], t1[thread == one]) for one in np.unique(thread).tolist()
        }

    def cover(self, thread: Int64s, time: Int64s) -> Bools:
        """Which of these instants lie inside a node of their thread."""
        inside = np.zeros(len(time), dtype=np.bool_)
        for one, nodes in self._of_thread.items():
            rows = np.flatnonzero(thread == one)
            if len(nodes.t0):
                last = np.searchsorted(nodes.t0, time[rows], "right") - 1
                inside[rows] = (last >= 0) & (nodes.t1[last] > time[rows])
        return inside

    def updating_passes(self, thread: Int64s, updates: Int64s) -> UpdatingPasses | None:
        """The passes that updates were made in; None where no forward pass was recorded.

        A pass goes on until operators that autograd notes for a backward pass run outside of nodes
        again, on the thread that has most of them: a step has a forward pass.

        Args:
            thread, updates: of each update inside a node its thread and its begin, ascending.
        """
        noted = pl.concat(
            [
                self._operators.filter(pl.col("sequence") != UNKNOWN).select("thread", "t0"),
                self._ops.filter(pl.col("role") == int(Role.FORWARD)).select(
                    "thread", t0="launch_t0"
                ),
            ]
        )
        by, begin = (noted[c].to_numpy() for c in ("thread", "t0"))
        outside = ~self.cover(by, begin)
        threads, counts = np.unique(by[outside], return_counts=True)
        if not len(threads):
            return None
        step_thread = int(threads[np.argmax(counts)])
        forward = np.sort(begin[outside & (by == step_thread)])
        next_forward = np.append(forward, np.iinfo(np.int64).max)[np.searchsorted(forward, updates)]
        last = np.flatnonzero(np.diff(next_forward, append=np.int64(-1)))
        ends = [
            self._last_end(int(one), int(time))
            for one, time in zip(thread[last], next_forward[last], strict=True)
        ]
        return UpdatingPasses(np.unique(np.array(ends, dtype=np.int64)), step_thread)

    def _last_end(self, thread: int, before: int) -> int:
        """End of the last node of a thread that began before a time."""
        nodes = self._of_thread.get(thread, EMPTY)
        return int(nodes.t1[np.searchsorted(nodes.t0, before) - 1])
