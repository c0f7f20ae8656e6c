"""Who owns the time of a device: from the class of the partition down to the kernel, packed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from traceprobe.model.taxonomy import LEVELS, PARTITION, Level
from traceprobe.records.packed import Int64s, Table
from traceprobe.records.texts import PhaseName, Word

if TYPE_CHECKING:
    import polars as pl

COLUMNS = ("parent", "level", "name", "ns", "count")
"""Columns of `Tree.nodes`."""
NAMELESS = {"unknown": "(no operator recorded)", "other": "(other)"}
"""What levels without names are called."""
BETWEEN = " / "
"""Between the names of one level in a path."""
_PATH = ("range", "module", "line", "operator", "kernel", "call")
_LARGEST = 2**62


class Tree(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes with the time that they own alone, over the used iterations.

    Args:
        levels: `LEVELS`. names: of classes, ranges, modules, lines, operators, kernels and calls.
        nodes: as `COLUMNS`, each after its parent. `parent` is 0 for a class, else 1 + row;
            `level` an index in `levels`; `name` 0 for none, else 1 + index in `names`; `ns` what
            the node owns without those below it; `count` operations that begin in the windows, or
            calls that wait below a class of idle time.
    """

    levels: list[Word]
    names: list[PhaseName]
    nodes: Table

    def problems(self, partition: Mapping[str, int | None]) -> Iterator[str]:
        """What it contradicts itself, or a partition, in."""
        try:
            columns = self.nodes.columns()
        except ValueError as error:
            yield str(error)
            return
        if set(columns) != set(COLUMNS) or tuple(self.levels) != LEVELS:
            yield "the tree has other columns or levels"
            return
        parent, level, name = (columns[c] for c in ("parent", "level", "name"))
        if (parent > np.arange(len(parent))).any() or (level >= len(LEVELS)).any():
            yield "a node of the tree is before its parent, or of no level"
        elif (name > len(self.names)).any() or ((parent == 0) != (level == Level.CLASS)).any():
            yield "a node of the tree has no name, or a class is inside of another"
        elif columns["ns"].sum(dtype=np.float64) > _LARGEST:
            yield "the tree has more time than there is"
        else:
            classes = [self._name(columns, row) for row in np.flatnonzero(parent == 0).tolist()]
            owned = dict.fromkeys(PARTITION, 0)
            total = totals(parent, columns["ns"])[parent == 0].tolist()
            if len(set(classes)) != len(classes) or not set(classes) <= set(PARTITION):
                yield "the classes of the tree are unknown, or there twice"
            elif owned | dict(zip(classes, total, strict=True)) != {
                key: partition.get(key) or 0 for key in PARTITION
            }:
                yield "the tree does not add up to the partition"

    def frame(self, window_ns: int, steps: int) -> pl.DataFrame:
        """The nodes as a table; `docs/library.md` has its columns.

        Args:
            window_ns: time of the summary. steps: iterations in it.
        """
        import polars as pl

        columns = self.nodes.columns()
        parent, level = columns["parent"].tolist(), columns["level"].tolist()
        names = [self._name(columns, row) for row in range(len(parent))]
        steps_to: list[dict[str, str]] = []
        for above, place, name in zip(parent, level, names, strict=True):
            path = dict(steps_to[above - 1]) if above else {}
            key = LEVELS[place]
            path[key] = f"{path[key]}{BETWEEN}{name}" if key in path else name
            steps_to.append(path)
        total = totals(columns["parent"], columns["ns"])
        return pl.DataFrame(
            {
                "node": range(len(parent)),
                "parent": [above - 1 if above else None for above in parent],
                "level": [LEVELS[place] for place in level],
                "name": names,
                **{key: [path.get(key) for path in steps_to] for key in ("class", *_PATH)},
                "ns": columns["ns"],
                "total_ns": total,
                "ms_per_step": total / steps / 1e6,
                "share": total / max(window_ns, 1),
                "count": totals(columns["parent"], columns["count"]),
            },
            schema_overrides={
                **dict.fromkeys(("node", "parent"), pl.Int64),
                **dict.fromkeys(("level", "name", "class", *_PATH), pl.String),
            },
        )

    def _name(self, columns: Mapping[str, Int64s], row: int) -> str:
        number = int(columns["name"][row])
        level = LEVELS[columns["level"][row]]
        return self.names[number - 1] if number else NAMELESS.get(level, "")


def totals(parent: Int64s, values: Int64s) -> Int64s:
    """Values of nodes with all that is below them; `parent` as in `COLUMNS`."""
    summed = values.tolist()
    for row, above in zip(range(len(summed) - 1, -1, -1), reversed(parent.tolist()), strict=True):
        if above:
            summed[above - 1] += summed[row]
    return np.array(summed, dtype=np.int64)
