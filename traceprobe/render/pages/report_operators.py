"""Operators of an iteration: which call of the framework the GPU's time belongs to."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceprobe.formatting import duration, ms, percent, shorten
from traceprobe.model.events import Int64s
from traceprobe.records.picture import Picture, Window
from traceprobe.records.rank import Rank
from traceprobe.render.document import Table

MAX_OPERATORS = 25
MAX_NAME = 80
OPERATOR = "operator"
TYPICAL = ("typical", "capture")
"""Windows that stand for the others."""


@dataclass(frozen=True)
class Operator:
    """All calls of one operator in an iteration.

    Args:
        gpu_ns: operations of the GPU that were launched in it, and in no operator inside of it;
            those that run at once count twice. host_ns: duration of its calls on the host, what
            they call included.
    """

    name: str
    calls: int
    gpu_ops: int
    gpu_ns: int
    host_ns: int


def operators(picture: Picture, window: Window) -> list[Operator]:
    """Operators by their time on the GPU, then on the host; empty where none was recorded."""
    if OPERATOR not in picture.kinds:
        return []
    host, ops = window.host.columns(), window.ops.columns()
    rows = host["kind"] == picture.kinds.index(OPERATOR)
    begin = np.cumsum(host["start"])[rows]
    length, thread, name = (host[key][rows] for key in ("duration", "thread", "name"))
    began = np.cumsum(ops["start"]) - (ops["launch"] - 1)
    inside = np.full(len(began), -1, dtype=np.int64)
    for number in np.unique(thread):
        mine = np.flatnonzero(thread == number)
        launched = np.flatnonzero((ops["thread"] == number + 1) & (ops["launch"] > 0))
        found = innermost(begin[mine], begin[mine] + length[mine], began[launched])
        inside[launched] = np.where(found >= 0, mine[found], -1)
    known = inside >= 0
    operator = name[inside[known]]
    count = len(picture.names)
    gpu_ns = np.bincount(operator, weights=ops["duration"][known], minlength=count)
    gpu_ops = np.bincount(operator, minlength=count)
    calls = np.bincount(name, minlength=count)
    host_ns = np.bincount(name, weights=length, minlength=count)
    listed = [
        Operator(picture.names[k], int(calls[k]), int(gpu_ops[k]), int(gpu_ns[k]), int(host_ns[k]))
        for k in np.flatnonzero(calls)
    ]
    return sorted(listed, key=lambda o: (-o.gpu_ns, -o.host_ns, o.name))


def innermost(begin: Int64s, end: Int64s, times: Int64s) -> Int64s:
    """Index of the shortest interval around each time; -1 where there is none.

    Args:
        begin, end: intervals that nest, in the order of their begin, outer ones first.
    """
    parent = np.full(len(begin) + 1, -1, dtype=np.int64)  # the last is that of no interval
    around: list[int] = []
    for k, (at, until) in enumerate(zip(begin.tolist(), end.tolist(), strict=True)):
        while around and end[around[-1]] <= at:
            around.pop()
        parent[k] = around[-1] if around else -1
        if until > at:
            around.append(k)
    found = np.searchsorted(begin, times, side="right") - 1
    while (outside := (found >= 0) & (end[found] <= times)).any() if len(begin) else False:
        found[outside] = parent[found[outside]]
    return found.astype(np.int64)


def operators_table(rank: Rank) -> Table | None:
    """The operators of the iteration that stands for the others; None where there are none."""
    if not isinstance(rank.picture, Picture):
        return None
    window = next((w for w in rank.picture.windows if w.why in TYPICAL), None)
    found = operators(rank.picture, window) if window is not None else []
    if window is None or not found:
        return None
    whole = max(sum(operator.gpu_ns for operator in found), 1)
    shown = found[:MAX_OPERATORS]
    rows = [
        [
            shorten(operator.name, MAX_NAME),
            ms(operator.gpu_ns),
            percent(operator.gpu_ns / whole),
            f"{operator.gpu_ops:,}",
            ms(operator.host_ns),
            f"{operator.calls:,}",
        ]
        for operator in shown
    ]
    of = "the capture" if window.iteration is None else f"iteration {window.iteration}"
    caption = f"Operators of {of}, {duration(window.duration_ns)}, by the GPU work they launch"
    if len(found) > len(shown):
        caption += f" ({len(found) - len(shown)} more launch less)"
    head = ["operator", "GPU (ms)", "of it", "GPU operations", "host (ms)", "calls"]
    return Table(caption, head, rows, frozenset(range(1, len(head))), names=frozenset({0}))
