"""The operators of a rank that own the most GPU time."""

from __future__ import annotations

from traceprobe.formatting import ms, percent, shorten, significant
from traceprobe.model.taxonomy import BUSY, BUSY_LABELS, Level
from traceprobe.records.rank import Rank
from traceprobe.records.tree import Tree
from traceprobe.render.document import Table

MOST = 25
"""Rows of one rank."""
MAX_NAME = 110
OUTSIDE = "(outside of any operator)"


def operators_table(rank: Rank) -> Table | None:
    """Operators by the GPU time that they launched themselves; None where the trace has none."""
    if not isinstance(rank.tree, Tree):
        return None
    owned = _owned(rank.tree)
    if all(name is None for name, _ in owned):
        return None
    steps = rank.summary.steps
    busy = sum(rank.summary.partition_ns[key] or 0 for key in BUSY)
    order = sorted(owned.items(), key=lambda item: (-item[1][0], item[0][0] or "", item[0][1]))
    rows = [
        [
            OUTSIDE if name is None else shorten(name, MAX_NAME),
            BUSY_LABELS[key],
            significant(count / steps),
            ms(ns / steps),
            percent(ns / busy) if busy else "",
        ]
        for (name, key), (ns, count) in order[:MOST]
    ]
    unit = rank.summary.per
    caption = f"{len(rows)} operators that own the most GPU time; operations and ms {unit}"
    head = ["operator", "phase", "GPU operations", "ms", "of GPU time"]
    return Table(caption, head, rows, frozenset({2, 3, 4}), names=frozenset({0}))


def _owned(tree: Tree) -> dict[tuple[str | None, str], tuple[int, int]]:
    """Time (ns) and operations by innermost operator, None outside of any, and class."""
    columns = {name: values.tolist() for name, values in tree.nodes.columns().items()}
    inside: list[tuple[str | None, str]] = []
    found: dict[tuple[str | None, str], tuple[int, int]] = {}
    for parent, level, name, ns, count in zip(
        *(columns[c] for c in ("parent", "level", "name", "ns", "count")), strict=True
    ):
        text = tree.names[name - 1] if name else ""
        operator, key = inside[parent - 1] if parent else (None, text)
        place = (text if level == Level.OPERATOR else operator, key)
        inside.append(place)
        if key in BUSY and (ns or count):
            spent, counted = found.get(place, (0, 0))
            found[place] = (spent + ns, counted + count)
    return found
