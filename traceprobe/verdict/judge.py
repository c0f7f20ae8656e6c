"""The verdict of a run, from what its ranks are and how good its traces are."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import UNSET

from traceprobe.records.rank import Rank, mean_step_ms
from traceprobe.records.report import Quality, Verdict
from traceprobe.records.run import Run
from traceprobe.verdict import confidence, drift, wording
from traceprobe.verdict.bounds import decide
from traceprobe.verdict.compared_steps import fed_before, timed_waits_ns
from traceprobe.verdict.correction import correct, with_unseen_loader
from traceprobe.verdict.thresholds import FIXED, Thresholds


def judge(
    ranks: Sequence[Rank],
    run: Run | None,
    quality: Quality,
    profiled: frozenset[str],
    unprofiled_ns: float | None,
    thresholds: Thresholds,
    doubt: str | None = None,
    load_ms: float | None = None,
) -> Verdict:
    """The verdict of a run.

    Args:
        ranks: every device of every process, with its summary.
        profiled: marks of profiling found in the inputs (`Trace.profiled`).
        unprofiled_ns: step time without a profiler, if known.
        doubt: why that step is not the one of the profiled steps, where it may not be.
        load_ms: time in which the loader makes the batches of a step, if known.
    """
    unprofiled_ms = None if unprofiled_ns is None else unprofiled_ns / 1e6
    timed = bool(timed_waits_ns(ranks))
    before = fed_before(ranks, load_ms, mean_step_ms(ranks), unprofiled_ms, doubt)
    drained = drift.find_drift(ranks, thresholds)
    steps = (unprofiled_ns, profiled, drained, doubt, before)
    corrected = correct(ranks, run, *steps, keeps_up=_keeps_up(load_ms, unprofiled_ms))
    if load_ms is None and not timed:
        corrected = with_unseen_loader(corrected, ranks)
    decision = decide(corrected, ranks, quality, thresholds)
    terms = confidence.terms(decision, corrected, ranks, run, quality, profiled, thresholds)
    return Verdict(
        bound=decision.bound,
        secondary=decision.secondary,
        headline=wording.headline(decision, corrected, ranks, terms, thresholds),
        confidence=confidence.total(terms),
        confidence_terms=terms,
        shares=corrected.shares,
        reasons=wording.reasons(decision, corrected, ranks, run, thresholds),
        missing=list(decision.missing),
        thresholds=thresholds.as_dict(),
        skew=UNSET if corrected.skew is None else round(corrected.skew, 6),
    )


def _keeps_up(load_ms: float | None, step_ms: float | None) -> bool:
    """Whether a loader is known to make batches faster than steps use them."""
    return load_ms is not None and step_ms is not None and load_ms * FIXED.distortion < step_ms
