"""Do some iterations do extra work?"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import UNSET, UnsetType

from traceprobe.findings.evidence import Evidence, Saving
from traceprobe.findings.garbage_collection import LESS_COLLECTING
from traceprobe.findings.host_stalls import collections
from traceprobe.findings.recorded_cores import taken
from traceprobe.findings.recorded_pace import in_doubt, several_paces
from traceprobe.findings.rule import Answer, rule
from traceprobe.formatting import duration, ordinal, percent, significant
from traceprobe.model.taxonomy import BUSY, CLASS_LABELS
from traceprobe.records.rank import LongIterations
from traceprobe.records.report import Status
from traceprobe.records.sites import extra_owners, find_sites
from traceprobe.verdict.outliers import how_many
from traceprobe.verdict.thresholds import FIXED

_ADVICE = {
    "d2h": "Copy checkpoints to pinned memory and write them in the background "
    "(`torch.distributed.checkpoint.async_save`), or save less often.",
    "communication": "Another rank was late in those iterations, and this one waited for it: check "
    "what the others do there.",
}
_LOADING = (
    "Load what is loaded there with workers, or less often: the batches of an evaluation, or of an "
    "epoch that begins"
)
_ALIVE = ", whose workers then have to start (`persistent_workers=True` keeps them)"
_STARTS = (
    "Keep the loader's workers (`persistent_workers=True`): they start anew with each epoch. Load "
    "what another loader loads there, as of an evaluation, with workers, or less often."
)
_FORWARD = (
    "They run forward work without a backward pass: evaluation, or rollouts. Evaluate less often, "
    "on fewer batches, or in another process; play rollouts in more environments at once."
)
_OUTPUTS = (
    "They run forward work without a backward pass, and copy what comes of it to the host: reduce "
    "it on the GPU before (`argmax`, sums; `preprocess_logits_for_metrics` of `transformers`), or "
    "evaluate less often."
)
_OTHER = (
    "Look at what the loop does every so many steps. Do it less often, or in the background: "
    "evaluation, loading, checkpoints, logging, garbage collection, recompilation "
    "(`TORCH_LOGS=recompiles`)."
)
_UNKNOWN = (
    "Record more steps, which shows whether they recur: at a fixed distance it is the loop "
    "(evaluation, checkpoints, logging), else garbage collection, recompilation "
    "(`TORCH_LOGS=recompiles`) or what else runs on the machine."
)


@rule(
    "long-iterations",
    title="Some iterations do extra work",
    definition="Iterations, at most one in three, that last 1.5 medians or more, waiting for data "
    "left out, or a single wait for data of ten medians. They come every n-th iteration where at "
    "least three are recorded at that distance, and none at it is regular. The saving is what they "
    "take beyond the others, per step, no more than without the profiler where that is known; "
    "nothing where it happened once, or where they have no period and run no more operations than "
    "the others. Where steps without the profiler are as long, these count too, and show that it "
    "recurs; so does a period of the loop of which too few steps were timed, and a mean step "
    "without the profiler that is 1.2 times as long as a regular one with it. Nothing, too, where "
    "other programs took more of a busy machine, by what a recording read, and neither a distance "
    "nor more operations point to the program. Other findings are only about the other iterations.",
    verify="Time the loop without evaluation, checkpoints and logging.",
)
def long_iterations(evidence: Evidence) -> Answer:
    """Extra time of the long iterations, spread over all of them."""
    if not any(rank.summary.iterations_used for rank in evidence.ranks):
        return Answer("not-applicable", ["there are no iterations to compare"])
    if not evidence.long:
        return Answer("pass", ["no iteration does extra work"])
    found = max(evidence.long, key=lambda long: long.extra_ns)
    regular = max(rank.summary.iterations_used for rank in evidence.ranks)
    count = len(found.indices)
    ms = found.extra_ns / count * found.share(regular + count) / 1e6
    share = ms / (found.regular_ms + ms)
    largest = sorted(found.extra_partition_ns.items(), key=lambda item: -item[1])
    fills = {name: ns for name, ns in largest if ns >= FIXED.filling * found.extra_ns}
    told = [f"{CLASS_LABELS[name]} {duration(ns / count)}" for name, ns in fills.items()]
    collected = _collected_ns(evidence, found)
    mostly_collects = collected > FIXED.mostly_collects * found.extra_ns
    if mostly_collects:
        told.append(f"garbage collection {duration(collected / count)} of it")
    saved = _without_profiler(evidence, ms)
    unsaved = _unsaved(found)
    others = "" if unsaved else _of_others(evidence, found, saved)
    unsure: Status = "inconclusive" if others else "warn"
    unsaved = unsaved or others
    slowed = f", {significant(saved)} ms without the profiler" if saved < ms else ""
    return Answer(
        unsure if unsaved else evidence.grade(share),
        [
            f"{_which(found, regular + count)} took {duration(found.extra_ns / count)} more than "
            f"the others ({significant(found.regular_ms)} ms)",
            unsaved
            or f"that is {significant(ms)} ms per step ({percent(share)} of the mean step)"
            + slowed,
            _recurring(found),
            f"more in each of them: {', '.join(told)}" if told else "",
        ],
        None if unsaved else Saving(round(saved, 6)),
        LESS_COLLECTING if mostly_collects else _advice(evidence, found, [*fills], unsaved),
        find_sites(extra_owners(evidence.whole, evidence.ranks)),
    )


def _collected_ns(evidence: Evidence, found: LongIterations) -> int:
    """For how long the device idles in the long iterations of a rank as that collects garbage."""
    for whole, regular in zip(evidence.whole, evidence.ranks, strict=True):
        more, usual = collections(whole), collections(regular)
        if whole.long == found and more is not None:
            return more.cost_ns - (0 if usual is None else usual.cost_ns)
    return 0


def _without_profiler(evidence: Evidence, ms: float) -> float:
    """The extra time per step, no more than without the profiler where that is known."""
    if evidence.whole_step_ms is None:
        return ms
    more = evidence.whole_step_ms - evidence.corrected_step_ms()
    return min(ms, more) if more > 0 else ms


def _which(found: LongIterations, among: int) -> str:
    """Which they are; `among` counts the others too."""
    if found.every is not None:
        return f"every {ordinal(found.every)} iteration"
    alone = found.once or found.mean_step_ms is not UNSET
    if alone and len(found.indices) == 1:
        return f"iteration {found.indices[0]}"
    return how_many(found, among)


def _recurring(found: LongIterations) -> str:
    """That the mean of steps without the profiler tells that they recur; empty if not."""
    if isinstance(found.mean_step_ms, UnsetType):
        return ""
    return (
        f"steps without the profiler take {significant(found.mean_step_ms)} ms, more than the "
        "others do with it, so that such iterations recur"
    )


def _unsaved(found: LongIterations) -> str:
    """Why nothing is saved per step; empty where something is."""
    if found.once:
        they = "it" if len(found.indices) == 1 else "they follow each other: it"
        return f"{they} happened once, so nothing is saved per step"
    told = found.timed_long is not UNSET or found.period is not UNSET
    if found.every is None and not found.more_work and not told:
        return (
            "they come at no fixed distance and run no more operations than the others: nothing "
            "shows that they recur, so nothing is saved per step"
        )
    return ""


def _of_others(evidence: Evidence, found: LongIterations, ms: float) -> str:
    """That other programs may be the reason, with which nothing is saved; else empty.

    Args:
        ms: what the long iterations cost a step.
    """
    step_ms, filling = evidence.corrected_step_ms(), FIXED.filling * found.extra_ns
    lost, unsure = (of(evidence.blocks.values()) for of in (taken, in_doubt))
    worked = any(found.extra_partition_ns.get(name, 0) >= filling for name in BUSY)
    told = found.every is not None or found.period is not UNSET or found.more_work or worked
    if ms > max(lost, unsure) * step_ms or told:
        return ""
    why = several_paces(unsure)
    if lost >= unsure:
        why = f"other programs had the loop's core for {significant(lost * step_ms)} ms "
        why += evidence.per
    return (
        f"{why}, and these run no more operations than the others: nothing shows that the program "
        "causes it"
    )


def _advice(evidence: Evidence, found: LongIterations, fills: Sequence[str], unsaved: str) -> str:
    """What to do, by the classes that fill the extra time, the largest first.

    Args:
        unsaved: why nothing is saved per step, if that is so.
    """
    work = found.more_work or {}
    for name in fills:
        if name == "d2h" and "forward" in work and "backward" not in work:
            return _OUTPUTS
        if name in _ADVICE:
            return _ADVICE[name]
        if name == "idle_data_wait":
            loader = evidence.loader
            if loader is None:
                return f"{_LOADING}{_ALIVE}."
            starts = loader.workers > 0 and not loader.persistent_workers
            return _STARTS if starts else f"{_LOADING}."
        if name == "forward" and name in work and "backward" not in work:
            return _FORWARD
    return _UNKNOWN if unsaved and not found.once else _OTHER
