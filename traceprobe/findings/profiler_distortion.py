"""Is it the profiler that one sees?"""

from __future__ import annotations

from traceprobe.findings.evidence import Evidence, lines
from traceprobe.records.report import Finding
from traceprobe.verdict.correction import HEAVY

ID = "profiler-distortion"
RULE = (
    "Step time under the profiler against the step time without it; and idle time under rows "
    "that the profiler writes about itself."
)
VERIFY = (
    "The shares of the corrected verdict match those of an Nsight Systems capture, which slows "
    "the host less."
)
REMEASURE = (
    "Time the same loop without a profiler (`torch.cuda.synchronize()` only before the first and "
    "after the last step) and pass the step time with `--unprofiled-step-ms`; profile without "
    "`with_stack` and `profile_memory`."
)
SMALLER = (
    "Capture fewer iterations or fewer kinds of events, so that the profiler has nothing to write "
    "out while the GPU waits."
)


def check(evidence: Evidence) -> Finding:
    """The step under the profiler against the step without it."""
    title = "The profiler distorts what it measures"
    effect = evidence.quality.observer_effect
    flush = evidence.exclusive_ms("idle_profiler")
    rows = (
        f"{flush:.2f} ms {evidence.per} of idle GPU under the profiler's own rows"
        if flush >= 0.005
        else ""
    )
    if effect is not None:
        return Finding(
            id=ID,
            status="warn" if effect.ratio >= 1.1 else "pass",
            title=title,
            saving_ms_per_step=None,
            evidence=lines(
                f"{effect.profiled_step_ms:.2f} ms per step under the profiler, "
                f"{effect.unprofiled_step_ms:.2f} ms without it (x {effect.ratio:.2f}); the "
                "verdict is "
                "corrected for it",
                rows,
            ),
            advice=REMEASURE if effect.ratio >= 1.1 else "",
        )
    marks = sorted(evidence.profiled & HEAVY)
    matters = evidence.verdict.shares.get("overhead", 0.0) >= evidence.limits.notable
    if not marks:
        writes = evidence.share(flush) >= evidence.limits.notable
        return Finding(
            id=ID,
            status="warn" if writes else "pass",
            title=title,
            saving_ms_per_step=None,
            evidence=lines("no marks of a heavy profiler", rows),
            advice=SMALLER if writes else "",
        )
    return Finding(
        id=ID,
        status="warn" if matters else "pass",
        title=title,
        saving_ms_per_step=None,
        evidence=lines(
            f"the trace records {', '.join(marks)}, each of which slows the host; the "
            "unprofiled step "
            "time is unknown",
            rows,
        ),
        advice=REMEASURE,
    )
