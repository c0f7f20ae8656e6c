"""Do copies and memsets inside the GPU cost time of their own?"""

from __future__ import annotations

from traceprobe.findings.evidence import Evidence, unanswered
from traceprobe.records.report import Finding

ID = "memory-traffic"
RULE = (
    "Time per step in copies inside the device, copies back to the host and memsets, while no "
    "kernel runs. The saving is all of it."
)
VERIFY = (
    "`partition_ns.memory` and `partition_ns.d2h` fall after the change, and the step gets "
    "shorter by as much."
)


def check(evidence: Evidence) -> Finding:
    """Device-to-device and device-to-host copies and memsets during which no kernel runs."""
    title = "Copies and memsets inside the GPU"
    if not evidence.observed("memory", "d2h"):
        return unanswered(ID, "not-applicable", title, "no such operations")
    ms = evidence.exclusive_ms("memory", "d2h")
    return Finding(
        id=ID,
        status=evidence.flag(ms),
        title=title,
        saving_ms_per_step=evidence.saving(ms),
        evidence=[f"{ms:.2f} ms {evidence.per} ({evidence.share(ms):.1%}) while no kernel runs"],
        advice=(
            "Avoid needless `.contiguous()`, `.clone()` and `.cpu()`; "
            "`zero_grad(set_to_none=True)`; "
            "`gradient_as_bucket_view=True` for DDP."
        ),
    )
