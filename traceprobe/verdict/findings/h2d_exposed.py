"""Do copies to the GPU delay it?"""

from __future__ import annotations

from traceprobe.report.result import Finding
from traceprobe.verdict.findings.evidence import Evidence, unanswered

ID = "h2d-exposed"
RULE = (
    "Time per step in host-to-device copies while no kernel runs. The evidence adds bytes, rate "
    "and overlap. The saving leaves the step as long as its longest single resource."
)
VERIFY = (
    "Keep one batch on the GPU and time the loop without a profiler. Compare the rate with that "
    "of pinned copies on the same machine."
)


def check(evidence: Evidence) -> Finding:
    """Host-to-device copies during which no kernel runs."""
    title = "Copies to the GPU are not hidden"
    copies = [r.summary.h2d for r in evidence.ranks if r.summary.h2d is not None]
    if not copies:
        return unanswered(ID, "not-applicable", title, "no host-to-device copies")
    ms = evidence.exclusive_ms("h2d")
    rate = [c.gbps for c in copies if c.gbps is not None]
    steps = sum(max(r.summary.iterations_used, 1) for r in evidence.ranks)
    return Finding(
        id=ID,
        status=evidence.grade(evidence.share(ms)),
        title=title,
        saving_ms_per_step=evidence.saving(evidence.hideable_ms("h2d")),
        evidence=[
            f"{ms:.2f} ms {evidence.per} ({evidence.share(ms):.1%}) of copying while no kernel "
            "runs",
            f"{sum(c.bytes for c in copies) / steps / 1e6:.1f} MB {evidence.per}"
            + (f" at {sum(rate) / len(rate):.1f} GB/s" if rate else "")
            + f"; {sum(c.overlap_pct for c in copies) / len(copies):.0f} % overlaps with kernels",
        ],
        advice=(
            "Pin the loader's memory (`pin_memory=True`), copy with `non_blocking=True`, and "
            "prefetch "
            "the next batch on a stream of its own while this one is computed."
        ),
    )
