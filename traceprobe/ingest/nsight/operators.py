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
from traceprobe.model.events import HOST_WORK, UNKNOWN, Bools, Int64s

NVTX_OPERATORS = (*HOST_WORK, "name", "sequence")
"""Columns of operators as they are read."""
_BACKWARD = re.compile(
    r"^(?:autograd::engine::|torch::autograd::(?:CppNode|AccumulateGrad|GraphRoot|CopySlices)\b)"
    r"|Backward\d*$"
)
_MOST_THREADS = 64
"""Of a process, with forward operators: programs have a few, and each is looked at on its own."""


def with_forward_operators(operators: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Columns of HOST_OPERATORS.

    Args:
        operators: `NVTX_OPERATORS`. names: of the trace.
    """
    sequence = operators["sequence"].astype(np.int64)
    forward_thread = np.full(len(sequence), UNKNOWN, dtype=np.int64)
    backward = per_name(operators["name"], names, lambda name: bool(_BACKWARD.search(name))) == 1
    numbered = sequence != UNKNOWN
    for pid in np.unique(operators["pid"]).tolist():
        here = (operators["pid"] == pid) & numbered
        nodes = np.flatnonzero(here & backward)
        thread, made = _made_in(operators, sequence, here & ~backward, nodes)
        forward_thread[nodes], sequence[nodes] = thread, made
    return {**operators, "sequence": sequence, "forward_thread": forward_thread}


def _made_in(
    operators: dict[str, Any], sequence: Int64s, forward: Bools, nodes: Int64s
) -> tuple[Int64s, Int64s]:
    """What stands for the thread of the forward operator of each node, and its number.

    Nodes whose operator is not there get UNKNOWN. Threads count on their own: of several
    operators that fit, the node is of the last one.
    """
    found, made = (np.full(len(nodes), UNKNOWN, dtype=np.int64) for _ in range(2))
    latest = np.full(len(nodes), np.iinfo(np.int64).min)
    asked, begin = sequence[nodes], operators["t0"][nodes]
    threads, counts = np.unique(operators["thread"][forward], return_counts=True)
    for thread in threads[np.argsort(-counts, kind="stable")[:_MOST_THREADS]].tolist():
        rows = np.flatnonzero(forward & (operators["thread"] == thread))
        rows = rows[np.lexsort((operators["t0"][rows], sequence[rows]))]
        numbers, t0 = sequence[rows], operators["t0"][rows]
        last = np.searchsorted(numbers, asked, "right") - 1
        at = np.maximum(last, 0)
        # Beyond the last number of a thread nothing says that the node is of that thread.
        fits = (last >= 0) & ((numbers[at] == asked) | (at + 1 < len(rows)))
        fits &= (t0[at] < begin) & (t0[at] > latest)
        latest[fits], made[fits] = t0[at][fits], numbers[at][fits]
        found[fits] = thread + 1  # as autograd's numbers of threads, above 0
    return found, made
