"""Do convolutions change the layout of their images back and forth?"""

from __future__ import annotations

from traceprobe.findings.evidence import Evidence
from traceprobe.findings.owned_time import named_ms
from traceprobe.findings.rule import Answer, not_applicable, rule
from traceprobe.verdict.thresholds import FIXED

ADVICE = (
    "Use the layout that tensor cores read: `model.to(memory_format=torch.channels_last)`, and the "
    "same for every batch. For volumes it is `channels_last_3d`."
)
_OF_SEQUENCES = (
    "Sequences have no such layout, so make them images of height 1 (`x.unsqueeze(2)`, "
    "`nn.Conv2d(..., kernel_size=(1, k))`). "
)
_BATCH_NORM = r"batch_norm_(collect_statistics|transform_input|backward)_kernel"
"""PyTorch's for NCHW, whose threads read one channel after the other; those of the other layout are
called `…_channels_last_kernel`."""
_MAX_POOL = r"max_pool_(forward|backward)_nchw"
"""The same of pooling; those of the other layout end in `_nhwc`."""
ADVICE_AMD = " Before ROCm 7 PyTorch also needs `PYTORCH_MIOPEN_SUGGEST_NHWC=1`."
"""MIOpen 3.5, of ROCm 7.0, is the first that PyTorch gives NHWC by itself (pytorch #170947)."""


@rule(
    "memory-format",
    title="Convolutions convert between NCHW and NHWC",
    definition="Duration of the kernels with which cuDNN converts images from NCHW to NHWC and "
    "back around convolutions on tensor cores, by their names. The saving is all of it and of the "
    "element-wise and normalising kernels: in the other layout they are other kernels, which may "
    "be much faster.",
    verify="`kernel_ns.layout` is near 0, and `kernel_ns.other` does not rise by as much.",
    of_gpu=True,
)
def memory_format(evidence: Evidence) -> Answer:
    """Kernels between NCHW and NHWC."""
    if not evidence.has_kernels:
        return not_applicable("the run has no GPU kernels")
    ms = evidence.kernel_ms("layout")
    if not ms:
        return not_applicable("no kernels that convert between NCHW and NHWC")
    status = evidence.flag(ms)
    most = ms + evidence.kernel_ms("other")
    norms = named_ms(evidence.owners, _BATCH_NORM) - FIXED.norm_conversions * ms
    pools = named_ms(evidence.owners, _MAX_POOL) * (1 - FIXED.pooling_kept)
    usual = ms + max(norms, 0.0) + pools
    return Answer(
        status,
        [f"{evidence.amount(ms)} in kernels that convert NCHW to NHWC or back"],
        evidence.saving(most, "layout", "other") if status == "warn" else None,
        _advice(evidence),
        changes=evidence.faster(min(usual, most), FIXED.fusion_margin),
    )


def _advice(evidence: Evidence) -> str:
    """The layout, for convolutions of images or of sequences."""
    flat = "aten::conv1d" in evidence.operators and "aten::conv2d" not in evidence.operators
    of_amd = ADVICE_AMD if evidence.vendor == "amd" else ""
    return f"{_OF_SEQUENCES if flat else ''}{ADVICE}{of_amd}"
