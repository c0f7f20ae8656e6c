"""How much of the capture could be used?"""

from __future__ import annotations

from traceprobe.findings.evidence import Evidence, unanswered
from traceprobe.records.report import Finding

ID = "unused-iterations"
RULE = (
    "Iterations left out of the summary, and why. The last one of every rank has no end and is "
    "expected to be missing."
)
VERIFY = (
    "`iterations[].skip_reason` names the reason of each. A new capture leaves out the last one "
    "only."
)


def check(evidence: Evidence) -> Finding:
    """Iterations left out beyond the last one, which never has an end."""
    title = "Iterations left out"
    found = [i for rank in evidence.ranks for i in rank.iterations]
    if not found:
        return unanswered(
            ID,
            "not-applicable",
            title,
            "no step marker: the whole capture is one window",
            "Call `prof.step()` each iteration, or annotate steps and name them with `--step`.",
        )
    skipped = [i for i in found if not i.used]
    expected = len(evidence.ranks)
    reasons: dict[str, int] = {}
    for iteration in skipped:
        reason = (iteration.skip_reason or "unknown").split(":")[0]
        reasons[reason] = reasons.get(reason, 0) + 1
    return Finding(
        id=ID,
        status="warn" if len(skipped) > expected else "pass",
        title=title,
        saving_ms_per_step=None,
        evidence=[
            f"{len(found) - len(skipped)} of {len(found)} iterations are used",
            *(f"{count} left out: {reason}" for reason, count in sorted(reasons.items())),
        ],
        advice=(
            "Synchronise before the profiler stops, and let it warm up "
            "(`schedule(wait=1, warmup=2, active=6)`)."
            if len(skipped) > expected
            else ""
        ),
    )
