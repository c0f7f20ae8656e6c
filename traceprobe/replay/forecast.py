"""What findings save, predicted: the iterations played again with what each asks for, and together.

A prediction is no more than what its finding holds to be the most, which knows what the replay does
not. Where that is waiting it is uncertain, too: the interval ends where nobody saves more of the
classes that a finding is about.
Of a finding that other ones name causes of (`CAUSES`), the prediction is of what mending it saves
once these are mended.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import hypot

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from traceprobe.errors import ImpossibleChange
from traceprobe.formatting import listed, significant
from traceprobe.records.class_bound import class_bound_ms, waits_only
from traceprobe.records.prediction import JointPrediction, PredictedSaving
from traceprobe.records.rank import Rank, removable_ms
from traceprobe.records.report import Finding, Report
from traceprobe.records.run import straggler_of
from traceprobe.replay.buckets import rebucketed
from traceprobe.replay.predict import RULES_MARGIN, Playable, Prediction, check, predict_all
from traceprobe.replay.scenario import Changes, together
from traceprobe.verdict.finding_order import CAUSES, in_order

TOGETHER = 3
"""Findings that are played together, as many as a page names first."""


def forecast(
    report: Report,
    run: Playable,
    changes: Mapping[str, Changes],
    first: Callable[[Report], Sequence[Finding]],
) -> tuple[Report, JointPrediction | UnsetType]:
    """The report with the savings that can be predicted, and that of the first findings together.

    Args:
        run: the iterations that the findings are about.
        changes: what mending a finding changes, by id.
        first: the findings to do first, the first first.
    """
    asked = {f.id: changes[f.id] for f in report.findings if f.id in changes}
    asked = {name: each for name, each in asked.items() if _possible(run, each)}
    if not asked:
        return report, UNSET
    gains = _gains(run, asked, {f.id: f.saving_ms_per_step or 0.0 for f in report.findings})
    findings = [
        _predicted(finding, gains[finding.id], asked, run) if finding.id in gains else finding
        for finding in report.findings
    ]
    report = replace(report, findings=in_order(findings))
    chosen = [f for f in first(report) if isinstance(f.predicted, PredictedSaving)][:TOGETHER]
    if len(chosen) < 2:
        return report, UNSET
    unchanged, joint = predict_all(run, [Changes(), _all_of(chosen, asked)])
    doubt = max(asked[finding.id].margin * finding.gain_ms for finding in chosen)
    gain = run.now - joint.predicted
    at_once = _gain(run, joint, unchanged, doubt / gain if gain > 0 else 0.0)
    return report, _joint(run, at_once, chosen)


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
        check(run, changes)
        if changes.bucket_mb is not None:
            rebucketed(run.base.schedules, changes.bucket_mb, run.ranks)
    except ImpossibleChange:
        return False
    return True


class _Step(msgspec.Struct, frozen=True):
    """A step, ms, and the ends of its interval."""

    ms: float
    low: float
    high: float


class _Gain(msgspec.Struct, frozen=True):
    """What a step gets shorter by, ms, and the ends of its interval."""

    ms: float
    low: float
    high: float

    def beyond(self, other: float) -> _Gain:
        """What of it is left where other changes gain so much of it."""
        return _Gain(self.ms - other, self.low - other, self.high - other)

    def within(self, least: float, most: float, highest: float = 0.0) -> _Gain:
        """No less and no more than this; the lower end moves with it and may be less.

        Args:
            highest: what the upper end may be, where that is more than `most`.
        """

        def kept(ms: float, floor: float, ceiling: float) -> float:
            return round(min(max(ms, floor), ceiling), 6)

        low = self.low - max(self.ms - most, 0.0)
        return _Gain(
            kept(self.ms, least, most),
            kept(low, 0.0, most),
            kept(self.high, least, max(most, highest)),
        )


def _gains(
    run: Playable, asked: Mapping[str, Changes], most: Mapping[str, float]
) -> dict[str, _Gain]:
    """What each change gains; those that others name causes of, beyond what these gain.

    Args:
        most: upper bounds of the gains, by the same ids.
    """
    alone, joined = list(asked.values()), []
    general = [name for name in asked if _causes(name, asked)]
    for name in general:
        changes = asked[name]
        for cause in _causes(name, asked):
            changes = together(asked[cause], changes, shared=True)
        joined.append(changes)
    unchanged, *told = predict_all(run, [Changes(), *alone, *joined])
    found = {
        name: _gain(run, each, unchanged, asked[name].margin)
        for name, each in zip(asked, told, strict=False)
    }
    kept = {name: found[name].within(0.0, most[name]).ms for name in asked}
    for name, each in zip(general, told[len(alone) :], strict=True):
        first = sum(kept[cause] for cause in _causes(name, asked))
        found[name] = _gain(run, each, unchanged, asked[name].margin).beyond(first)
    return found


def _causes(name: str, asked: Mapping[str, Changes]) -> list[str]:
    """The findings among some that explain a part of what one is about."""
    return [cause for cause in CAUSES.get(name, ()) if cause in asked]


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
    return _Gain(gain, gain - longer, min(gain + shorter, run.now))


def _predicted(
    finding: Finding, gain: _Gain, asked: Mapping[str, Changes], run: Playable
) -> Finding:
    bound = finding.saving_ms_per_step or 0.0
    kept = gain.within(0.0, bound, _class_bound_ms(run, finding))
    left = _left(run, kept, gain.ms)
    words = listed(asked[finding.id].words())
    if causes := _causes(finding.id, asked):
        are = "is" if len(causes) == 1 else "are"
        words += f", once {' and '.join(f'`{cause}`' for cause in causes)} {are} fixed"
    else:
        ends = f"{significant(left.low)} to {significant(left.high)}"
        words += f"; that leaves {significant(left.ms)} ms a step ({ends})"
    return replace(
        finding,
        predicted=PredictedSaving(
            ms=kept.ms,
            low_ms=kept.low,
            high_ms=kept.high,
            step_ms=left.ms,
            step_low_ms=left.low,
            step_high_ms=left.high,
        ),
        evidence=[*finding.evidence, f"predicted by replaying the recorded steps: {words}"],
    )


def _left(run: Playable, gain: _Gain, played_ms: float) -> _Step:
    """The step that is left where so much of it goes.

    No gain is above its bound, but what is left is a step like any other, which takes another time
    in the next run: its interval is no narrower than what the rules leave out, of what is told and
    of what was played.

    Args:
        gain: what is told. played_ms: what was played, which a bound may have cut.
    """
    ms = run.now - gain.ms
    shortest = run.now - max(gain.ms, played_ms)
    low = min(run.now - gain.high, (1 - RULES_MARGIN) * shortest)
    high = max(run.now - gain.low, min((1 + RULES_MARGIN) * ms, run.now))
    return _Step(*(round(max(each, 0.0), 6) for each in (ms, low, high)))


def _class_bound_ms(run: Playable, finding: Finding) -> float:
    """The most that anybody saves of the classes of a finding, if all of them are waiting; else 0.

    How long a device waits for something is uncertain, and so is what its finding holds to be the
    most.
    """
    if finding.saving_of is UNSET or not waits_only(finding.saving_of):
        return 0.0
    report = run.report
    most = class_bound_ms(
        report.ranks,
        finding.saving_of,
        straggler_of(report.run),
        report.quality.observer_effect,
        report.verdict.shares,
    )
    return min(most, run.now)


def _joint(run: Playable, gain: _Gain, findings: Sequence[Finding]) -> JointPrediction:
    """The findings mended together: no less than the best alone, no more than all their bounds."""
    most = min(_bound_ms(run.report.ranks, straggler_of(run.report.run), findings), run.now)
    least = max(finding.gain_ms for finding in findings)
    left = _left(run, gain.within(least, most), gain.ms)
    return JointPrediction(
        findings=[finding.id for finding in findings],
        now_ms=round(run.now, 6),
        step_ms=left.ms,
        low_ms=left.low,
        high_ms=left.high,
    )


def _bound_ms(ranks: Sequence[Rank], straggler: int | None, findings: Sequence[Finding]) -> float:
    """The most that findings save together: of classes that several are about no more than once."""
    most, seen = 0.0, set[str]()
    for finding in findings:
        bound = finding.saving_ms_per_step or 0.0
        classes = set[str]() if finding.saving_of is UNSET else set(finding.saving_of)
        own = (
            min(bound, removable_ms(ranks, classes - seen, straggler)) if classes & seen else bound
        )
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
