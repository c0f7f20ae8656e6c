"""Owners of time to the tree of the record, of which the largest nodes stay."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from traceprobe.formatting import truncated
from traceprobe.model.codes import MODULE, Int64s
from traceprobe.model.taxonomy import LEVELS, PARTITION, Level
from traceprobe.pipeline.rank_summary import MAX_KERNEL
from traceprobe.records.packed import Table
from traceprobe.records.tree import Tree, totals
from traceprobe.timeline.attribution import Attribution

MOST_NODES = 3_000
"""Nodes that a tree keeps; what is below them is summed in one more for each."""


def build_tree(found: Attribution, names: Sequence[str]) -> Tree:
    """The tree of a device: below each class the paths that own some of it.

    Args:
        names: of the trace.
    """
    width = len(found.paths.parent) + 1  # 0 is the class itself, else 1 + number of a path
    above = np.array([0, *(number + 1 for number in found.paths.parent)], dtype=np.int64)
    kind, path = (found.shares[c].to_numpy() for c in ("class", "path"))
    own = kind * width + path + 1
    keys = _with_parents(own, above, width)
    parent = np.searchsorted(keys, keys // width * width + above[keys % width]) + 1
    parent[keys % width == 0] = 0
    ns, count = (np.zeros(len(keys), dtype=np.int64) for _ in range(2))
    rows = np.searchsorted(keys, own)
    ns[rows], count[rows] = (found.shares[c].to_numpy() for c in ("ns", "count"))
    step = np.maximum(keys % width - 1, 0)
    is_class = parent == 0
    level = np.where(is_class, int(Level.CLASS), np.array([*found.paths.level, 0])[step])
    name = np.where(is_class, -1 - keys // width, np.array([*found.paths.name, 0])[step])
    columns = _largest({"parent": parent, "level": level, "name": name, "ns": ns, "count": count})
    named = columns["level"] < int(Level.UNKNOWN)
    used, place = np.unique(columns["name"][named], return_inverse=True)
    texts = [PARTITION[-1 - n] if n < 0 else names[n].removeprefix(MODULE) for n in used.tolist()]
    columns["name"] = np.zeros(len(named), dtype=np.int64)
    columns["name"][named] = place + 1
    return Tree(
        levels=list(LEVELS),
        names=[truncated(text, MAX_KERNEL) for text in texts],
        nodes=Table.of(columns),
    )


def _with_parents(keys: Int64s, above: Int64s, width: int) -> Int64s:
    """Keys with those of everything that they are below, ascending: parents come first."""
    found = [keys]
    while (found[-1] % width).any():
        found.append(np.unique(found[-1] // width * width + above[found[-1] % width]))
    return np.unique(np.concatenate(found))


def _largest(columns: dict[str, Int64s]) -> dict[str, Int64s]:
    """The classes and the nodes that own most with all below them; the others summed."""
    parent = columns["parent"]
    total = {name: totals(parent, columns[name]) for name in ("ns", "count")}
    size = np.where(parent == 0, np.iinfo(np.int64).max, total["ns"])
    kept = np.zeros(len(parent), dtype=bool)
    kept[np.argsort(-size, kind="stable")[:MOST_NODES]] = True
    place = np.concatenate([[0], np.cumsum(kept)])
    # What is left out just below a node that stays.
    cut = np.flatnonzero(~kept & kept[parent - 1])
    under, at = np.unique(place[parent[cut]], return_inverse=True)
    sums = {name: np.zeros(len(under), dtype=np.int64) for name in total}
    for name, values in total.items():
        np.add.at(sums[name], at, values[cut])
    rest = {
        "parent": under,
        "level": np.full(len(under), int(Level.OTHER)),
        "name": np.zeros(len(under), dtype=np.int64),
        **sums,
    }
    stays = {name: values[kept] for name, values in columns.items()}
    stays["parent"] = place[stays["parent"]]
    return {name: np.concatenate([stays[name], rest[name]]) for name in columns}
