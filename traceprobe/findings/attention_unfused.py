"""Are the scores of attention written to memory?"""

from __future__ import annotations

from traceprobe.findings.evidence import Evidence
from traceprobe.findings.rule import Answer, not_applicable, rule
from traceprobe.formatting import significant
from traceprobe.model.taxonomy import KERNEL_CLASSES
from traceprobe.verdict.thresholds import FIXED


@rule(
    "attention-unfused",
    title="Attention is not fused",
    definition="Duration of softmax kernels of forward and backward pass that are not part of a "
    "loss: attention that is not fused writes its scores to memory for them. The saving is theirs, "
    "6/5 of theirs for the matrix products, which move the scores six times where softmax moves "
    "them five, and up to 19/5 for element-wise kernels (scales, masks, dropout and casts of the "
    "scores), as far as the run has such kernels.",
    verify="`kernel_ns.softmax` is 0, and kernels with `flash`, `fmha` or `sdpa` in their names "
    "run.",
    of_gpu=True,
)
def attention_unfused(evidence: Evidence) -> Answer:
    """Softmax kernels, which fused attention does without."""
    if not evidence.has_kernels:
        return not_applicable("the run has no GPU kernels")
    ms = evidence.kernel_ms("softmax")
    if not ms:
        return not_applicable("no softmax kernels outside the loss")
    products = [name for name in KERNEL_CLASSES if name.startswith("matmul")]
    moved = min(ms * FIXED.softmax_passes, evidence.kernel_ms(*products))
    around = min(ms * FIXED.softmax_around, evidence.kernel_ms("other"))
    return Answer(
        evidence.flag(ms),
        [
            f"{evidence.amount(ms)} in softmax kernels; up to {significant(around)} ms in "
            f"element-wise kernels and {significant(moved)} ms in matrix kernels may belong to "
            "attention"
        ],
        evidence.saving(ms + moved + around, "softmax", "other", *products),
        "Call `torch.nn.functional.scaled_dot_product_attention`, and let it choose its kernel: "
        "use 16 bits, no mask other than `is_causal=True`, and no `sdpa_kernel` that allows only "
        "`MATH`.",
        evidence.kernel_sites("softmax"),
        evidence.faster(FIXED.attention_usual * (ms + moved + around), FIXED.usual_margin),
    )
