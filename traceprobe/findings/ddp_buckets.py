"""Does DDP reduce its gradients in as many messages as it should?"""

from __future__ import annotations

from statistics import fmean

from traceprobe.findings.evidence import Evidence
from traceprobe.findings.rule import Answer, inconclusive, not_applicable, rule
from traceprobe.formatting import plain
from traceprobe.records.rank import Rank
from traceprobe.verdict.thresholds import FIXED

PREDICTED = "predicted_all_reduces_per_step"


@rule(
    "ddp-buckets",
    title="DDP sends a different number of messages than predicted",
    definition="All-reduces per step against the number that the capture predicted from the "
    "parameters and the bucket size (`workload.predicted_all_reduces_per_step`). Where kernels do "
    "not say what they do, all collectives are counted.",
    verify="`communication.all_reduces_per_step` equals the prediction after the change.",
)
def ddp_buckets(evidence: Evidence) -> Answer:
    """All-reduces per step against the number predicted from the model's parameters."""
    predicted = (evidence.workload or {}).get(PREDICTED)
    if isinstance(predicted, bool) or not isinstance(predicted, (int, float)) or predicted <= 0:
        return not_applicable("the trace holds no prediction of the number")
    communicating = [r for r in evidence.ranks if r.summary.communication is not None]
    if not communicating:
        return not_applicable("no communication kernels")
    counts = [n for n in map(_per_step, communicating) if n is not None]
    if not counts:
        return inconclusive(
            f"{plain(predicted)} predicted, and no used step to count in",
            "Mark the steps: `prof.step()` each iteration, or an NVTX range around it.",
        )
    equal = all(abs(n - predicted) <= FIXED.count_rounding for n in counts)
    kind = "all-reduces" if _named(communicating) else "collectives"
    return Answer(
        "pass" if equal else "warn",
        [
            f"{_range(counts)} {kind} per step, {plain(predicted)} predicted from the parameters",
            _others(communicating),
        ],
        advice="" if equal else _causes(fmean(counts), predicted),
    )


def _per_step(rank: Rank) -> float | None:
    """All-reduces, or all collectives where their names do not say what they do."""
    summary = rank.summary
    if summary.communication is None or summary.communication.all_reduces_per_step is None:
        return summary.collectives_per_step
    return summary.communication.all_reduces_per_step


def _named(ranks: list[Rank]) -> bool:
    amounts = [r.summary.communication for r in ranks]
    return all(c is not None and c.all_reduces_per_step is not None for c in amounts)


def _range(numbers: list[float]) -> str:
    low, high = min(numbers), max(numbers)
    return (
        plain(low)
        if high - low <= FIXED.count_rounding
        else f"{plain(low)} to {plain(high)}, by rank,"
    )


def _others(ranks: list[Rank]) -> str:
    """Collectives that are no all-reduces, mean over the ranks."""
    if not _named(ranks):
        return ""
    mean = fmean((r.summary.collectives_per_step or 0.0) - (_per_step(r) or 0.0) for r in ranks)
    operations = {g.operation for r in ranks for g in r.summary.collectives} - {"all_reduce"}
    names = ", ".join(sorted(name.replace("_", "-") for name in operations))
    if mean <= FIXED.count_rounding:
        return ""
    return f"in addition, {plain(mean)} other collectives per step ({names})"


def _causes(measured: float, predicted: float) -> str:
    ratio = measured / predicted
    multiple = abs(ratio - round(ratio)) <= FIXED.count_rounding
    if ratio >= 2 - FIXED.count_rounding and multiple:
        return (
            f"{round(ratio)} times as many: if the step accumulates gradients, put all but its "
            "last backward pass under `no_sync()`."
        )
    if measured < predicted:
        return (
            "Fewer: steps under `no_sync()`, parameters without a gradient, or a larger "
            "`bucket_cap_mb` than assumed. With `static_graph=True` or unused parameters DDP may "
            "keep other buckets than it would rebuild."
        )
    return (
        "More: accumulation without `no_sync()`, `find_unused_parameters=True` (a message of its "
        "own, and buckets that are not rebuilt), buffers broadcast in every forward pass "
        "(`broadcast_buffers=False`), or the program's own all-reduces, such as of the loss. "
        "`static_graph=True` lets DDP settle its buckets."
    )
