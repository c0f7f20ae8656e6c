"""Does DDP reduce its gradients in as many messages as it should?"""

from __future__ import annotations

from traceprobe.findings.evidence import Evidence, lines, unanswered
from traceprobe.records.rank import Rank
from traceprobe.records.report import Finding

ID = "ddp-buckets"
RULE = (
    "All-reduces per step against the number that the capture predicted from the parameters and "
    "the bucket size (`workload.predicted_all_reduces_per_step`). Where kernels do not say what "
    "they do, all collectives are counted."
)
VERIFY = "`communication.all_reduces_per_step` equals the prediction after the change."
KEY = "predicted_all_reduces_per_step"
ROUNDING = 1e-3


def check(evidence: Evidence) -> Finding:
    """All-reduces per step against the number predicted from the model's parameters."""
    title = "DDP reduces its gradients in another number of messages than predicted"
    predicted = (evidence.workload or {}).get(KEY)
    if isinstance(predicted, bool) or not isinstance(predicted, (int, float)) or predicted <= 0:
        return unanswered(ID, "not-applicable", title, "no prediction of the number in the trace")
    talking = [r for r in evidence.ranks if r.summary.communication is not None]
    if not talking:
        return unanswered(ID, "not-applicable", title, "no communication kernels")
    known = [n for n in map(_per_step, talking) if n is not None]
    if not known:
        return unanswered(
            ID,
            "inconclusive",
            title,
            f"{predicted:g} predicted, and no used step to count in",
            "Mark the steps: `prof.step()` each iteration, or an NVTX range around it.",
        )
    equal = all(abs(n - predicted) <= ROUNDING for n in known)
    return Finding(
        id=ID,
        status="pass" if equal else "warn",
        title=title,
        saving_ms_per_step=None,
        evidence=lines(
            f"{_range(known)} {'all-reduces' if _named(talking) else 'collectives'} per step, "
            f"{predicted:g} predicted from the parameters",
            _others(talking),
        ),
        advice="" if equal else _causes(sum(known) / len(known), predicted),
    )


def _per_step(rank: Rank) -> float | None:
    """All-reduces, or all collectives where their names do not say what they do."""
    summary = rank.summary
    if summary.communication is None or summary.communication.all_reduces_per_step is None:
        return summary.collectives_per_step
    return summary.communication.all_reduces_per_step


def _named(ranks: list[Rank]) -> bool:
    found = [r.summary.communication for r in ranks]
    return all(c is not None and c.all_reduces_per_step is not None for c in found)


def _range(numbers: list[float]) -> str:
    low, high = min(numbers), max(numbers)
    return f"{low:g}" if high - low <= ROUNDING else f"{low:g} to {high:g}, by rank,"


def _others(ranks: list[Rank]) -> str:
    """Collectives that are no all-reduces, mean over the ranks."""
    if not _named(ranks):
        return ""
    more = [(r.summary.collectives_per_step or 0.0) - (_per_step(r) or 0.0) for r in ranks]
    mean = sum(more) / len(more)
    words = {g.operation for r in ranks for g in r.summary.collectives} - {"all_reduce"}
    names = ", ".join(sorted(word.replace("_", "-") for word in words))
    return f"beside them {mean:g} other collectives per step ({names})" if mean > ROUNDING else ""


def _causes(measured: float, predicted: float) -> str:
    ratio = measured / predicted
    if ratio >= 2 - ROUNDING and abs(ratio - round(ratio)) <= ROUNDING:
        return (
            f"{round(ratio)} times as many: if the step accumulates gradients, put all but its "
            "last backward under `no_sync()`."
        )
    if measured < predicted:
        return (
            "Fewer: steps under `no_sync()`, parameters without a gradient, or a larger "
            "`bucket_cap_mb` than was assumed. With `static_graph=True` or unused parameters DDP "
            "may keep other buckets than it would rebuild."
        )
    return (
        "More: accumulation without `no_sync()`, `find_unused_parameters=True` (a message of its "
        "own, and buckets that are not rebuilt), buffers broadcast in every forward "
        "(`broadcast_buffers=False`), or all-reduces of the program's own, such as of the loss. "
        "`static_graph=True` lets DDP settle its buckets."
    )
