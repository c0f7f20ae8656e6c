"""The most that a step gets shorter by where the time of some classes goes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from traceprobe.model.taxonomy import SHARE_CLASSES
from traceprobe.records.numbers import SHARE_ROUNDING
from traceprobe.records.rank import Rank, removable_ms
from traceprobe.records.report import ObserverEffect

DATA_WAIT = "idle_data_wait"
UNSEEN = {name: frozenset(SHARE_CLASSES[name]) for name in ("io", "overhead")}
"""By bound, the classes that a short capture may show less of than the run has. The work of the GPU
is the same in each step, so a step that is longer waits longer."""


def class_bound_ms(
    ranks: Sequence[Rank],
    classes: Iterable[str],
    straggler: int | None,
    effect: ObserverEffect | None,
    shares: Mapping[str, float],
) -> float:
    """As `removable_ms`, and what a step without a profiler has more of it than the capture.

    That is what such a step is longer, or what more of it the verdict counts as waiting for data.

    Args:
        shares: of the verdict.
    """
    chosen = set(classes)
    most = removable_ms(ranks, chosen, straggler)
    if effect is None or not any(names & chosen for names in UNSEEN.values()):
        return most
    more = max(effect.step_ms - effect.profiled_step_ms, 0.0)
    if DATA_WAIT in chosen:
        more = max(more, unseen_wait_ms(ranks, straggler, effect, shares))
    return most + more


def unseen_wait_ms(
    ranks: Sequence[Rank],
    straggler: int | None,
    effect: ObserverEffect | None,
    shares: Mapping[str, float],
) -> float:
    """Waiting for data in a step without a profiler, as the verdict has it, beyond the capture.

    A loader that sets the pace takes as long beside a profiler: what the host is slowed by, it
    waits less.
    """
    if effect is None:
        return 0.0
    recorded = removable_ms(ranks, SHARE_CLASSES["io"], straggler)
    more = shares.get("io", 0.0) * effect.step_ms - recorded
    return more if more > SHARE_ROUNDING * effect.step_ms else 0.0


def waits_only(classes: Iterable[str]) -> bool:
    """Whether a device only waits in some classes: what its hardware cannot go below is certain."""
    chosen = set(classes)
    return bool(chosen) and chosen <= frozenset().union(*UNSEEN.values())
