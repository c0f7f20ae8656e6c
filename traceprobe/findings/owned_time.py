"""What of the ranks' time is in some kernels, copies and waits: questions to a frame of owners.

`owners` is that of `Evidence.owners`, a row for each owner of time: `class` of the partition,
`kernel`, `call`, `line`, `within` (ranges around it), `ms` and `count` per step. Its texts are
categories.
"""

from __future__ import annotations

import polars as pl

from traceprobe.formatting import frame_place, is_function
from traceprobe.model.kernel_classes import kernel_class
from traceprobe.model.taxonomy import KERNEL_PHASES
from traceprobe.records.site import Site
from traceprobe.records.sites import find_sites

KERNEL_NAME = pl.col("kernel").cast(pl.String)
"""What is searched for words."""
_INDUCTOR = r"^triton_(poi|red|per|tem|for)_"
"""How kernels are called that `torch.compile` writes."""


def waiting_operators(owners: pl.DataFrame) -> list[tuple[str, float]]:
    """Operators and lines in which the host waits for the GPU, and how often a step does.

    Those with most calls first; what has neither a line nor a module or range around it is left
    out. `torch.cuda.synchronize()` is inside of no operator.
    """
    waits = owners.filter((pl.col("class") == "idle_sync") & (pl.col("count") > 0))
    texts = waits.with_columns(pl.col(pl.Categorical).cast(pl.String))
    known = texts.with_columns(line=pl.coalesce("line", "within")).drop_nulls("line")
    rows = known.group_by("call", "line", maintain_order=True).agg(pl.col("count").sum())
    ordered = rows.sort("count", "call", "line", descending=[True, False, False])
    return [
        (" ".join([*([f"in `{call}`"] if "::" in (call or "") else []), _where(line)]), count)
        for call, line, count in ordered.rows()
    ]


def copy_sites(owners: pl.DataFrame, kind: str) -> list[Site]:
    """Where in the program the copies are whose names have some words, the most time first."""
    return find_sites(owners, KERNEL_NAME.str.contains(kind, literal=True))


def kernel_sites(owners: pl.DataFrame, *classes: str) -> list[Site]:
    """The same of kernels of some `KERNEL_CLASSES`, those of optimizer and input left out."""
    work = owners.filter(pl.col("class").is_in(KERNEL_PHASES))
    names = work["kernel"].drop_nulls().unique()
    wanted = [name for name in names if kernel_class(name) in classes]
    return find_sites(work, pl.col("kernel").is_in(wanted))


def named_ms(owners: pl.DataFrame, pattern: str) -> float:
    """Time in kernels of forward and backward pass whose names a regular expression finds."""
    named = pl.col("class").is_in(KERNEL_PHASES) & KERNEL_NAME.str.contains(pattern)
    return float(owners.filter(named)["ms"].sum())


def inductor_ms(owners: pl.DataFrame) -> float:
    """Time in kernels of forward and backward pass that `torch.compile` wrote."""
    return named_ms(owners, _INDUCTOR)


def _where(place: str) -> str:
    """A line, a function or a module, in a sentence."""
    return frame_place(place) if is_function(place) else f"at {place}"
