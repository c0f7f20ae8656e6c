"""Does the allocator keep much that is not in use?"""

from __future__ import annotations

from traceprobe.findings.evidence import Evidence, unanswered
from traceprobe.formatting import percent, size
from traceprobe.records.report import Finding

ID = "memory-slack"
SLACK = 0.20
"""Share of what is reserved."""
CROWDED = 0.50
"""Share of the device that must be reserved for slack to matter."""
RULE = (
    "What the allocator reserved less what was in use at the peak of the measured step: cached "
    "blocks and gaps between blocks. No saving is computed."
)
VERIFY = (
    "`torch.cuda.max_memory_reserved()` less `torch.cuda.max_memory_allocated()` gets smaller; the "
    "peak in use stays."
)


def check(evidence: Evidence) -> Finding:
    """Cached and fragmented memory beside the peak."""
    title = "The allocator holds memory that is not in use"
    memory = evidence.memory
    if memory is None or memory.measured is None or not memory.device_bytes:
        return unanswered(
            ID, "not-applicable", title, "the recording does not say what the allocator holds"
        )
    step = memory.measured
    share = step.slack / step.reserved_bytes if step.reserved_bytes else 0.0
    crowded = step.reserved_bytes / memory.device_bytes
    warn = share >= SLACK and crowded >= CROWDED
    return Finding(
        id=ID,
        status="warn" if warn else "pass",
        title=title,
        saving_ms_per_step=None,
        evidence=[
            f"{size(step.slack)} of {size(step.reserved_bytes)} reserved are not in use at the "
            f"peak: {percent(share)}",
            f"{percent(crowded)} of the device is reserved",
        ],
        advice=(
            "Start the program with `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`, which lets "
            "segments grow instead of leaving gaps; keep the shapes of batches the same from step "
            "to step."
            if warn
            else ""
        ),
    )
