"""Do batches come from pageable memory?"""

from __future__ import annotations

from traceprobe.findings.evidence import Evidence, unanswered
from traceprobe.records.report import Finding

ID = "h2d-pageable"
RULE = (
    "Bytes per step copied to the GPU from host memory that is not pinned. Such copies go "
    "through a staging buffer, block the host and cannot overlap. The saving is that of "
    "`h2d-exposed`, by their part of the bytes."
)
VERIFY = "After the change the report says 0 MB pageable, and `h2d.gbps` rises."
MIN_BYTES = 1 << 20
"""Per step; scalars and small index tensors are copied from pageable memory everywhere."""


def check(evidence: Evidence) -> Finding:
    """Pageable copies go through a staging buffer, block the host and cannot overlap."""
    title = "Batches are copied from pageable memory"
    copies = [r.summary.h2d for r in evidence.ranks if r.summary.h2d is not None]
    steps = sum(max(r.summary.iterations_used, 1) for r in evidence.ranks)
    size = sum(c.bytes for c in copies)
    pageable = sum(c.pageable_bytes for c in copies)
    if not size:
        return unanswered(ID, "not-applicable", title, "no host-to-device copies of known size")
    warned = pageable / steps >= MIN_BYTES
    most = (evidence.hideable_ms("h2d") + evidence.unseen_ms()) * pageable / size
    return Finding(
        id=ID,
        status="warn" if warned else "pass",
        title=title,
        saving_ms_per_step=evidence.saving(most) if warned else None,
        evidence=[
            f"{pageable / steps / 1e6:.2f} of {size / steps / 1e6:.2f} MB {evidence.per} are "
            "pageable"
        ],
        advice="Set `pin_memory=True` on the DataLoader, or pin the tensors that you copy "
        "yourself.",
    )
