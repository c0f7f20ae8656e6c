"""Do matrices have sizes that tensor cores read badly?"""

from __future__ import annotations

from traceprobe.findings.evidence import Evidence
from traceprobe.findings.owned_time import kernel_sites
from traceprobe.findings.recorded_facts import setting, whole
from traceprobe.findings.rule import Answer, not_applicable, rule
from traceprobe.verdict.thresholds import FIXED

BYTES = {"bf16": 2, "fp16": 2, "tf32": 4}
"""Of a number, by precision."""
WGMMA = ("9", "10")
"""Major compute capabilities of GPUs that have it, or what came after: of data centres alone."""


@rule(
    "unaligned-matmul",
    title="Matrix sizes are not aligned for tensor cores",
    definition="Duration of matrix kernels on tensor cores whose names say that they read one or "
    "two elements at a time (`align1`, `align2`). The saving keeps an eighth of it: reading 16 "
    "bytes at a time is at best eight times as fast; half of that on Hopper and later, where "
    "aligned products are kernels with twice the rate (`wgmma`).",
    verify="`kernel_ns.matmul_unaligned` is 0.",
    of_gpu=True,
)
def unaligned_matmul(evidence: Evidence) -> Answer:
    """Time in tensor-core kernels whose names say that they read one or two elements at a time."""
    if not evidence.has_kernels:
        return not_applicable("the run has no GPU kernels")
    ms = evidence.kernel_ms("matmul_unaligned")
    status = evidence.flag(ms)
    least, usual, margin = _kept(evidence)
    return Answer(
        status,
        [
            f"{evidence.amount(ms)} in kernels for unaligned operands (`align1`, `align2` in their "
            "names)",
            _vocabulary(evidence) if status == "warn" else "",
        ],
        evidence.saving(ms * (1 - least), "matmul_unaligned"),
        "Pad the sizes of these matrices, such as a vocabulary of 50257 to 50304, or use "
        "`torch.compile`, which pads by itself. Rows of 16 bytes (8 numbers in bf16 or fp16, 4 in "
        "TF32, 16 in int8 or fp8) are enough, multiples of 128 bytes are best.",
        kernel_sites(evidence.owners, "matmul_unaligned"),
        evidence.faster(ms * (1 - usual), margin),
    )


def _kept(evidence: Evidence) -> tuple[float, float, float]:
    """Of the time of unaligned products, what aligned ones take at least, and usually.

    The third is the relative error of what they spare.
    """
    devices = evidence.devices() or []
    others = [g.vendor == "nvidia" and g.capability.partition(".")[0] in WGMMA for g in devices]
    if others and all(others):
        return FIXED.other_kernels, FIXED.other_kernels_usual, FIXED.aligned_margin
    return FIXED.unaligned_kept, FIXED.aligned_usual, FIXED.usual_margin


def _vocabulary(evidence: Evidence) -> str:
    """Whether it is the vocabulary, where the capture knows its size and the precision."""
    size = whole((evidence.workload or {}).get("vocabulary"))
    each = BYTES.get(str(setting(evidence.workload, "precision")))
    if size is None or each is None or size * each % FIXED.aligned_bytes == 0:
        return ""
    best = FIXED.best_aligned_bytes // each
    return (
        f"the vocabulary of {size} is not a multiple of {FIXED.aligned_bytes // each}, that is of "
        f"16 bytes; {-(-size // best) * best} is a multiple of 128 bytes"
    )
