"""The sentences of a verdict: what was decided, by which numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from msgspec import UNSET, UnsetType

from traceprobe.formatting import duration, listed, per, percent, significant, within_sentence
from traceprobe.model.taxonomy import BOUND_LABELS, SHARE_LABELS
from traceprobe.records.rank import Rank, mean_step_ms
from traceprobe.records.report import Bound, Term, Verdict
from traceprobe.records.run import Run
from traceprobe.verdict.bounds import CANDIDATES, Decision
from traceprobe.verdict.confidence import total
from traceprobe.verdict.correction import Corrected
from traceprobe.verdict.drift import Drift
from traceprobe.verdict.no_training import runs_on_cpu, steps_are_ranges
from traceprobe.verdict.pipeline import bubble_ms, mostly_turns
from traceprobe.verdict.thresholds import FIXED, Thresholds

_SUBJECT = {
    "io": "waiting for input data or copying it to the GPU",
    "communication": "communication that no computation hides",
    "overhead": "host overhead (the GPU waits for Python, the framework, launches or "
    "synchronisation)",
    "compute": "computation on the GPU",
}
_ON_CPU = {
    **_SUBJECT,
    "compute": "computation",
    "io": "waiting for input data",
    "overhead": "time between operators (Python and the framework)",
}
_DOUBTS = {
    "observer-effect": "the profiler's own cost is unknown",
    "truncated-steps": "the file is cut off, and any step may lack a part of its work",
    "margin": "the shares are close to another verdict",
    "inferred-data-wait": "no range marks the waiting for data",
    "unattributed": "the phase of many kernels is unknown",
    "damage": "rows are missing or wrong",
    "no-step-marker": "no steps were found, so the whole capture was judged",
    "coverage": "many launches have no GPU row",
    "step-marker": "it is not certain what a step is",
}
"""Why a verdict is not sure, by the term of its confidence; of others the term says it."""
_IDLE = {
    "idle_host": "late launches",
    "idle_sync": "synchronisation",
    "idle_latency": "launch and dependency latency",
}

_OF_OTHER = {
    "d2h": "exposed copies to the host",
    "idle_unexplained": "idle time that nothing explains",
    "idle_profiler": "the profiler's own work",
}


def bound_label(bound: Bound, confidence: float, thresholds: Mapping[str, float]) -> str:
    """What the verdict is called, with "possibly" where it is hardly more than a guess.

    Args:
        thresholds: those of the verdict, by name.
    """
    label = BOUND_LABELS[bound]
    if bound == "inconclusive" or confidence > thresholds.get("low_confidence", 0.0):
        return label
    return f"Possibly {within_sentence(label)}"


def doubt(terms: Sequence[Term]) -> str:
    """What takes most from the confidence, in words; empty where nothing does."""
    losses = {
        term.name: (FIXED.confidence_margin if term.name == "margin" else 0.0) - term.value
        for term in terms
        if term.name != "base"
    }
    if not losses or max(losses.values()) <= 0:
        return ""
    decisive = [name for name in ("truncated-steps", "observer-effect") if name in losses]
    name = decisive[0] if decisive else max(losses, key=losses.__getitem__)
    return _DOUBTS.get(name) or next(term.why for term in terms if term.name == name)


def sure_percent(confidence: float) -> str:
    """The confidence in whole percent, cut off: 79.5 % are not yet the 80 % that count as high."""
    return f"{int(round(100 * confidence, 3))} %"


def how_sure(verdict: Verdict) -> str:
    """The confidence in words, and what it lacks; empty for an inconclusive verdict."""
    if verdict.bound == "inconclusive":
        return ""
    number = sure_percent(verdict.confidence)
    if verdict.confidence >= FIXED.sure:
        return f"high confidence ({number})"
    if verdict.headline.startswith("Possibly"):  # which says why
        return f"low confidence ({number})"
    word = "medium" if verdict.confidence >= FIXED.fairly_sure else "low"
    why = doubt(verdict.confidence_terms)
    return f"{word} confidence ({number}){f': {why}' if why else ''}"


def runner_up(bound: Bound, secondary: str | None) -> str:
    """What comes after the bound; of a mixed verdict what is mixed; empty where nothing does."""
    names = [SHARE_LABELS.get(name, name) for name in (secondary or "").split("+") if name]
    return " and ".join(names) if bound == "mixed" or not names else f"then {names[0]}"


def headline(
    decision: Decision,
    corrected: Corrected,
    ranks: Sequence[Rank],
    terms: Sequence[Term],
    thresholds: Thresholds,
) -> str:
    """What bounds the run; where that is hardly more than a guess, first that it is, and why."""
    said = _headline(decision, corrected, ranks)
    label = bound_label(decision.bound, total(terms), thresholds.as_dict())
    return f"{label}: {doubt(terms)}. {said}" if label.startswith("Possibly") else said


def _headline(decision: Decision, corrected: Corrected, ranks: Sequence[Rank]) -> str:
    if decision.bound == "inconclusive":
        return f"No verdict: {decision.missing[0]}."
    every = _every(corrected)
    if decision.bound == "mixed":
        first, second = decision.deciding
        return (
            f"Two causes are about equal: {100 * corrected.shares[first]:.0f} %{every} goes to "
            f"{_subject(first, corrected, ranks)}, {100 * corrected.shares[second]:.0f} % to "
            f"{_subject(second, corrected, ranks)}."
        )
    share = corrected.shares[decision.bound]
    return f"{100 * share:.0f} %{every} goes to {_subject(decision.bound, corrected, ranks)}."


def _every(corrected: Corrected) -> str:
    """What the shares are parts of; beside it the step with, or without, the profiler.

    Predictions are of the step without a profiler, so it is named where the shares are of another.
    """
    step = corrected.step_ms
    if step is None:
        return " of the capture"
    every = f" of each {significant(step)} ms step"
    others = (
        (corrected.unprofiled_step_ms, 1 + FIXED.misfit, "without"),
        (corrected.profiled_step_ms, FIXED.distortion, "with"),
    )
    for other, factor, word in others:
        if other is not None and max(other / step, step / other) >= factor:
            return f"{every} ({significant(other)} ms {word} the profiler)"
    return every


def _subject(name: str, corrected: Corrected, ranks: Sequence[Rank]) -> str:
    """What a share is; communication that is mostly waiting between stages by its own name."""
    bubble = bubble_ms(ranks) if name == "communication" else None
    steps = [rank.summary.window_ns / rank.summary.steps / 1e6 for rank in ranks]
    exposed = corrected.shares[name] * sum(steps) / max(len(steps), 1)
    if bubble is None or bubble < FIXED.mostly_bubble * exposed:
        return (_ON_CPU if runs_on_cpu(ranks) else _SUBJECT)[name]
    return f"{_SUBJECT[name]}, most of it pipeline bubble: stages that wait for each other"


def reasons(
    decision: Decision,
    corrected: Corrected,
    ranks: Sequence[Rank],
    run: Run | None,
    thresholds: Thresholds,
) -> list[str]:
    """The numbers behind the decision, most important first."""
    sentences = []
    shares = corrected.shares
    if decision.bound == "compute" and any(r.step_marker for r in ranks):
        sentences.append(_why_compute(corrected, thresholds))
    elif decision.bound != "inconclusive":
        threshold = thresholds.mixed if decision.bound == "mixed" else thresholds.bound
        if not any(r.step_marker for r in ranks):
            threshold = thresholds.whole_capture
        sentences += [
            f"{SHARE_LABELS[name]} takes {percent(shares[name])} "
            f"(threshold {percent(threshold, 0)})"
            for name in decision.deciding
        ]
    profiled, step_ms = corrected.profiled_step_ms, corrected.step_ms
    longer = profiled is not None and profiled >= FIXED.distortion * (step_ms or profiled)
    beside = " under the profiler" if longer else ""  # what the capture has, before corrections
    sentences += _data_wait(ranks, corrected.drift, beside)
    sentences += _idle(ranks, beside)
    if shares["other"] >= thresholds.notable:
        sentences += _other(ranks, beside, corrected.unexplained_wait)
    if run is not None and run.transfer_ns is not None and run.skew_ns is not None:
        step = mean_step_ms(ranks)
        unit = per(step is not None)
        # What all that are there wait for one that is not looks like transfer.
        most = "at most " if len(ranks) < run.world_size else ""
        sentences.append(
            f"collectives take {most}{duration(run.transfer_ns)} {unit} for transfer and "
            f"{duration(run.skew_ns)} for waiting for other ranks"
        )
        sentences += late(run, step)
    elif decision.bound == "communication" and mostly_turns(ranks):
        waits = fmean(r.summary.host.awaiting_device_ns() / r.summary.steps for r in ranks)
        sentences.append(
            f"each GPU idles for {duration(waits)} {per(mean_step_ms(ranks) is not None)} while "
            "another one of the process computes what it waits for"
        )
    elif decision.bound == "communication" and run is not None and len(ranks) >= run.world_size:
        sentences.append(
            "how much of it is waiting for other ranks is not known: their collectives could not "
            "be matched"
        )
    elif decision.bound == "communication":
        sentences.append(
            "one rank cannot tell communication from waiting for other ranks; analyse the files "
            "of all ranks together"
        )
    return sentences + corrected.notes


def _why_compute(corrected: Corrected, thresholds: Thresholds) -> str:
    """That nothing else is large enough; overhead that was ruled out may be, and is named."""
    shares = {name: corrected.shares[name] for name in CANDIDATES}
    overhead = shares["overhead"]
    if corrected.overhead_ruled_out:
        del shares["overhead"]
    largest = max(shares, key=lambda name: shares[name])
    if shares[largest] >= thresholds.notable:
        return (
            f"{SHARE_LABELS[largest]} takes {percent(shares[largest])}, below the "
            f"{percent(thresholds.bound, 0)} that would make it the bound"
        )
    notable = percent(thresholds.notable, 0)
    if overhead < thresholds.notable:
        return f"I/O, communication and overhead each take less than {notable}"
    return (
        f"I/O and communication each take less than {notable}; overhead takes {percent(overhead)} "
        "of the recorded step"
    )


def late(run: Run, step_ms: float | None) -> list[str]:
    """Which rank comes last to the collectives, and why; nothing where hardly any rank waits."""
    if not isinstance(run.unseen_skew_ms, UnsetType):
        return [
            f"without the profiler the other ranks wait {significant(run.unseen_skew_ms)} ms a "
            f"step for rank {run.straggler_rank}, whose loader is late"
        ]
    if run.straggler_rank is not None:
        who = f"the other ranks wait for rank {run.straggler_rank}"
        if run.straggler_cause is not None and run.straggler_cause != "other":
            who += f", which spends more time on {SHARE_LABELS[run.straggler_cause]}"
    elif run.late_ranks is not UNSET:
        who = f"the other ranks wait for ranks {listed([*map(str, run.late_ranks)])}"
    elif step_ms is not None and (run.skew_ns or 0) / 1e6 > FIXED.straggling * step_ms:
        who = "no single rank is the straggler: ranks take turns being last"
    else:
        return []
    causes = [
        f"{'unexplained' if name == 'other' else SHARE_LABELS[name]} {percent(part, 0)}"
        for name, part in (run.skew_causes or {}).items()
        if part >= FIXED.reported_cause
    ]
    return [who, f"why ranks are late: {', '.join(causes)}"] if causes else [who]


def _data_wait(ranks: Sequence[Rank], drift: Drift | None, beside: str) -> list[str]:
    waited = sum(r.summary.partition_ns["idle_data_wait"] or 0 for r in ranks)
    inferred = sum(r.summary.host.data_wait_inferred_ns for r in ranks)
    window = sum(r.summary.window_ns for r in ranks) or 1
    if waited / window < FIXED.reported_idle and drift is None:
        return []
    steps = sum(r.summary.iterations_used for r in ranks)
    amount = f"{duration(waited / steps)} per step" if steps else f"{percent(waited / window, 0)}"
    if drift is not None:
        amount = f"{duration(drift.after.data_wait_ns)} per step"
    # Elsewhere it is told by a host that makes no call.
    where = "between steps" if steps_are_ranges(ranks) else "in no call"
    if inferred <= FIXED.mostly_inferred * waited:
        where = "inside data-loading ranges"
    who = "step" if runs_on_cpu(ranks) else "GPU"
    return [f"the {who} waits {amount} for data{beside}, while the step thread is {where}"]


def _other(ranks: Sequence[Rank], beside: str, waiting: float) -> list[str]:
    """What the share is of that is none of the four.

    Args:
        waiting: share of waiting for ranks that have more of nothing.
    """
    steps = sum(r.summary.steps for r in ranks)
    parts = {
        text: sum(r.summary.partition_ns[name] or 0 for r in ranks) / steps
        for name, text in _OF_OTHER.items()
    }
    unit = per(any(r.summary.iterations_used for r in ranks))
    told = [f"{text} {duration(ns)}" for text, ns in parts.items() if ns]
    said = [f"what counts as other, {unit}{beside}: {', '.join(told)}"] if told else []
    if waiting >= FIXED.reported_part:
        said.append(
            f"{percent(waiting)} is waiting for ranks that are late for no visible cause, and "
            "counts as other, too"
        )
    return said


def _idle(ranks: Sequence[Rank], beside: str) -> list[str]:
    window = sum(r.summary.window_ns for r in ranks) or 1
    parts = {
        text: sum(r.summary.partition_ns[name] or 0 for r in ranks) / window
        for name, text in _IDLE.items()
    }
    if max(parts.values()) < FIXED.reported_idle:
        return []
    if runs_on_cpu(ranks):
        return [f"between operators, in Python and the framework: {percent(sum(parts.values()))}"]
    reported = (
        f"{text} {percent(share)}" for text, share in parts.items() if share >= FIXED.reported_part
    )
    besides = f"data waits,{beside}" if beside else "data waits"
    return [f"idle time besides {besides}: {', '.join(reported)}"]
