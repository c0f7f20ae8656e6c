"""Does the GPU wait for the input pipeline?"""

from __future__ import annotations

from traceprobe.report.result import Finding
from traceprobe.verdict.findings.evidence import Evidence, lines, unanswered

ID = "data-wait"
RULE = (
    "Idle time per step during which the step thread is inside a data range, or between the "
    "step ranges and in no CUDA call. The second part is inferred, and the evidence says how "
    "much. The saving is all of it."
)
VERIFY = (
    "Load one batch, reuse it for every step, and time the loop without a profiler. What the "
    "step gets shorter is what loading costs."
)
ADVICE = (
    "Give the loader more workers (`num_workers`) and a deeper queue (`prefetch_factor`), keep "
    "them "
    "alive (`persistent_workers=True`), move decoding and augmentation to the GPU, or store "
    "the data "
    "in a form that needs less work per sample."
)


def check(evidence: Evidence) -> Finding:
    """Idle time during which the step thread waits for its next batch."""
    title = "The device waits for input data"
    if not evidence.observed("idle_data_wait"):
        return unanswered(
            ID,
            "inconclusive",
            title,
            "the trace has no data-loading range and no step ranges with room between them",
            "Annotate loading, e.g. `with record_function('data_loading'): batch = next(it)`.",
        )
    ms = evidence.exclusive_ms("idle_data_wait")
    inferred = sum(r.summary.host.data_wait_inferred_ns for r in evidence.ranks)
    total = sum(r.summary.partition_ns["idle_data_wait"] or 0 for r in evidence.ranks)
    drained = evidence.drift
    return Finding(
        id=ID,
        # A queue that lasted for half of the capture halves the mean, not the cost.
        status=evidence.grade(max(evidence.share(ms), drained.after.share if drained else 0.0)),
        title=title,
        saving_ms_per_step=evidence.saving(ms),
        evidence=lines(
            f"{ms:.2f} ms {evidence.per} ({evidence.share(ms):.1%}) of idle GPU while the step "
            "thread waits "
            "for data",
            f"{inferred / total:.0%} of it is inferred: the step thread is between step "
            "ranges, in no "
            "CUDA call"
            if inferred
            else "",
            f"{drained.after.data_wait_ns / 1e6:.2f} ms ({drained.after.share:.1%}) once the "
            "loader's queue is empty"
            if drained
            else "",
            evidence.worst("idle_data_wait"),
        ),
        advice=ADVICE,
    )
