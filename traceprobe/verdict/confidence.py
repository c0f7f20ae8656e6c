"""How sure the verdict is: a sum of terms, each printed with its reason.

confidence = 0.5 + 0.45 · min(1, margin / 0.15) − penalties, clamped to [0, 1]; `margin` is the
distance, as a share of the step, to the nearest threshold that would change the answer.
"""

from __future__ import annotations

from collections.abc import Sequence

from traceprobe.records.report import Quality, Rank, Run, Term
from traceprobe.verdict.bounds import Decision
from traceprobe.verdict.correction import HEAVY, Corrected
from traceprobe.verdict.thresholds import FIXED, Thresholds


def terms(
    decision: Decision,
    corrected: Corrected,
    ranks: Sequence[Rank],
    run: Run | None,
    quality: Quality,
    profiled: frozenset[str],
    thresholds: Thresholds,
) -> list[Term]:
    """The terms of the confidence, base first; empty for an inconclusive verdict."""
    if decision.bound == "inconclusive":
        return []
    closeness = min(decision.margin / FIXED.full_margin, 1.0)
    found = [
        Term(name="base", value=FIXED.confidence_base, why="a bound was found"),
        Term(
            name="margin",
            value=round(FIXED.confidence_margin * closeness, 4),
            why=f"{100 * decision.margin:.1f} points from the nearest threshold",
        ),
        *_evidence(decision, ranks, run),
        *_capture(corrected, ranks),
    ]
    if distorted(decision, quality, profiled):
        total = sum(term.value for term in found)
        found.append(
            Term(
                name="observer-effect",
                value=round(min(thresholds.low_confidence - total, 0.0), 4),
                why="a heavy profiler inflates exactly this; the unprofiled step time is unknown",
            )
        )
    return [term for term in found if term.value != 0 or term.name in ("base", "margin")]


def total(found: Sequence[Term]) -> float:
    """The confidence."""
    return float(round(min(max(sum(term.value for term in found), 0.0), 1.0), 3))


def distorted(decision: Decision, quality: Quality, profiled: frozenset[str]) -> bool:
    """Whether overhead decides a heavily profiled trace, with nothing to correct it by."""
    return (
        "overhead" in (decision.bound, *(decision.secondary or "").split("+"))
        and decision.bound in ("overhead", "mixed")
        and quality.observer_effect is None
        and bool(profiled & HEAVY)
    )


def _evidence(decision: Decision, ranks: Sequence[Rank], run: Run | None) -> list[Term]:
    window = sum(rank.summary.window_ns for rank in ranks) or 1
    waited = sum(rank.summary.partition_ns["idle_data_wait"] or 0 for rank in ranks)
    inferred = sum(rank.summary.host.data_wait_inferred_ns for rank in ranks)
    terms = []
    mixed = decision.bound == "mixed"
    deciding = set((decision.secondary or "").split("+")) if mixed else {decision.bound}
    if inferred and "io" in deciding:
        terms.append(
            Term(
                name="inferred-data-wait",
                value=-round(FIXED.penalty_inferred * inferred / waited, 4),
                why="no range marks the data wait; it is inferred from the step thread being "
                "between steps",
            )
        )
    alone = run is None or run.transfer_ns is None
    if alone and "communication" in deciding:
        terms.append(
            Term(
                name="single-rank",
                value=-FIXED.penalty_single_rank,
                why="one rank cannot tell communication from waiting for other ranks",
            )
        )
    unknown = sum(
        (1 - rank.summary.attributed_share) * rank.summary.window_ns
        for rank in ranks
        if rank.summary.attributed_share is not None
    )
    terms.append(
        Term(
            name="unattributed",
            value=-round(min(unknown / window, FIXED.penalty_unattributed), 4)
            if decision.bound != "io"
            else 0.0,
            why="kernel time whose phase is unknown",
        )
    )
    return terms


def _capture(corrected: Corrected, ranks: Sequence[Rank]) -> list[Term]:
    terms = []
    sure = min((r.step_marker.confidence if r.step_marker else 0.0) for r in ranks)
    if all(rank.step_marker is None for rank in ranks):
        terms.append(
            Term(
                name="no-step-marker",
                value=-FIXED.penalty_no_marker,
                why="the whole capture counts as one window",
            )
        )
        covered = min(
            (r.summary.coverage for r in ranks if r.summary.coverage is not None), default=1.0
        )
        terms.append(
            Term(
                name="coverage",
                value=-round(FIXED.penalty_coverage * (1 - covered), 4),
                why="launches without a GPU row, perhaps beyond the end of the capture",
            )
        )
    else:
        terms.append(
            Term(
                name="step-marker",
                value=-round(FIXED.penalty_marker * max(FIXED.sure_marker - sure, 0.0), 4),
                why="how certain it is that the marker delimits training steps",
            )
        )
        used = min(rank.summary.iterations_used for rank in ranks)
        if corrected.drift is not None:
            used = corrected.drift.after.iterations
            terms.append(
                Term(
                    name="prefetch-drained",
                    value=-FIXED.penalty_drained,
                    why=f"only the {used} iterations after the loader's queue ran dry count",
                )
            )
        terms.append(
            Term(
                name="few-iterations",
                value=-FIXED.penalty_few if used < FIXED.few_iterations else 0.0,
                why=f"{used} iterations were used",
            )
        )
    if corrected.split_unknown:
        terms.append(
            Term(
                name="split-unknown",
                value=-FIXED.penalty_split,
                why="one rank cannot split the unprofiled remainder into communication and "
                "overhead",
            )
        )
    return terms
