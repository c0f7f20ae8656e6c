"""A tree of owners, summed over what a person asks for: modules, lines, operators, kernels."""

from __future__ import annotations

from typing import Literal

import polars as pl

from traceprobe.model.taxonomy import BUSY

By = Literal["module", "line", "operator", "kernel", "class"]
BY: tuple[By, ...] = ("module", "line", "operator", "kernel", "class")


def owners(tree: pl.DataFrame, by: By) -> pl.DataFrame:
    """The owners of a level, those of the most time first.

    Args:
        tree: as `Report.tree` gives it.

    Returns:
        `owner`, null for what has none at that level; `within`, the innermost range or module that
        this was in then, null for none; `busy_ns`, `idle_ns` (that the device idled for it),
        `operations` and `calls` that wait. A module is told by its path, or where the trace has
        none a range of the program by its; an operator is the innermost one, a kernel that which
        ran or ended an idle gap.
    """
    is_busy = pl.col("class").is_in(BUSY)
    column = "range" if by == "module" and not has_modules(tree) else by
    # Counts of a node are with all below it: its own are what its children do not have.
    inner = tree.group_by(node="parent").agg(inner=pl.col("count").sum())
    own = pl.col("count") - pl.col("inner").fill_null(0)
    return (
        tree.join(inner, on="node", how="left")
        .sort("node")
        .with_columns(
            owner=_innermost(tree, "operator") if by == "operator" else pl.col(column),
            within=_innermost(tree, "range", "module"),
        )
        .with_columns(within=pl.when(pl.col("owner").is_null()).then("within"))
        .group_by("owner", "within")
        .agg(
            busy_ns=pl.col("ns").filter(is_busy).sum(),
            idle_ns=pl.col("ns").filter(~is_busy).sum(),
            operations=own.filter(is_busy).sum(),
            calls=own.filter(~is_busy).sum(),
        )
        .filter(pl.sum_horizontal("busy_ns", "idle_ns", "operations", "calls") > 0)
        .sort(
            pl.col("busy_ns") + pl.col("idle_ns"),
            "owner",
            "within",
            descending=[True, False, False],
        )
    )


def has_modules(tree: pl.DataFrame) -> bool:
    """Whether any node of a tree is a module."""
    return bool((tree["level"] == "module").any())


def _innermost(tree: pl.DataFrame, *levels: str) -> pl.Series:
    """Name of the node of some levels that each node is or is in most closely; null for none."""
    found: list[str | None] = []
    for parent, level, name in tree.sort("node").select("parent", "level", "name").iter_rows():
        outer = None if parent is None else found[parent]
        found.append(name if level in levels else outer)
    return pl.Series(found, dtype=pl.String)
