"""Do matrices in 32 bits run without tensor cores on a GPU that has TF32?"""

from __future__ import annotations

from traceprobe.findings.evidence import Evidence, unanswered
from traceprobe.records.report import Finding

ID = "tf32-off"
RULE = (
    "Duration of the matrix kernels of forward and backward pass that run in fp32 without tensor "
    "cores, on a GPU with TF32. PyTorch's fused attention in 32 bits is left out: it uses tensor "
    "cores whatever is allowed. So is a run whose capture recorded that TF32 is allowed. The "
    "saving is by the ratio of the GPU's dense peaks, of which fp32 is taken to reach half at "
    "least."
)
VERIFY = "`kernel_ns` moves from `matmul_fp32` to `matmul_tf32`."
REACHED = 0.5
"""Part of its peak that a product in fp32 reaches at least, unless the memory limits it, which TF32
does not change. GPUs for games have the same peak in TF32, and yet are faster in it."""
ADVICE = (
    "`torch.set_float32_matmul_precision('high')` for products and "
    "`torch.backends.cudnn.allow_tf32 = True` for convolutions; then compare the loss curves. "
    "The model stays as it is."
)


def check(evidence: Evidence) -> Finding:
    """Matrix kernels in fp32 on GPUs that have TF32."""
    title = "TF32 is switched off"
    if not evidence.has_kernels:
        return unanswered(ID, "not-applicable", title, "the run has no GPU kernels")
    ms = evidence.kernel_ms("matmul_fp32")
    told = (
        f"{ms:.2f} ms {evidence.per} ({evidence.share(ms):.1%}) in fp32 matrix kernels without "
        "tensor cores"
    )
    status = evidence.flag(ms)
    if status == "pass":
        return Finding(
            id=ID, status=status, title=title, saving_ms_per_step=None, evidence=[told], advice=""
        )
    if evidence.allows_tf32:
        told = f"{told}; TF32 is allowed, and libraries chose these all the same"
        return Finding(
            id=ID, status="pass", title=title, saving_ms_per_step=None, evidence=[told], advice=""
        )
    devices = evidence.devices()
    if devices is None:
        return unanswered(
            ID,
            "inconclusive",
            title,
            f"{told}; whether {evidence.device_name} has TF32 is not known here",
            f"On an NVIDIA GPU of compute capability 8.0 or later: {ADVICE}",
        )
    without = [gpu.name for gpu in devices if "tf32" not in gpu.peaks]
    if without:
        return unanswered(ID, "not-applicable", title, f"{without[0]} has no TF32")
    kept = REACHED * min(gpu.peaks["fp32"] / gpu.peaks["tf32"] for gpu in devices)
    return Finding(
        id=ID,
        status=status,
        title=title,
        saving_ms_per_step=evidence.saving(ms * (1 - kept)),
        evidence=[told],
        advice=ADVICE,
    )
