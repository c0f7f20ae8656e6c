"""What a recording counted of a step before training: operations by precision, and bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from traceprobe.model.sidecar import MOST_FLOPS

PASSES = ("forward", "backward", "recompute")
Work = Mapping[str, Any]
"""By phase: `flops` and `model_flops` by precision, `bytes`, `matrix_bytes`; docs/roofline.md."""


def work_of(workload: Mapping[str, object] | None) -> Work | None:
    """What the recording counted, if it has the form that it should have."""
    work = (workload or {}).get("work")
    if not isinstance(work, dict):
        return None
    for name in PASSES:
        phase = work.get(name)
        if not isinstance(phase, dict):
            return None
        tables = [phase.get("flops"), phase.get("model_flops")]
        amounts = [phase.get("bytes"), phase.get("matrix_bytes")]
        for table in tables:
            if not isinstance(table, dict):
                return None
            amounts += table.values()
        if not all(isinstance(n, int) and n >= 0 for n in amounts):
            return None
    return work


def total_of(workload: Mapping[str, object] | None) -> float | None:
    """Operations of the model in a step of all ranks; None where nobody counted them."""
    total = (workload or {}).get("flops_per_step")
    usable = isinstance(total, (int, float)) and not isinstance(total, bool) and total >= 0
    return float(cast("float", total)) if usable else None


def ranks_of(workload: Mapping[str, object] | None) -> int:
    """Ranks that the recording says there were."""
    ranks = (workload or {}).get("ranks")
    return ranks if isinstance(ranks, int) and ranks > 0 else 1


def of_model(work: Work | None, of_one: float | None, names: str | None) -> dict[str, float] | None:
    """Operations of the model by precision; without details, all in that of the kernels."""
    if work is not None:
        return added([work[name]["model_flops"] for name in PASSES])
    if of_one is None or names is None:
        return None
    return {names: of_one}


def executed(work: Work) -> dict[str, float]:
    """Operations by precision, what is recomputed included."""
    return added([work[name]["flops"] for name in PASSES])


def least_of(work: Work) -> dict[str, float] | None:
    """Operations by precision that every way to compute the same takes; None where not counted."""
    tables = [work[name].get("least_flops") for name in PASSES]
    for table in tables:
        if not isinstance(table, dict):
            return None
        if not all(isinstance(n, int) and 0 <= n <= MOST_FLOPS for n in table.values()):
            return None
    return added(tables)


def added(tables: Sequence[Mapping[str, int]]) -> dict[str, float]:
    """Sums by precision."""
    names = sorted({name for table in tables for name in table})
    return {name: sum(table.get(name, 0) for table in tables) for name in names}
