"""Does the allocator keep much that is not in use?"""

from __future__ import annotations

from traceprobe.findings.evidence import Evidence
from traceprobe.findings.rule import Answer, not_applicable, rule
from traceprobe.formatting import percent, size
from traceprobe.verdict.thresholds import FIXED

ADVICE = (
    "Start the program with `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`, which lets "
    "segments grow instead of leaving gaps; keep the shapes of batches the same from step to step."
)
ADVICE_AMD = (
    "Start the program with `PYTORCH_HIP_ALLOC_CONF=garbage_collection_threshold:0.8`, which frees "
    "cached blocks before the device is full; keep the shapes of batches the same from step to "
    "step."
)


@rule(
    "memory-slack",
    title="The allocator holds memory that is not in use",
    definition="What the allocator reserved less what was in use at the peak of the measured step: "
    "cached blocks and gaps between blocks. No saving is computed.",
    verify="`torch.cuda.max_memory_reserved()` less `torch.cuda.max_memory_allocated()` gets "
    "smaller; the peak in use stays.",
    of_gpu=True,
)
def memory_slack(evidence: Evidence) -> Answer:
    """Cached and fragmented memory beside the peak."""
    memory = evidence.memory
    if memory is None or memory.measured is None or not memory.device_bytes:
        return not_applicable("the recording does not say what the allocator holds")
    step = memory.measured
    share = step.slack / step.reserved_bytes if step.reserved_bytes else 0.0
    crowded = step.reserved_bytes / memory.device_bytes
    warned = share >= FIXED.memory_slack and crowded >= FIXED.memory_crowded
    return Answer(
        "warn" if warned else "pass",
        [
            f"{size(step.slack)} of {size(step.reserved_bytes)} reserved are not in use at the "
            f"peak: {percent(share)}",
            f"{percent(crowded)} of the device is reserved",
        ],
        advice=(ADVICE_AMD if evidence.vendor == "amd" else ADVICE) if warned else "",
    )
