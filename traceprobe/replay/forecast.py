"""What findings save, predicted: the iterations played again with what each asks for, and together.

A prediction is no more than the upper bound of its finding, which knows what the replay does not:
that nobody saves more of a class than there is. Both ends of its interval are held to that, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import hypot

from msgspec import UNSET
from msgspec.structs import replace

from traceprobe.errors import ImpossibleChange
from traceprobe.model.taxonomy import STATUS_LABELS
from traceprobe.records.prediction import JointPrediction, PredictedSaving
from traceprobe.records.rank import Rank, mean_class_ms
from traceprobe.records.report import Finding, Report
from traceprobe.replay.buckets import rebucketed
from traceprobe.replay.predict import RULES_MARGIN, Playable, Prediction, predict, predict_all
from traceprobe.replay.scenario import Changes, check, together

TOGETHER = 3
"""Findings that are played together, as many as a page names first."""


def in_order(findings: Sequence[Finding]) -> list[Finding]:
    """Worst first, then by what mending them gains, then by id."""
    order = list(STATUS_LABELS)
    return sorted(findings, key=lambda f: (order.index(f.status), *f.by_gain, f.id))


def forecast(
    report: Report,
    run: Playable,
    changes: Mapping[str, Changes],
    first: Callable[[Report], Sequence[Finding]],
) -> Report:
    """The report with the savings that can be predicted, and those of the first findings together.

    Args:
        run: the iterations that the findings are about.
        changes: what mending a finding changes, by id.
        first: the findings to do first, the first first.
    """
    asked = {f.id: changes[f.id] for f in report.findings if f.id in changes}
    asked = {name: each for name, each in asked.items() if _possible(run, each)}
    if not asked:
        return report
    unchanged, *told = predict_all(run, [Changes(), *asked.values()])
    gains = {
        name: _gain(run, each, unchanged, asked[name].margin)
        for name, each in zip(asked, told, strict=True)
    }
    findings = [
        _predicted(finding, gains[finding.id], asked[finding.id])
        if finding.id in gains
        else finding
        for finding in report.findings
    ]
    report = replace(report, findings=in_order(findings))
    chosen = [f for f in first(report) if isinstance(f.predicted, PredictedSaving)][:TOGETHER]
    if len(chosen) < 2:
        return report
    joint = predict(run, _all_of(chosen, asked))
    doubt = max(asked[finding.id].margin * finding.gain_ms for finding in chosen)
    gain = run.now - joint.predicted
    at_once = _gain(run, joint, unchanged, doubt / gain if gain > 0 else 0.0)
    return replace(report, joint=_joint(run, at_once, chosen))


def within_reach_ms(
    run: Playable, findings: Sequence[Finding], changes: Mapping[str, Changes]
) -> float:
    """How much shorter a step gets at least with all of some findings mended, ms.

    Args:
        findings: with their predictions. changes: what mending them changes, by id.
    """
    chosen = [f for f in findings if isinstance(f.predicted, PredictedSaving)]
    if not chosen:
        return 0.0
    unchanged, told = predict_all(run, [Changes(), _all_of(chosen, changes)])
    gain = run.now - told.predicted
    doubt = hypot(*(changes[finding.id].margin * finding.gain_ms for finding in chosen))
    at_once = _gain(run, told, unchanged, doubt / gain if gain > 0 else 0.0)
    most = sum(finding.saving_ms_per_step or 0.0 for finding in chosen)
    return float(at_once.within(0.0, most).low)


def _possible(run: Playable, changes: Changes) -> bool:
    """Whether the run has what is changed."""
    try:
        for schedule in run.base.schedules:
            check(schedule, changes)
        if changes.bucket_mb is not None:
            rebucketed(run.base.schedules, changes.bucket_mb, run.ranks)
    except ImpossibleChange:
        return False
    return True


@dataclass(frozen=True)
class _Gain:
    """What a step gets shorter by, ms, and the ends of its interval."""

    ms: float
    low: float
    high: float

    def within(self, least: float, most: float) -> _Gain:
        """No less and no more than this; the lower end moves with it and may be less."""

        def kept(ms: float, floor: float) -> float:
            return round(min(max(ms, floor), most), 6)

        low = self.low - max(self.ms - most, 0.0)
        return _Gain(kept(self.ms, least), kept(low, 0.0), kept(self.high, least))


def _gain(run: Playable, told: Prediction, unchanged: Prediction, margin: float) -> _Gain:
    """How much shorter a step gets.

    What makes the step as it is uncertain makes it so with the change, too: of that only the part
    counts that the gain is of the step.

    Args:
        told, unchanged: the step with the change, and without. margin: see `Changes`.
    """
    gain = run.now - told.predicted
    kept = told.predicted / run.now

    def apart(side: float, usual: float) -> float:
        own = max(side - kept * usual, RULES_MARGIN * told.predicted)
        return hypot(own + (1 - kept) * usual, margin * gain)

    longer = apart(told.high - told.predicted, unchanged.high - unchanged.predicted)
    shorter = apart(told.predicted - told.low, unchanged.predicted - unchanged.low)
    return _Gain(gain, gain - longer, gain + shorter)


def _predicted(finding: Finding, gain: _Gain, changes: Changes) -> Finding:
    kept = gain.within(0.0, finding.saving_ms_per_step or 0.0)
    words = " and ".join(changes.words())
    return replace(
        finding,
        predicted=PredictedSaving(ms=kept.ms, low_ms=kept.low, high_ms=kept.high),
        evidence=[*finding.evidence, f"predicted by playing the steps again: {words}"],
    )


def _joint(run: Playable, gain: _Gain, findings: Sequence[Finding]) -> JointPrediction:
    """The findings mended together: no less than the best alone, no more than all their bounds."""
    most = min(_bound_ms(run.report.ranks, findings), run.now)
    least = max(finding.gain_ms for finding in findings)
    kept = gain.within(least, most)
    return JointPrediction(
        findings=[finding.id for finding in findings],
        now_ms=round(run.now, 6),
        step_ms=round(run.now - kept.ms, 6),
        low_ms=round(run.now - kept.high, 6),
        high_ms=round(run.now - kept.low, 6),
    )


def _bound_ms(ranks: Sequence[Rank], findings: Sequence[Finding]) -> float:
    """The most that findings save together: of classes that several are about no more than once."""
    most, seen = 0.0, set[str]()
    for finding in findings:
        bound = finding.saving_ms_per_step or 0.0
        classes = set[str]() if finding.saving_of is UNSET else set(finding.saving_of)
        own = min(bound, mean_class_ms(ranks, classes - seen)) if classes & seen else bound
        most = max(most + own, bound)
        seen |= classes
    return most


def _all_of(findings: Sequence[Finding], changes: Mapping[str, Changes]) -> Changes:
    """What mending all of the findings changes; what makes the same work faster counts once."""
    joined, seen = Changes(), set[str]()
    for finding in findings:
        classes = set[str]() if finding.saving_of is UNSET else set(finding.saving_of)
        joined = together(joined, changes[finding.id], shared=bool(classes & seen))
        seen |= classes
    return joined
