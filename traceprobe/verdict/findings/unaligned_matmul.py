"""Do matrices have sizes that tensor cores read badly?"""

from __future__ import annotations

from traceprobe.report.result import Finding
from traceprobe.verdict.findings.evidence import Evidence, unanswered

ID = "unaligned-matmul"
RULE = (
    "Duration of matrix kernels on tensor cores whose names say that they read one or two "
    "elements at a time (`align1`, `align2`). The saving keeps an eighth of it: reading 16 "
    "bytes at a time is at best eight times as fast."
)
VERIFY = "`kernel_ns.matmul_unaligned` is 0."
KEPT = 1 / 8
"""An aligned kernel reads 16 bytes at a time, one for the least alignment 2."""


def check(evidence: Evidence) -> Finding:
    """Time in tensor-core kernels whose names say that they read one or two elements at a time."""
    title = "Matrix sizes are not aligned for tensor cores"
    if not evidence.has_kernels:
        return unanswered(ID, "not-applicable", title, "the run has no GPU kernels")
    ms = evidence.kernel_ms("matmul_unaligned")
    return Finding(
        id=ID,
        status=evidence.flag(ms),
        title=title,
        saving_ms_per_step=evidence.saving(ms * (1 - KEPT)),
        evidence=[
            f"{ms:.2f} ms {evidence.per} ({evidence.share(ms):.1%}) in kernels for unaligned "
            "operands (`align1`, `align2` in their names)"
        ],
        advice="Make the sizes of these matrices multiples of 8 (bf16, fp16) or 4 (TF32), better "
        "of 64: pad the vocabulary (50257 to 50304), or compile the model, which pads by itself.",
    )
