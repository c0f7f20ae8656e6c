"""Forward and backward operators of autograd's NVTX, joined by their sequence numbers.

Autograd counts, on each thread, the nodes that it will run backward; an operator notes the count as
it begins, a node of the backward pass the one with which it was made. So the node was made in the
last operator of its thread whose number is not above its own.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from traceprobe.ingest.joins import per_name
from traceprobe.model.codes import UNKNOWN, Bools, Int64s
from traceprobe.model.events import HOST_WORK

NVTX_OPERATORS = (*HOST_WORK, "name", "sequence")
"""Columns of operators as they are read."""
_BACKWARD = re.compile(
    r"^(?:autograd::engine::|torch::autograd::(?:CppNode|AccumulateGrad|GraphRoot|CopySlices)\b)"
    r"|Backward\d*$"
)
_MOST_THREADS = 64
"""Of a process, with forward operators: programs have a few, and each is looked at on its own."""


def with_forward_operators(operators: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Columns of HOST_OPERATORS, whose sequence numbers count the rows: threads share none.

    Args:
        operators: `NVTX_OPERATORS`. names: of the trace.
    """
    count = len(operators["sequence"])
    noted = operators["sequence"] != UNKNOWN
    backward = per_name(operators["name"], names, lambda name: bool(_BACKWARD.search(name))) == 1
    sequence = np.where(noted & ~backward, np.arange(count), UNKNOWN)
    forward_thread = np.full(count, UNKNOWN, dtype=np.int64)
    for pid in np.unique(operators["pid"]).tolist():
        here = (operators["pid"] == pid) & noted
        nodes = np.flatnonzero(here & backward)
        made = _made_in(operators, here & ~backward, nodes)
        sequence[nodes] = made
        thread = operators["thread"][np.maximum(made, 0)].astype(np.int64)
        # Autograd's numbers of threads are above 0.
        forward_thread[nodes] = np.where(made == UNKNOWN, UNKNOWN, thread + 1)
    return {
        **operators,
        "sequence": sequence,
        "forward_thread": forward_thread,
        "operands": np.full(count, UNKNOWN, dtype=np.int64),
    }


def _made_in(operators: dict[str, Any], forward: Bools, nodes: Int64s) -> Int64s:
    """Row of the forward operator of each node of the backward pass, UNKNOWN where it is not there.

    Threads count on their own: of several operators that fit, the node is of the last one.
    """
    made = np.full(len(nodes), UNKNOWN, dtype=np.int64)
    latest = np.full(len(nodes), np.iinfo(np.int64).min)
    asked, begin = operators["sequence"][nodes], operators["t0"][nodes]
    threads, counts = np.unique(operators["thread"][forward], return_counts=True)
    for thread in threads[np.argsort(-counts, kind="stable")[:_MOST_THREADS]].tolist():
        rows = np.flatnonzero(forward & (operators["thread"] == thread))
        rows = rows[np.lexsort((operators["t0"][rows], operators["sequence"][rows]))]
        numbers, t0 = operators["sequence"][rows], operators["t0"][rows]
        last = np.searchsorted(numbers, asked, "right") - 1
        at = np.maximum(last, 0)
        # Beyond the last number of a thread nothing says that the node is of that thread.
        fits = (last >= 0) & ((numbers[at] == asked) | (at + 1 < len(rows)))
        fits &= (t0[at] < begin) & (t0[at] > latest)
        latest[fits], made[fits] = t0[at][fits], rows[at][fits]
    return made
