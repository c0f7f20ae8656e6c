"""Where in the program the time of a finding is: the owners that have most of it."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from traceprobe.model.taxonomy import BUSY
from traceprobe.records.owners import innermost, with_own_counts
from traceprobe.records.rank import Rank
from traceprobe.records.site import Site
from traceprobe.records.tree import Tree

MOST = 3
"""Sites of a finding."""
LEAST = 0.02
"""Part of the time of a finding that a site has at least."""
_PLACE = ("line", "within", "before")


def owners_of(ranks: Sequence[Rank]) -> pl.DataFrame:
    """The owners of the ranks that have them.

    Returns:
        `class`, `line`, `within`, `before` (idle time that the call ended, and that nothing else
        is known of), `call`, `kernel`, and `ms` and `count` of the mean rank: a step
        of it, without what the owners below each have. Texts are categories.
    """
    trees = [_brief(_tree(rank)) for rank in ranks if isinstance(rank.tree, Tree)]
    if not trees:
        return _brief(_tree(None))
    return pl.concat(trees).with_columns(pl.col("ms", "count") / len(trees))


def _brief(tree: pl.DataFrame) -> pl.DataFrame:
    """A tree with its texts as numbers: those of a thousand ranks are the same few."""
    return tree.with_columns(pl.col(pl.String).cast(pl.Categorical))


def extra_owners(whole: Sequence[Rank], regular: Sequence[Rank]) -> pl.DataFrame:
    """The same of iterations that some ranks leave out: what is there more of than in theirs.

    Spread over all iterations, as what is saved per step is. On a CPU, idle time belongs to the
    operator that comes next: where that is one of the regular work its place is not known.

    Args:
        whole: the ranks with all their iterations. regular: the same ranks without some.
    """
    parts = []
    for every, usual in zip(whole, regular, strict=True):
        some = every.summary.steps > usual.summary.steps
        if some and isinstance(every.tree, Tree) and isinstance(usual.tree, Tree):
            more, less = _tree(every), _tree(usual)
            if every.device.kind == "cpu":
                more, less = _without_next(more, less), _without_next(less, less)
            parts += [more, less.with_columns(-pl.col("ms", "count"))]
    if not parts:
        return _tree(None)
    keys = ("class", *_PLACE, "call", "kernel")
    summed = pl.concat(parts).group_by(keys, maintain_order=True)
    return summed.agg(pl.col("ms", "count").sum() / (len(parts) // 2)).filter(pl.col("ms") > 0)


def _without_next(owners: pl.DataFrame, regular: pl.DataFrame) -> pl.DataFrame:
    """Owners without the place of idle time that is one of the regular work."""
    works = regular.filter(pl.col("class").is_in(BUSY))
    known = (
        pl.when(pl.col("line").is_null())
        .then(pl.col("call").is_in(works["call"].drop_nulls().implode()))
        .otherwise(pl.col("line").is_in(works["line"].drop_nulls().implode()))
    )
    unknown = ~pl.col("class").is_in(BUSY) & known.fill_null(value=False)
    return owners.with_columns(
        *(
            pl.when(~unknown).then(pl.col(name)).alias(name)
            for name in ("line", "within", "call", "kernel")
        ),
        (pl.col("before") & ~unknown).alias("before"),
    )


def find_sites(owners: pl.DataFrame, where: pl.Expr | None = None) -> list[Site]:
    """Those with the most time; where no time is known, with the most operations or calls.

    Args:
        owners: as `owners_of` returns them. where: which of them the finding is about.
    """
    chosen = owners if where is None else owners.filter(where)
    total, count = chosen.select(pl.col("ms").sum(), pl.col("count").sum()).row(0)
    weight = "ms" if total > 0 else "count"
    whole = total if total > 0 else count
    if whole <= 0:
        return []
    places = (
        chosen.lazy()
        .with_columns(weight=pl.col(weight))
        .filter(pl.any_horizontal(pl.col("line", "within", "call").is_not_null()))
        # A line says where it is. Without one, that is a module and what runs in it.
        .with_columns(
            within_of=pl.when(pl.col("line").is_null()).then("within"),
            call_of=pl.when(pl.col("line").is_null()).then("call"),
        )
        .sort("weight", descending=True, maintain_order=True)
        .group_by("line", "within_of", "call_of", "before", maintain_order=True)
        .agg(
            pl.col("within").first(),
            pl.col("call").drop_nulls().first(),
            pl.col("ms").sum(),
            pl.col("weight").sum(),
        )
        .filter(pl.col("weight") >= LEAST * whole)
        .sort("weight", descending=True, maintain_order=True)
        .head(MOST)
        .collect()
    )
    return [
        Site(
            line=row["line"],
            within=row["within"],
            call=row["call"],
            ms_per_step=round(row["ms"], 6),
            part=round(min(row["weight"] / whole, 1.0), 6),
            before=row["before"],
        )
        for row in places.iter_rows(named=True)
    ]


def _own_range() -> pl.Expr:
    """The range; of forward and backward pass without the optimizer whose closure they are in."""
    inner = pl.col("range").str.replace(r"^Optimizer\.step#\w+\.step( / )?", "")
    passes = pl.col("class").is_in(("forward", "backward", "recompute"))
    own = pl.when(passes).then(inner).otherwise("range")
    return pl.when(own != "").then(own)


def _tree(rank: Rank | None) -> pl.DataFrame:
    """Nodes that own time or operations themselves; of no rank none."""
    if rank is None or not isinstance(rank.tree, Tree):
        texts = dict.fromkeys(("class", "line", "within", "call", "kernel"), pl.String)
        numbers = {"before": pl.Boolean, "ms": pl.Float64, "count": pl.Float64}
        return pl.DataFrame(schema={**texts, **numbers})
    tree = rank.tree.frame(rank.summary.window_ns, rank.summary.steps)
    return with_own_counts(tree).select(
        "class",
        innermost(tree, "line").alias("line"),
        pl.coalesce("module", _own_range()).alias("within"),
        pl.coalesce(innermost(tree, "operator"), "call", "kernel").alias("call"),
        "kernel",
        # An owner of idle time is a kernel only where it ended a gap.
        (~pl.col("class").is_in(BUSY) & pl.col("kernel").is_not_null()).alias("before"),
        (pl.col("ns") / rank.summary.steps / 1e6).alias("ms"),
        (pl.col("own_count") / rank.summary.steps).alias("count"),
    )
