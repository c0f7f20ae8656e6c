"""How sure the verdict is: a sum of terms, each printed with its reason.

confidence = 0.5 + 0.45 · min(1, margin / 0.15) − penalties, clamped to [0, 1]; `margin` is the
distance, as a share of the step, to the nearest threshold that would change the answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import UNSET

from traceprobe.formatting import counted, percent
from traceprobe.records.rank import Rank
from traceprobe.records.report import Quality, Term
from traceprobe.records.run import Run
from traceprobe.verdict.bounds import Decision
from traceprobe.verdict.compared_steps import HEAVY
from traceprobe.verdict.correction import Corrected
from traceprobe.verdict.pipeline import mostly_turns
from traceprobe.verdict.thresholds import FIXED, Thresholds

DAMAGE = frozenset(
    {
        *("calls-unrecorded", "clock-offset", "damaged-tables", "duplicate-rows"),
        *("filtered-export", "graph-launches-unrecorded", "gzip-checksum"),
        "implausible-calibration",
        *("impossible-durations", "missing-pages", "no-real-tables", "overlapping-kernels"),
        *("oversized-events", "ranks-contradicted", "several-processes", "shared-gpu"),
        *("starts-before-launch", "truncated-file", "unfinished-write", "zero-durations"),
    }
)
"""Codes of warnings that rows are missing or wrong, of which each costs confidence."""
OTHER_RUN = ("clocks-disjoint", "collectives-unmatched")
"""Warnings by which the ranks may be of different runs."""
RANK_DOUBTS = ("identical-inputs", "ranks-missing", *OTHER_RUN)
"""Warnings that leave open what ranks wait for."""


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
    why = f"{100 * decision.margin:.1f} points from the nearest threshold"
    listed = [
        _term("base", FIXED.confidence_base, "a bound was found"),
        _term("margin", FIXED.confidence_margin * closeness, why),
        *_evidence(decision, ranks, run, quality),
        *_capture(corrected, ranks, thresholds),
        *_damage(quality),
    ]
    if any(warning.code == "truncated-steps" for warning in quality.warnings):
        why = "the file is cut off, and any step may lack a part of its work"
        listed.append(_term("truncated-steps", _down_to(thresholds.low_confidence, listed), why))
    if corrected.assumed_wait:
        why = "that the run waits for data is concluded from how long a step takes"
        listed.append(_term("assumed-wait", _down_to(thresholds.low_confidence, listed), why))
    if distorted(decision, quality, profiled):
        why = "a heavy profiler inflates exactly this; the unprofiled step time is unknown"
        listed.append(_term("observer-effect", _down_to(thresholds.low_confidence, listed), why))
    return [term for term in listed if term.value != 0 or term.name in ("base", "margin")]


def total(terms: Sequence[Term]) -> float:
    """The confidence."""
    return float(round(min(max(sum(term.value for term in terms), 0.0), 1.0), 3))


def distorted(decision: Decision, quality: Quality, profiled: frozenset[str]) -> bool:
    """Whether overhead decides a heavily profiled trace, with nothing to correct it by."""
    return (
        "overhead" in decision.deciding
        and quality.observer_effect is None
        and bool(profiled & HEAVY)
    )


def _term(name: str, value: float, why: str) -> Term:
    return Term(name=name, value=round(value, 4), why=why)


def _down_to(most: float, listed: Sequence[Term]) -> float:
    """What leaves at most so much of a confidence."""
    return min(most - sum(term.value for term in listed), 0.0)


def _evidence(
    decision: Decision, ranks: Sequence[Rank], run: Run | None, quality: Quality
) -> Iterator[Term]:
    window = sum(rank.summary.window_ns for rank in ranks) or 1
    waited = sum(rank.summary.partition_ns["idle_data_wait"] or 0 for rank in ranks)
    inferred = sum(rank.summary.host.data_wait_inferred_ns for rank in ranks)
    if inferred and "io" in decision.deciding:
        yield _term(
            "inferred-data-wait",
            -FIXED.penalty_inferred * inferred / waited,
            f"{percent(inferred / waited)} of the data wait is in no range that marks it; it is "
            "inferred from the step thread being between steps",
        )
    codes = {warning.code for warning in quality.warnings}
    communicates = "communication" in decision.deciding
    if communicates and mostly_turns(ranks):
        pass  # what the devices of one process wait for is in its trace
    elif communicates and (run is None or run.transfer_ns is None):
        why = "one rank cannot tell communication from waiting for other ranks"
        yield _term("single-rank", -FIXED.penalty_single_rank, why)
    elif codes.intersection(RANK_DOUBTS if communicates else OTHER_RUN):
        why = "it is in doubt that these are the ranks of one run, and all of them"
        yield _term("single-rank", -FIXED.penalty_single_rank, why)
    if decision.bound != "io":
        unknown = sum(
            (1 - rank.summary.attributed_share) * rank.summary.window_ns
            for rank in ranks
            if rank.summary.attributed_share is not None
        )
        share = min(unknown / window, FIXED.penalty_unattributed)
        yield _term("unattributed", -share, "kernel time whose phase is unknown")


def _damage(quality: Quality) -> Iterator[Term]:
    found = sorted({warning.code for warning in quality.warnings} & DAMAGE)
    if quality.events_lost:
        found.append("events-lost")
    if quality.lost is not UNSET:
        found.append("rank-lost")
    if found:
        cost = min(len(found) * FIXED.penalty_damage, FIXED.penalty_damage_most)
        yield _term("damage", -cost, f"rows are missing or wrong: {', '.join(found)}")


def _capture(corrected: Corrected, ranks: Sequence[Rank], thresholds: Thresholds) -> Iterator[Term]:
    if all(rank.step_marker is None for rank in ranks):
        why = "the whole capture counts as one window"
        yield _term("no-step-marker", -FIXED.penalty_no_marker, why)
        shares = [r.summary.coverage for r in ranks if r.summary.coverage is not None]
        why = "launches without a GPU row, perhaps beyond the end of the capture"
        yield _term("coverage", -FIXED.penalty_coverage * (1 - min(shares, default=1.0)), why)
    else:
        sure = min((r.step_marker.confidence if r.step_marker else 0.0) for r in ranks)
        doubt = max(FIXED.sure_marker - sure, 0.0)
        why = "how certain it is that the marker delimits training steps"
        yield _term("step-marker", -FIXED.penalty_marker * doubt, why)
        used = min(rank.summary.iterations_used for rank in ranks)
        if corrected.drift is not None:
            used = corrected.drift.after.iterations
            why = f"only the {used} iterations after the loader's queue ran dry count"
            yield _term("prefetch-drained", -FIXED.penalty_drained, why)
        if used < thresholds.min_iterations:
            above = FIXED.confidence_base + FIXED.confidence_margin - FIXED.most_of_few
            yield _term(
                "few-iterations",
                -above,
                f"only {counted(used, 'iteration was', 'iterations were')} used",
            )
        elif used < FIXED.few_iterations:
            yield _term("few-iterations", -FIXED.penalty_few, f"{used} iterations were used")
    if corrected.calibration_doubt is not None:
        why = "the unprofiled step may be that of other conditions than the capture's"
        if corrected.unseen_loader:
            why = "the capture may have had batches ready, and the run waits for its loader"
        yield _term("calibration", -max(FIXED.penalty_calibration, corrected.unseen), why)
    if corrected.taken_over:
        why = "how much of the host's time is the profiler's is not known of this run"
        yield _term("taken-over", -corrected.taken_over, why)
    if corrected.split_unknown:
        why = "one rank cannot split the unprofiled remainder into communication and overhead"
        yield _term("split-unknown", -FIXED.penalty_split, why)
