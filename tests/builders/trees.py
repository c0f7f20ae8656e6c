"""Trees of owners from paths, for tests of what is shown of them."""

from __future__ import annotations

import numpy as np

from traceprobe.model.taxonomy import LEVELS
from traceprobe.records.packed import Table
from traceprobe.records.tree import COLUMNS, Tree


def tree_of(paths):
    """The tree of `(class, [(level, name), …], ns, count)`, each path once."""
    names, places, rows = {}, {}, []

    def node(path):
        if path not in places:
            parent = node(path[:-1]) if len(path) > 1 else 0
            level, name = path[-1]
            number = names.setdefault(name, len(names) + 1) if name else 0
            rows.append([parent, LEVELS.index(level), number, 0, 0])
            places[path] = len(rows)
        return places[path]

    for key, steps, ns, count in paths:
        row = rows[node((("class", key), *steps)) - 1]
        row[3] += ns
        row[4] += count
    columns = np.array(rows, dtype=np.int64).T
    return Tree(
        levels=list(LEVELS),
        names=list(names),
        nodes=Table.of(dict(zip(COLUMNS, columns, strict=True))),
    )
