"""A tree of owners, summed over what a person asks for: modules, lines, operators, kernels."""

from __future__ import annotations

from typing import Literal

import polars as pl

from traceprobe.model.taxonomy import BUSY
from traceprobe.records.tree import BETWEEN

By = Literal["module", "line", "operator", "kernel", "class"]
BY: tuple[By, ...] = ("module", "line", "operator", "kernel", "class")


def owners(tree: pl.DataFrame, by: By) -> pl.DataFrame:
    """The owners of a level, those of the most time first.

    Args:
        tree: as `Report.tree` gives it.

    Returns:
        `owner`, null for what has none at that level; `within`, the innermost range or module that
        this was in then, null for none; `busy_ns`, of it `communication_ns` that nothing hid,
        `idle_ns` (that the device idled for it), `operations` and `calls` that wait; `own_ns`, busy
        and idle. A module is told by its path, or where the trace has none a range of the program
        by its, and has all but `own_ns` with the modules in it. An operator is the innermost one, a
        kernel that which ran or ended an idle gap.
    """
    is_busy = pl.col("class").is_in(BUSY)
    column = "range" if by == "module" and not has_modules(tree) else by
    alone = (
        with_own_counts(tree)
        .with_columns(
            owner=innermost(tree, "operator") if by == "operator" else pl.col(column),
            within=innermost(tree, "range", "module"),
        )
        .with_columns(within=pl.when(pl.col("owner").is_null()).then("within"))
        .group_by("owner", "within")
        .agg(
            busy_ns=pl.col("ns").filter(is_busy).sum(),
            communication_ns=pl.col("ns").filter(pl.col("class") == "communication").sum(),
            idle_ns=pl.col("ns").filter(~is_busy).sum(),
            operations=pl.col("own_count").filter(is_busy).sum(),
            calls=pl.col("own_count").filter(~is_busy).sum(),
        )
        .with_columns(own_ns=pl.col("busy_ns") + pl.col("idle_ns"))
    )
    return (
        (_with_inner(alone) if by == "module" else alone)
        .filter(pl.sum_horizontal("busy_ns", "idle_ns", "operations", "calls") > 0)
        .sort(
            pl.col("busy_ns") + pl.col("idle_ns"),
            "owner",
            "within",
            descending=[True, False, False],
        )
    )


def with_own_counts(tree: pl.DataFrame) -> pl.DataFrame:
    """A tree by its nodes, with `own_count`: of `count`, what no node below has."""
    inner = tree.group_by(node="parent").agg(inner=pl.col("count").sum())
    own = pl.col("count") - pl.col("inner").fill_null(0)
    return tree.join(inner, on="node", how="left").sort("node").with_columns(own_count=own)


def _with_inner(alone: pl.DataFrame) -> pl.DataFrame:
    """Owners that are paths, with all that is inside them, and what they are inside of."""
    outer = [_prefixes(path) for path in alone["owner"].to_list()]
    each = alone.with_columns(outer=pl.Series(outer, dtype=pl.List(pl.String))).explode("outer")
    is_own = pl.col("owner").eq_missing(pl.col("outer"))
    return (
        each.with_columns(own_ns=pl.when(is_own).then("own_ns").otherwise(0))
        .group_by(owner="outer", within="within")
        .agg(pl.col(c).sum() for c in alone.columns if c not in ("owner", "within"))
    )


def _prefixes(path: str | None) -> list[str | None]:
    """A path and all that it is in."""
    if path is None:
        return [None]
    steps = path.split(BETWEEN)
    return [BETWEEN.join(steps[: n + 1]) for n in range(len(steps))]


def has_modules(tree: pl.DataFrame) -> bool:
    """Whether any node of a tree is a module."""
    return bool((tree["level"] == "module").any())


def innermost(tree: pl.DataFrame, *levels: str) -> pl.Series:
    """Name of the node of some levels that each node is or is in most closely; null for none."""
    found: list[str | None] = []
    for parent, level, name in tree.sort("node").select("parent", "level", "name").iter_rows():
        outer = None if parent is None else found[parent]
        found.append(name if level in levels else outer)
    return pl.Series(found, dtype=pl.String)
