"""Would 16 bits make the matrices faster?"""

from __future__ import annotations

from collections.abc import Sequence

from traceprobe.findings.evidence import Evidence
from traceprobe.findings.rule import Answer, inconclusive, not_applicable, rule
from traceprobe.formatting import significant
from traceprobe.verdict.gpu_specs import Gpu
from traceprobe.verdict.thresholds import FIXED

PRODUCTS = ("matmul_fp32", "matmul_tf32", "matmul_3xtf32")
OTHERS = ("softmax", "layout", "other", "fused")
ADVICE = {
    "bf16": "Run forward pass and loss under `torch.autocast('cuda', dtype=torch.bfloat16)`. Then "
    "compare the loss curves.",
    "fp16": "Run forward pass and loss under `torch.autocast('cuda', dtype=torch.float16)` with a "
    "`torch.amp.GradScaler` (this GPU has no fast bf16). Then compare the loss curves.",
}


@rule(
    "lower-precision",
    title="Matrix kernels run in higher precision than needed",
    definition="Duration of the matrix kernels (products, convolutions, attention) of forward and "
    "backward pass by the precision that their names tell: without tensor cores, TF32, 16 bits or "
    "fewer. The saving of those with more than 16 bits is by the ratios of the GPU's dense peaks "
    "to that of bf16, or of fp16 where the GPU has no bf16, as in `tf32-off`; all other kernels "
    "are halved, since their operands have half the size.",
    verify="`kernel_ns` moves from `matmul_fp32` and `matmul_tf32` to `matmul_half`.",
    of_gpu=True,
)
def lower_precision(evidence: Evidence) -> Answer:
    """Matrices in fp32 or TF32 on a GPU that is faster in 16 bits."""
    if not evidence.has_kernels:
        return not_applicable("the run has no GPU kernels")
    fp32, tf32 = evidence.kernel_ms("matmul_fp32"), evidence.kernel_ms("matmul_tf32")
    three, half = evidence.kernel_ms("matmul_3xtf32"), evidence.kernel_ms("matmul_half")
    times = (
        f"{significant(fp32)} ms {evidence.per} in matrix kernels without tensor cores, "
        f"{significant(tf32 + three)} ms in TF32, "
        f"{significant(half + evidence.kernel_ms('matmul_unaligned'))} ms in 16 bits or fewer or "
        "unaligned"
    )
    status = evidence.flag(evidence.kernel_ms(*PRODUCTS))
    if status == "pass":
        return Answer(status, [times])
    devices = evidence.devices()
    if devices is None:
        return inconclusive(
            f"{times}; what {evidence.device_name} can do is not known here",
            f"On an NVIDIA GPU of compute capability 8.0 or later, or an AMD Instinct MI200 or "
            f"later: {ADVICE['bf16']}",
        )
    target = _target(devices)
    if target is None:
        return not_applicable(f"{devices[0].name} is not faster in 16 bits")
    kept_fp32 = FIXED.fp32_reached * _kept(devices, "fp32", target)
    kept_tf32 = _kept(devices, "tf32", target)
    saving = (
        fp32 * (1 - kept_fp32)
        + tf32 * (1 - kept_tf32)
        + three * (1 - kept_tf32 / FIXED.tf32_products)
        + evidence.kernel_ms(*OTHERS) * (1 - FIXED.halved_operands)
    )
    return Answer(
        status,
        [times],
        evidence.saving(saving, *PRODUCTS, *OTHERS),
        ADVICE[target],
        changes=evidence.faster(FIXED.half_usual * saving, FIXED.usual_margin),
    )


def _target(devices: Sequence[Gpu]) -> str | None:
    """The 16-bit format in which all devices are faster than in fp32; bf16 needs no scaling."""
    for precision in ("bf16", "fp16"):
        if all(gpu.peaks.get(precision, 0.0) > gpu.peaks["fp32"] for gpu in devices):
            return precision
    return None


def _kept(devices: Sequence[Gpu], precision: str, target: str) -> float:
    """Least part of a time in `precision` that is left in `target`, by peaks."""
    return min(gpu.peaks.get(precision, gpu.peaks["fp32"]) / gpu.peaks[target] for gpu in devices)
