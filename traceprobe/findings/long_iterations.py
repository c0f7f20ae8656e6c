"""Do some iterations do more than the others?"""

from __future__ import annotations

from traceprobe.findings.evidence import Evidence, Saving
from traceprobe.findings.rule import Answer, rule
from traceprobe.formatting import duration, ordinal, percent, significant
from traceprobe.model.taxonomy import CLASS_LABELS
from traceprobe.records.rank import LongIterations
from traceprobe.records.sites import extra_owners, find_sites
from traceprobe.verdict.thresholds import FIXED

_ADVICE = {
    "d2h": "Copy checkpoints to pinned memory and write them in the background "
    "(`torch.distributed.checkpoint.async_save`), or save less often.",
    "idle_data_wait": "If it is the start of an epoch, keep the loader's workers alive "
    "(`persistent_workers=True`).",
    "forward": "Evaluate less often, on fewer batches, or in another process.",
}
_OTHER = (
    "Look at what the loop does every so many steps: evaluation, checkpoints, logging, garbage "
    "collection, recompilation (`TORCH_LOGS=recompiles`). Do it less often, or in the background."
)


@rule(
    "long-iterations",
    title="Some iterations do more than the others",
    definition="Iterations, at most one in three, that last 1.5 medians or more, waiting for data "
    "left out, or a single wait for data of ten medians. The saving is what they take beyond the "
    "others, per step, unless it happened once; other findings are about the others alone.",
    verify="Time the loop without evaluation, checkpoints and logging.",
)
def long_iterations(evidence: Evidence) -> Answer:
    """Extra time of the long iterations, spread over all of them."""
    if not any(rank.summary.iterations_used for rank in evidence.ranks):
        return Answer("not-applicable", ["there are no iterations to compare"])
    if not evidence.long:
        return Answer("pass", ["no iteration does more than the others"])
    found = max(evidence.long, key=lambda long: long.extra_ns)
    regular = max(rank.summary.iterations_used for rank in evidence.ranks)
    count = len(found.indices)
    ms = found.extra_ns / (regular + count) / 1e6
    share = ms / (found.regular_ms + ms)
    largest = sorted(found.extra_partition_ns.items(), key=lambda item: -item[1])
    fills = [
        f"{CLASS_LABELS[name]} {duration(ns / count)}"
        for name, ns in largest
        if ns >= FIXED.filling * found.extra_ns
    ]
    return Answer(
        "warn" if found.once else evidence.grade(share),
        [
            f"{_which(found)} took {duration(found.extra_ns / count)} more than the others "
            f"({significant(found.regular_ms)} ms)",
            "it happened once, so nothing is saved per step"
            if found.once
            else f"that is {significant(ms)} ms per step ({percent(share)} of the mean step)",
            f"more in each of them: {', '.join(fills)}" if fills else "",
        ],
        None if found.once else Saving(round(ms, 6)),
        next((_ADVICE[name] for name, _ in largest[:3] if name in _ADVICE), _OTHER),
        find_sites(extra_owners(evidence.whole, evidence.ranks)),
    )


def _which(found: LongIterations) -> str:
    if found.every is not None:
        return f"every {ordinal(found.every)} iteration"
    if len(found.indices) == 1:
        return f"iteration {found.indices[0]}"
    return f"{len(found.indices)} iterations"
