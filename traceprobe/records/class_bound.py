"""The most that a step gets shorter by where the time of some classes goes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from traceprobe.model.taxonomy import SHARE_CLASSES
from traceprobe.records.rank import Rank, mean_step_ms, removable_ms
from traceprobe.records.report import ObserverEffect, Quality

STEP_ERROR = 0.02
"""Relative error of a step as it was timed, and of what is left of it without what it waits for."""
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


def furthest_ms(
    ranks: Sequence[Rank], classes: Iterable[str], straggler: int | None, quality: Quality
) -> float | None:
    """Where the interval of a saving of some classes ends.

    It has all of their time, and what is left of the step may be shorter by its error.

    Returns:
        None unless a device only waits in all of them: what hardware cannot go below is certain.
    """
    chosen = set(classes)
    step = quality.observer_effect.step_ms if quality.observer_effect else mean_step_ms(ranks)
    if step is None or not chosen or not chosen <= frozenset().union(*UNSEEN.values()):
        return None
    most = min(class_bound_ms(ranks, chosen, straggler, quality.observer_effect), step)
    return most + STEP_ERROR * (step - most)
