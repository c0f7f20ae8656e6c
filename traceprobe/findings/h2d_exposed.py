"""Do copies to the GPU delay it?"""

from __future__ import annotations

from traceprobe.findings.evidence import Evidence, unanswered
from traceprobe.records.report import Finding

ID = "h2d-exposed"
RULE = (
    "Time per step in host-to-device copies while no kernel runs. The evidence adds bytes, rate "
    "and overlap. The saving leaves the step as long as its longest single resource, and adds what "
    "the step lasts longer without a profiler than in the capture."
)
VERIFY = (
    "Keep one batch on the GPU and time the loop without a profiler. Compare the rate with that "
    "of pinned copies on the same machine."
)

PIN = "Pin the loader's memory (`pin_memory=True`) and copy with `non_blocking=True`."
PREFETCH = (
    "Prefetch the next batch on a stream of its own (`torch.cuda.Stream`) while this one is "
    "computed."
)
MOSTLY = 0.5


def check(evidence: Evidence) -> Finding:
    """Host-to-device copies during which no kernel runs."""
    title = "Copies to the GPU are not hidden"
    copies = [r.summary.h2d for r in evidence.ranks if r.summary.h2d is not None]
    if not copies:
        return unanswered(ID, "not-applicable", title, "no host-to-device copies")
    ms = evidence.exclusive_ms("h2d")
    rate = [c.gbps for c in copies if c.gbps is not None]
    steps = sum(max(r.summary.iterations_used, 1) for r in evidence.ranks)
    size = sum(c.bytes for c in copies)
    overlap = sum(c.overlap_pct for c in copies) / len(copies)
    return Finding(
        id=ID,
        status=evidence.grade(evidence.share(ms)),
        title=title,
        saving_ms_per_step=evidence.saving(evidence.hideable_ms("h2d") + evidence.unseen_ms()),
        evidence=[
            f"{ms:.2f} ms {evidence.per} ({evidence.share(ms):.1%}) of copying while no kernel "
            "runs",
            f"{size / steps / 1e6:.1f} MB {evidence.per}"
            + (f" at {sum(rate) / len(rate):.1f} GB/s" if rate else "")
            + f"; {overlap:.0f} % overlaps with kernels",
        ],
        advice=_advice(sum(c.pageable_bytes for c in copies) / size if size else None, overlap),
    )


def _advice(pageable: float | None, overlap_pct: float) -> str:
    """What to change first: memory that copies can leave at once, then the place of the copy."""
    if pageable is None:
        return f"{PIN} {PREFETCH}"
    if pageable >= MOSTLY:
        return f"{PIN} Only then: {PREFETCH[0].lower()}{PREFETCH[1:]}"
    if overlap_pct < 100 * MOSTLY:
        return f"The memory is pinned, but the copies run between the kernels. {PREFETCH}"
    return (
        "Part of the copying is hidden already: copy less (in fewer bits, or make more of the "
        "sample on the GPU), or begin earlier."
    )
