"""The most that a step gets shorter by where the time of some classes goes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from traceprobe.model.taxonomy import SHARE_CLASSES
from traceprobe.records.rank import Rank, removable_ms
from traceprobe.records.report import ObserverEffect

UNSEEN = {name: frozenset(SHARE_CLASSES[name]) for name in ("io", "overhead")}
"""By bound, the classes that a short capture may show less of than the run has. The work of the GPU
is the same in each step, so a step that is longer waits longer."""


def class_bound_ms(
    ranks: Sequence[Rank],
    classes: Iterable[str],
    straggler: int | None,
    effect: ObserverEffect | None,
) -> float:
    """As `removable_ms`, and what a step without a profiler is longer than those of the capture."""
    chosen = tuple(classes)
    most = removable_ms(ranks, chosen, straggler)
    if effect is None or not any(names & set(chosen) for names in UNSEEN.values()):
        return most
    return most + max(effect.step_ms - effect.profiled_step_ms, 0.0)


def waits_only(classes: Iterable[str]) -> bool:
    """Whether a device only waits in some classes: what its hardware cannot go below is certain."""
    chosen = set(classes)
    return bool(chosen) and chosen <= frozenset().union(*UNSEEN.values())
