"""Does fused attention read a mask where `is_causal=True` would do?"""

from __future__ import annotations

from msgspec import UNSET

from traceprobe.findings.attention_unfused import PRODUCTS
from traceprobe.findings.evidence import Evidence
from traceprobe.findings.rule import Answer, not_applicable, rule
from traceprobe.formatting import percent
from traceprobe.verdict.thresholds import FIXED


@rule(
    "attention-mask",
    title="Fused attention computes what its mask hides",
    definition="Duration of kernels of fused attention that are called with a mask of as many rows "
    "and columns as there are tokens: it is read, and every score is computed. Half of them are "
    "hidden where it is one for all samples and heads, as a causal one is, a quarter where each "
    "sample has its own. The saving is all but a quarter of it. Only recorded shapes show it.",
    verify="`masked_attention` is not in the summary of the ranks, and losses stay the same.",
    of_gpu=True,
)
def attention_mask(evidence: Evidence) -> Answer:
    """Fused attention with a mask, which a kernel for causal attention would do without."""
    found = [(rank.summary.masked_attention, rank.summary.steps) for rank in evidence.ranks]
    known = [(each, steps) for each, steps in found if each is not UNSET]
    if not known:
        return not_applicable("no fused attention is known to read a mask")
    whole = evidence.of_steps((each.ns, steps) for each, steps in known)
    hidden = evidence.of_steps((each.hidden_ns, steps) for each, steps in known)
    gain = whole - (whole - hidden) * FIXED.unmasked_usual
    return Answer(
        evidence.flag(gain),
        [
            f"{evidence.amount(whole)} in fused attention with a mask, which hides about "
            f"{percent(hidden / whole, 0)} of the scores if it is causal"
        ],
        evidence.saving(whole * (1 - FIXED.attention_least), *PRODUCTS),
        "Where the mask is causal, give none and `is_causal=True`: kernels for that skip what it "
        "hides. Leave out masks that hide nothing, and replace padding by sequences of their own "
        "lengths (`flash_attn_varlen_func`, nested tensors) or a compiled `flex_attention`.",
        changes=evidence.faster(gain, FIXED.usual_margin),
    )
