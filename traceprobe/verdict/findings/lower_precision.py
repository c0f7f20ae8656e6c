"""Would lower precision make the matrices faster?"""

from __future__ import annotations

import re

from traceprobe.report.result import Finding
from traceprobe.verdict.findings.evidence import Evidence, unanswered

ID = "lower-precision"
RULE = (
    "Duration of the matrix kernels (products, convolutions, attention) of forward and backward "
    "pass by the precision that their names tell: without tensor cores, TF32, 16 bits or fewer. "
    "The saving takes the largest ratio of peaks, 16 from fp32 and 2 from TF32 to bf16, and "
    "halves all other kernels, whose operands have half the size."
)
VERIFY = "`kernel_ns` moves from `matmul_fp32` to `matmul_tf32` or `matmul_half`."
TENSOR_CORES = re.compile(
    r"\b(A2|A10G?|A16|A30|A40|A100|A800|H100|H200|H800|H20|GH200|B100|B200|B300|GB200|GB300|L4|L40S?"
    r"|RTX (A\d{4}|30\d\d|40\d\d|50\d\d|[456]000 Ada)|PG509-\d+)\b",
)
"""NVIDIA GPUs of compute capability 8.0 and later: these have TF32 and bf16."""
FP32_TO_BF16, FP32_TO_TF32 = 16, 8
"""Ratios of dense peaks on A100, above those of its successors."""


def check(evidence: Evidence) -> Finding:
    """Matrices in fp32 or TF32 on a GPU that has tensor cores for less."""
    title = "Matrices are computed in more precision than need be"
    if not evidence.has_kernels:
        return unanswered(ID, "not-applicable", title, "the run has no GPU kernels")
    fp32, tf32 = evidence.kernel_ms("matmul_fp32"), evidence.kernel_ms("matmul_tf32")
    rest = evidence.kernel_ms("other", "fused")
    half = evidence.kernel_ms("matmul_half", "matmul_unaligned")
    told = [
        f"{fp32:.2f} ms {evidence.per} in matrix kernels without tensor cores, {tf32:.2f} ms in "
        f"TF32, {half:.2f} ms in 16 bits or fewer"
    ]
    if fp32 + tf32 < evidence.limits.notable * evidence.step_ms():
        return Finding(
            id=ID, status="pass", title=title, saving_ms_per_step=None, evidence=told, advice=""
        )
    names = [r.device.name or "" for r in evidence.ranks]
    if not all(TENSOR_CORES.search(name) for name in names):
        return unanswered(
            ID,
            "inconclusive",
            title,
            f"{told[0]}; whether {names[0] or 'this GPU'} has tensor cores for TF32 and bf16 is "
            "not known here",
            "On a GPU of compute capability 8.0 or later, allow TF32 "
            "(`torch.set_float32_matmul_precision('high')`) and use `torch.autocast` with bf16.",
        )
    # Operands of half the size: kernels that the memory limits take half the time at best.
    saving = fp32 * (1 - 1 / FP32_TO_BF16) + (tf32 + rest) / 2
    by_tf32 = fp32 * (1 - 1 / FP32_TO_TF32)
    if by_tf32 >= evidence.limits.notable * evidence.step_ms():
        told.append(f"TF32 alone saves up to {by_tf32:.2f} ms, without a change to the model")
    return Finding(
        id=ID,
        status="warn",
        title=title,
        saving_ms_per_step=evidence.saving(saving),
        evidence=told,
        advice="Allow TF32 (`torch.set_float32_matmul_precision('high')`, "
        "`torch.backends.cudnn.allow_tf32 = True`), or run forward and loss under "
        "`torch.autocast('cuda', dtype=torch.bfloat16)`; then compare the loss curves.",
    )
