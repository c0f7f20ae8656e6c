"""Do matrices have sizes that tensor cores read badly?"""

from __future__ import annotations

from traceprobe.findings.evidence import Evidence, lines, unanswered, whole
from traceprobe.records.report import Finding

ID = "unaligned-matmul"
RULE = (
    "Duration of matrix kernels on tensor cores whose names say that they read one or two "
    "elements at a time (`align1`, `align2`). The saving keeps an eighth of it: reading 16 "
    "bytes at a time is at best eight times as fast."
)
VERIFY = "`kernel_ns.matmul_unaligned` is 0."
MULTIPLES = {"bf16": 8, "fp16": 8, "tf32": 4}
"""Numbers in 16 bytes, by precision."""
KEPT = 1 / 8
"""An aligned kernel reads 16 bytes at a time, one for the least alignment 2."""


def check(evidence: Evidence) -> Finding:
    """Time in tensor-core kernels whose names say that they read one or two elements at a time."""
    title = "Matrix sizes are not aligned for tensor cores"
    if not evidence.has_kernels:
        return unanswered(ID, "not-applicable", title, "the run has no GPU kernels")
    ms = evidence.kernel_ms("matmul_unaligned")
    status = evidence.flag(ms)
    return Finding(
        id=ID,
        status=status,
        title=title,
        saving_ms_per_step=evidence.saving(ms * (1 - KEPT)),
        evidence=lines(
            f"{ms:.2f} ms {evidence.per} ({evidence.share(ms):.1%}) in kernels for unaligned "
            "operands (`align1`, `align2` in their names)",
            _vocabulary(evidence) if status == "warn" else "",
        ),
        advice="Make the sizes of these matrices multiples of 16 bytes (8 numbers in bf16 or fp16, "
        "4 in TF32, 16 in int8 or fp8), better of 128 bytes: pad the vocabulary (50257 to 50304), "
        "or compile the model, which pads by itself.",
    )


def _vocabulary(evidence: Evidence) -> str:
    """Whether it is the vocabulary, where the capture knows its size and the precision."""
    size = whole((evidence.workload or {}).get("vocabulary"))
    multiple = MULTIPLES.get(str(evidence.setting("precision")))
    if size is None or multiple is None or size % multiple == 0:
        return ""
    best = multiple * 8
    return (
        f"the vocabulary of {size} is no multiple of {multiple}, that is of 16 bytes; "
        f"{-(-size // best) * best} is one of 128 bytes"
    )
