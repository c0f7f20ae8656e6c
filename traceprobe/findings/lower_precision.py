"""Would 16 bits make the matrices faster?"""

from __future__ import annotations

from collections.abc import Sequence

from traceprobe.findings.capability import has_tf32_and_bf16
from traceprobe.findings.evidence import Evidence
from traceprobe.findings.rule import Answer, inconclusive, not_applicable, rule
from traceprobe.formatting import listed, significant
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
    "backward pass by the precision that their names show: without tensor cores, TF32, 16 bits or "
    "fewer. The saving of those with more than 16 bits is by the ratios of the GPU's dense peaks "
    "to that of bf16, or of fp16 where the GPU has no bf16; fp32 is taken to reach half of its "
    "peak at least, TF32 seven tenths. All other kernels are halved, since their operands have "
    "half the size.",
    verify="`kernel_ns` moves from `matmul_fp32` and `matmul_tf32` to `matmul_half`.",
    of_gpu=True,
)
def lower_precision(evidence: Evidence) -> Answer:
    """Matrices in fp32 or TF32 on a GPU that is faster in 16 bits."""
    if not evidence.has_kernels:
        return not_applicable("the run has no GPU kernels")
    fp32, tf32 = evidence.kernel_ms("matmul_fp32"), evidence.kernel_ms("matmul_tf32")
    three = evidence.kernel_ms("matmul_3xtf32")
    times = _times(evidence, fp32, tf32 + three)
    status = evidence.flag(evidence.kernel_ms(*PRODUCTS))
    if status == "pass":
        return Answer(status, [times])
    devices = evidence.devices()
    if devices is None and has_tf32_and_bf16(evidence):
        peaks = f"the peaks of {evidence.device_name} are not known here, so no saving is"
        return Answer(status, [times, peaks], None, ADVICE["bf16"])
    if devices is None:
        return inconclusive(
            f"{times}; what {evidence.device_name} can do is not known here",
            f"On an NVIDIA GPU of compute capability 8.0 or later, or an AMD Instinct MI200 or "
            f"later: {ADVICE['bf16']}",
        )
    target = _target(devices)
    if target is None:
        return not_applicable(f"{devices[0].name} is not faster in 16 bits")
    by_peaks = _kept(devices, "fp32", target), _kept(devices, "tf32", target)

    def saved(of_fp32: float, of_tf32: float, of_others: float) -> float:
        kept_fp32, kept_tf32 = by_peaks[0] * of_fp32, by_peaks[1] * of_tf32
        return (
            fp32 * (1 - min(kept_fp32, 1.0))
            + tf32 * (1 - min(kept_tf32, 1.0))
            + three * (1 - min(kept_tf32 / FIXED.tf32_products, 1.0))
            + evidence.kernel_ms(*OTHERS) * (1 - of_others)
        )

    most = saved(FIXED.fp32_reached, FIXED.tf32_reached, FIXED.halved_operands)
    usual = saved(FIXED.fp32_usual, FIXED.tf32_to_half_usual, FIXED.halved_usual)
    spent = evidence.kernel_ms(*PRODUCTS, *OTHERS)
    return Answer(
        status,
        [times],
        evidence.saving(most, *PRODUCTS, *OTHERS),
        ADVICE[target],
        changes=evidence.faster(usual, FIXED.half_margin * (spent - usual) / usual),
    )


def _times(evidence: Evidence, fp32: float, tf32: float) -> str:
    """What matrix kernels take in each precision that ran."""
    parts = {
        "without tensor cores": fp32,
        "in TF32": tf32,
        "in 16 bits or fewer": evidence.kernel_ms("matmul_half"),
        "with unaligned operands": evidence.kernel_ms("matmul_unaligned"),
    }
    told = [f"{significant(ms)} ms {how}" for how, ms in parts.items() if ms]
    return f"matrix kernels {evidence.per}: {listed(told) or 'none'}"


def _target(devices: Sequence[Gpu]) -> str | None:
    """The 16-bit format in which all devices are faster than in fp32; bf16 needs no scaling."""
    for precision in ("bf16", "fp16"):
        if all(gpu.peaks.get(precision, 0.0) > gpu.peaks["fp32"] for gpu in devices):
            return precision
    return None


def _kept(devices: Sequence[Gpu], precision: str, target: str) -> float:
    """Least part of a time in `precision` that is left in `target`, by peaks."""
    return min(gpu.peaks.get(precision, gpu.peaks["fp32"]) / gpu.peaks[target] for gpu in devices)
