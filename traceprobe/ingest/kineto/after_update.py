"""What a step does to its parameters once the optimizer is done: averages, clamps, pruning.

No range says so, and what the step thread launches before a backward pass is taken for the forward
pass. But such work shows: it is arithmetic in place without gradients (without a sequence number),
a tensor after another, from the end of `Optimizer.step` on. A batch is fetched, moved or drawn
first, and a forward pass, of an evaluation as well, multiplies matrices: whatever is not in this
list ends it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from traceprobe.ingest.joins import Table, per_name
from traceprobe.ingest.kineto.cpu_operators import outermost
from traceprobe.model.codes import UNKNOWN, Ints

_ENDS = re.compile(r"^Optimizer\.step")
_NEXT = re.compile(r"^(Optimizer\.step|enumerate\(Data)")
_ARITHMETIC = "mul|add|sub|rsub|div|lerp|addcmul|addcdiv|pow|sqrt|clamp|clamp_min|clamp_max"
_IN_PLACE = re.compile(rf"^aten::(_foreach_)?({_ARITHMETIC})_$")
_AMONG = re.compile(
    rf"^aten::((_foreach_)?({_ARITHMETIC}|copy|zero)_?|detach_?|alias|item|_amp_update_scale_)$"
)
"""What may be between: views of parameters, copies of buffers, the scale of mixed precision."""
_COPY = "aten::copy_"
LEAST = 4
"""Operators in place that make an update; to bring a batch into range takes two."""


def after_updates(
    operators: Table, ranges: Mapping[str, Any], names: Sequence[str]
) -> dict[int, tuple[Ints, Ints]]:
    """Starts and ends of such work, ascending, by thread.

    Args:
        operators: rows with `sequence`.
        ranges: columns of `HOST_RANGES`.
    """
    ends = per_name(ranges["name"], names, lambda n: bool(_ENDS.search(n))) > 0
    starts = per_name(ranges["name"], names, lambda n: bool(_NEXT.search(n))) > 0
    found = {}
    for thread in np.unique(ranges["thread"][ends]):
        here = ranges["thread"] == thread
        updated = np.sort(ranges["t1"][ends & here])
        following = np.sort(ranges["t0"][starts & here])
        mine = np.flatnonzero(operators["thread"] == thread)
        mine = mine[np.lexsort((-operators["t1"][mine], operators["t0"][mine]))]
        mine = mine[outermost(operators["t0"][mine], operators["t1"][mine])]
        found[int(thread)] = _runs(
            {c: v[mine] for c, v in operators.items()}, names, updated, following
        )
    return found


def _runs(rows: Table, names: Sequence[str], updated: Ints, following: Ints) -> tuple[Ints, Ints]:
    """Runs of such operators from each update on, to `following` at most."""
    among = per_name(rows["name"], names, lambda n: bool(_AMONG.search(n))) > 0
    among &= rows["sequence"] == UNKNOWN
    weight = per_name(rows["name"], names, _weight)
    before = np.concatenate([[0], np.cumsum(weight)])
    stops = np.append(np.flatnonzero(~among), len(among))
    first = np.searchsorted(rows["t0"], updated)
    until = np.append(following, np.iinfo(np.int64).max)
    until = until[np.searchsorted(following, updated)]
    last = np.minimum(stops[np.searchsorted(stops, first)], np.searchsorted(rows["t0"], until))
    copies = per_name(rows["name"], names, lambda n: n == _COPY) > 0
    keep = (last > first) & (before[last] - before[first] >= LEAST)
    keep[keep] = ~copies[first[keep]]
    return rows["t0"][first[keep]], rows["t1"][last[keep] - 1]


def _weight(name: str) -> int:
    """How much an operator counts: one for all tensors is an update by itself."""
    if not _IN_PLACE.search(name):
        return 0
    return LEAST if "_foreach_" in name else 1
