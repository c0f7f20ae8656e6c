"""Does the profiler itself dominate what was measured?"""

from __future__ import annotations

from traceprobe.findings.evidence import Evidence
from traceprobe.findings.rule import Answer, rule
from traceprobe.formatting import significant
from traceprobe.verdict.compared_steps import HEAVY
from traceprobe.verdict.thresholds import FIXED

REMEASURE = (
    "Time the same loop without a profiler (`torch.cuda.synchronize()` only before the first and "
    "after the last step) and pass the step time with `--unprofiled-step-ms`."
)
REMEASURE_ON_CPU = (
    "Time the same loop without a profiler and pass the step time with `--unprofiled-step-ms`."
)
CORRECTED = (
    "Nothing has to be measured again: the step without a profiler is known, and the shares are "
    "corrected by it."
)
OPTIONS = {"stacks": "`with_stack`", "memory": "`profile_memory`"}
"""Of the profiler, by what they record besides operators; a program may do without."""
SMALLER = (
    "Capture fewer iterations or fewer kinds of events, so that the profiler has nothing to write "
    "out while the GPU waits."
)


@rule(
    "profiler-distortion",
    title="The profiler distorts what it measures",
    definition="Step time under the profiler against the step time without it; and idle time under "
    "rows that the profiler writes about itself.",
    verify="The shares of the corrected verdict match those of an Nsight Systems capture, which "
    "slows the host less.",
)
def profiler_distortion(evidence: Evidence) -> Answer:
    """The step under the profiler against the step without it."""
    effect = evidence.quality.observer_effect
    flush = evidence.exclusive_ms("idle_profiler")
    rows = (
        f"{significant(flush)} ms {evidence.per} of {evidence.idle} under the profiler's own rows"
    )
    if flush < FIXED.flush_ms:
        rows = ""
    if effect is not None:
        distorted = effect.ratio >= FIXED.distortion
        corrected = (
            "they are of different conditions, so the verdict is not corrected for it"
            if effect.other_conditions
            else "the verdict is corrected for it"
        )
        return Answer(
            "warn" if distorted else "pass",
            [
                f"{significant(effect.profiled_step_ms)} ms per step under the profiler, "
                f"{significant(effect.unprofiled_step_ms)} ms without it (× {effect.ratio:.2f}); "
                f"{corrected}",
                rows,
            ],
            advice=f"{CORRECTED}{_lighter(evidence)}" if distorted else "",
        )
    marks = sorted(evidence.profiled & HEAVY)
    if not marks:
        writes = evidence.flag(flush)
        return Answer(
            writes,
            ["no signs of a heavy profiler", rows],
            advice=SMALLER if writes == "warn" else "",
        )
    overhead = evidence.verdict.shares.get("overhead", 0.0)
    return Answer(
        "warn" if overhead >= evidence.thresholds.notable else "pass",
        [
            f"the trace records {', '.join(marks)}, which slows the host; the unprofiled step time "
            "is unknown",
            rows,
        ],
        advice=f"{REMEASURE_ON_CPU if evidence.on_cpu else REMEASURE}{_lighter(evidence)}",
    )


def _lighter(evidence: Evidence) -> str:
    """What to profile without."""
    extra = [option for name, option in OPTIONS.items() if name in evidence.profiled]
    return f" Profile without {' and '.join(extra)}: the host is slowed less." if extra else ""
