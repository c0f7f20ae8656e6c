"""Are the scores of attention written to memory?"""

from __future__ import annotations

from traceprobe.findings.evidence import Evidence, unanswered
from traceprobe.records.report import Finding

ID = "attention-unfused"
RULE = (
    "Duration of softmax kernels of forward and backward pass that are not part of a loss: "
    "attention that is not fused writes its scores to memory for them. The saving is theirs, that "
    "of all element-wise kernels (masks, scales and casts of the scores are among them), and 6/5 "
    "of theirs for the matrix products, which move the scores six times where softmax moves them "
    "five."
)
VERIFY = "`kernel_ns.softmax` is 0, and kernels with `flash`, `fmha` or `sdpa` in their names run."
PASSES = 6 / 5
"""Passes over the scores. Products: one writes and one reads them in the forward pass, one writes
and three read in the backward pass. Softmax: reads and writes; reads twice and writes."""


def check(evidence: Evidence) -> Finding:
    """Softmax kernels, which fused attention does without."""
    title = "Attention is not fused"
    if not evidence.has_kernels:
        return unanswered(ID, "not-applicable", title, "the run has no GPU kernels")
    ms = evidence.kernel_ms("softmax")
    if not ms:
        return unanswered(ID, "not-applicable", title, "no softmax kernels but those of a loss")
    around = evidence.kernel_ms("other")
    return Finding(
        id=ID,
        status=evidence.flag(ms),
        title=title,
        saving_ms_per_step=evidence.saving(ms * (1 + PASSES) + around),
        evidence=[
            f"{ms:.2f} ms {evidence.per} ({evidence.share(ms):.1%}) in softmax kernels, "
            f"{around:.2f} ms in element-wise kernels, some of them attention's"
        ],
        advice="Call `torch.nn.functional.scaled_dot_product_attention`, and let it choose its "
        "kernel: 16 bits, no mask but `is_causal=True`, and no `sdpa_kernel` that allows only "
        "`MATH`.",
    )
