"""The verdict of a report: one sentence, how sure it is, the shares, and how it was decided."""

from __future__ import annotations

from collections.abc import Iterator

from traceprobe.formatting import signed
from traceprobe.model.taxonomy import SHARE_MEANINGS
from traceprobe.records.report import Report, Verdict
from traceprobe.render.bars import share_bar
from traceprobe.render.document import Bars, Block, Facts, Section, Table, Text
from traceprobe.verdict import wording

_HELP = (
    "A share is the part of a step that goes to one cause, after the profiler's own cost and the "
    "waiting for late ranks are taken out. The run is bound by what has the largest share from the "
    "threshold “bound” on, and by compute where nothing else reaches it. The confidence says how "
    "far the shares are from another verdict, less what makes the trace doubtful."
)


def sentence(verdict: Verdict) -> str:
    """The headline, without the title that it begins with where the verdict is a guess."""
    title = wording.bound_label(verdict.bound, verdict.confidence, verdict.thresholds)
    said = verdict.headline.removeprefix(f"{title}: ")
    return said if said == verdict.headline else said[:1].upper() + said[1:]


def doubt(verdict: Verdict) -> str:
    """How sure the verdict is, in words; empty without a verdict."""
    sure = wording.how_sure(verdict)
    if any(term.name == "observer-effect" for term in verdict.confidence_terms):
        # Why is in the sentence before.
        sure = sure.partition(":")[0]
        sure += ": time the same loop without a profiler and pass that as `--unprofiled-step-ms`"
    return f"{sure[:1].upper()}{sure[1:]}." if sure else ""


def verdict_blocks(report: Report) -> Iterator[Block]:
    """The shares, what is missing for a verdict, and a fold with all that decided it."""
    verdict = report.verdict
    if verdict.shares:
        used = any(rank.summary.iterations_used for rank in report.ranks)
        whole = f"parts of the {'used iterations' if used else 'capture'}"
        if report.quality.observer_effect or (report.run and report.run.transfer_ns is not None):
            whole += ", after corrections"
        bar = share_bar("", verdict.shares, SHARE_MEANINGS, whole)
        decided = verdict.bound != "inconclusive"
        caption = "Shares that decide the verdict" if decided else "Shares of what was recorded"
        yield Bars(caption, "share of the step", [bar], relative=True, terse=True)
    else:
        yield Text(["No shares: nothing could be measured."])
    if verdict.missing[1:]:  # the headline has the first
        yield Section("", "What is missing too", blocks=[Text(verdict.missing[1:])])
    yield Section("decided", "How this was decided", blocks=[*_decided(verdict)], folded=True)


def _decided(verdict: Verdict) -> Iterator[Block]:
    yield Text([_HELP])
    if verdict.reasons:
        yield Section("", "Why", blocks=[Text(verdict.reasons)])
    terms = [[term.name, signed(term.value), term.why] for term in verdict.confidence_terms]
    table = Table("Its terms", ["term", "adds", "because"], terms, frozenset({1}))
    title = f"Confidence {wording.sure_percent(verdict.confidence)}"
    yield Section("", title, blocks=[table] if terms else [])
    if verdict.thresholds:
        numbers = sorted(verdict.thresholds.items())
        facts = Facts([(key.replace("_", " "), f"{value:g}") for key, value in numbers])
        yield Section("", "Thresholds", blocks=[facts])
