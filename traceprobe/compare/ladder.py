"""An ordered chain of runs: what each rung gained, what limits the last, what to try next."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from msgspec.structs import replace

from traceprobe.compare import text as words
from traceprobe.compare.compare import compare
from traceprobe.compare.run import Observed, as_traced, summarize
from traceprobe.findings.first_fixes import first_fixes
from traceprobe.formatting import pace, significant
from traceprobe.records.comparison import Per, scale_of
from traceprobe.records.ladder import Ladder, Missing, Rung, Suggestion
from traceprobe.records.report import Message, Report
from traceprobe.version import __version__

AS_TRACED = Message(
    "different-bases",
    "Its step without a profiler is not known, so the steps of all rungs are as traced.",
)


def ladder(
    runs: Sequence[Observed],
    changes: Sequence[str] = (),
    missing: Sequence[Missing] = (),
    name: str = "",
) -> Ladder:
    """The chain of `runs`, in their order.

    Args:
        runs: at least one.
        changes: what each rung changes, in words; by default the settings that differ.
        missing: rungs that could not be measured.
        name: of the chain.
    """
    per, known = _per(runs), [run.basis for run in runs]
    last = runs[-1].report
    if len(set(known)) > 1:
        runs = [as_traced(run) for run in runs]
    rungs = [_first(runs[0], changes[0] if changes else "")]
    for place, (before, run) in enumerate(pairwise(runs), start=1):
        change = changes[place] if place < len(changes) else ""
        rungs.append(_rung(runs[0], before, run, change, per))
    if len(set(known)) > 1:
        rungs = [
            rung if basis == "unprofiled" else replace(rung, cautions=[*rung.cautions, AS_TRACED])
            for rung, basis in zip(rungs, known, strict=True)
        ]
    return Ladder(
        schema_version=Ladder.SCHEMA_VERSION,
        traceprobe_version=__version__,
        name=name,
        per=per,
        headline=_headline(rungs, per),
        rungs=rungs,
        missing=list(missing),
        limits=_limits(runs[-1]),
        suggestions=_suggestions(last),
    )


def _rate(run: Observed, per: Per) -> float:
    """What a run gets done in a second, of the unit that all rungs are told in."""
    return 1e3 / (run.best_step_ms * scale_of(summarize(run), per))


def _per(runs: Sequence[Observed]) -> Per:
    """A sample where steps of different rungs hold different numbers of them, else a step.

    One rung that does not say how many it holds leaves only steps to all of them.
    """
    known = [run.per_step("samples") for run in runs]
    return "sample" if None not in known and len(set(known)) > 1 else "step"


def _first(run: Observed, change: str) -> Rung:
    return Rung(
        change=change or "start",
        run=summarize(run),
        speedup=None,
        total_speedup=1.0,
        step=None,
        classes=[],
        explanation=[],
        cautions=[],
    )


def _rung(first: Observed, before: Observed, run: Observed, change: str, per: Per) -> Rung:
    comparison = compare(before, run, per=per)
    return Rung(
        change=change or words.settings_text(comparison.settings) or run.label,
        run=comparison.new,
        speedup=round(_rate(run, per) / _rate(before, per), 4),
        total_speedup=round(_rate(run, per) / _rate(first, per), 4),
        step=comparison.step,
        classes=words.notable(comparison.classes),
        # Its last line says what limits the run: that is said of the last rung.
        explanation=comparison.explanation[:-1],
        cautions=comparison.cautions,
    )


def _headline(rungs: Sequence[Rung], per: Per) -> str:
    """The times at both ends, and which rung gained and lost most beyond the noise."""
    if len(rungs) == 1:
        return "There is no other rung to compare it with."
    ends = [significant(r.run.step_ms * scale_of(r.run, per)) for r in (rungs[0], rungs[-1])]
    real = [r for r in rungs[1:] if r.speedup is not None and r.step is not None and r.step.real]
    text = f"From {ends[0]} to {ends[1]} ms per {per}"
    if not real:
        return f"{text}: no rung changed it beyond the noise."
    ordered = sorted(real, key=lambda r: r.speedup or 0)
    if (ordered[-1].speedup or 0) > 1:
        text += f"; the largest gain is {_change(ordered[-1])}"
    if (ordered[0].speedup or 0) < 1:
        text += f"; the largest loss is {_change(ordered[0])}"
    return f"{text}."


def _change(rung: Rung) -> str:
    return f"{rung.change} ({pace(rung.speedup or 0)})"


def _limits(run: Observed) -> str:
    summary = summarize(run)
    largest = words.largest_class(summary)
    return f"{words.bound_text(summary)}{f' ({largest})' if largest else ''}"


def _suggestions(report: Report) -> list[Suggestion]:
    """The first fixes of a report that promise a saving of a part of its step."""
    effect = report.quality.observer_effect
    means = [r.summary.step_ms.mean for r in report.ranks if r.summary.step_ms]
    whole = effect.step_ms if effect else max(means, default=0.0)
    return [
        Suggestion(
            finding=finding.id,
            title=finding.title,
            saving_ms_per_step=saving,
            speedup=round(whole / (whole - finding.gain_ms), 4),
            advice=finding.advice,
            predicted=finding.predicted,
        )
        for finding in first_fixes(report)
        if (saving := finding.saving_ms_per_step) and saving < whole
    ]
