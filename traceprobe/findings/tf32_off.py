"""Do matrices in 32 bits run without tensor cores on a GPU that has TF32?"""

from __future__ import annotations

from traceprobe.findings.capability import has_tf32_and_bf16
from traceprobe.findings.evidence import Evidence
from traceprobe.findings.recorded_facts import allows_tf32
from traceprobe.findings.rule import Answer, inconclusive, not_applicable, rule
from traceprobe.verdict.thresholds import FIXED

ADVICE = (
    "Set `torch.set_float32_matmul_precision('high')`, and for convolutions "
    "`torch.backends.cudnn.allow_tf32 = True`. Then compare the loss curves. "
    "The model stays as it is."
)


@rule(
    "tf32-off",
    title="TF32 is switched off",
    definition="Duration of the matrix kernels of forward and backward pass that run in fp32 "
    "without tensor cores, on a GPU with TF32. PyTorch's fused attention in 32 bits is left out: "
    "it uses tensor cores whatever is allowed. So is a run whose capture recorded that TF32 is "
    "allowed. The saving is by the ratio of the GPU's dense peaks, of which fp32 is taken to reach "
    "half at least.",
    verify="`kernel_ns` moves from `matmul_fp32` to `matmul_tf32`.",
    of_gpu=True,
)
def tf32_off(evidence: Evidence) -> Answer:
    """Matrix kernels in fp32 on GPUs that have TF32."""
    if not evidence.has_kernels:
        return not_applicable("the run has no GPU kernels")
    ms = evidence.kernel_ms("matmul_fp32")
    time = f"{evidence.amount(ms)} in fp32 matrix kernels without tensor cores"
    status = evidence.flag(ms)
    if status == "pass":
        return Answer(status, [time])
    if evidence.vendor == "amd":
        return not_applicable("PyTorch's switches for TF32 are those of NVIDIA's GPUs")
    if allows_tf32(evidence.capture):
        return Answer("pass", [f"{time}; TF32 is allowed, but libraries chose these anyway"])
    devices = evidence.devices()
    if devices is None and has_tf32_and_bf16(evidence):
        peaks = f"the peaks of {evidence.device_name} are not known here, so no saving is"
        return Answer(status, [time, peaks], None, ADVICE)
    if devices is None:
        return inconclusive(
            f"{time}; whether {evidence.device_name} has TF32 is not known here",
            f"On an NVIDIA GPU of compute capability 8.0 or later: {ADVICE}",
        )
    without = [gpu.name for gpu in devices if "tf32" not in gpu.peaks]
    if without:
        return not_applicable(f"{without[0]} has no TF32")
    # GPUs for games have the same peak in TF32 as in fp32, and yet are faster in it.
    kept = FIXED.fp32_reached * min(gpu.peaks["fp32"] / gpu.peaks["tf32"] for gpu in devices)
    most = ms * (1 - kept)
    return Answer(
        status,
        [time],
        evidence.saving(most, "matmul_fp32"),
        ADVICE,
        changes=evidence.faster(FIXED.tf32_usual * most, FIXED.usual_margin),
    )
