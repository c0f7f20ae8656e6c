"""Are the scores of attention written to memory?"""

from __future__ import annotations

import msgspec

from traceprobe.findings.evidence import Evidence
from traceprobe.findings.owned_time import kernel_sites
from traceprobe.findings.rule import Answer, not_applicable, rule
from traceprobe.formatting import counted, percent, significant
from traceprobe.model.taxonomy import KERNEL_CLASSES
from traceprobe.records.summary import UnfusedAttention
from traceprobe.verdict.thresholds import FIXED

PRODUCTS = tuple(name for name in KERNEL_CLASSES if name.startswith("matmul"))
ROUND = ("softmax", "other", "memory")
"""What runs between the products: none of it is left in fused attention."""


@rule(
    "attention-unfused",
    title="Attention is not fused",
    definition="Duration of softmax kernels of forward and backward pass that are not part of a "
    "loss: attention that is not fused writes its scores to memory for them. With matrix products "
    "right before and after them, and no `topk` or sort between as where tokens are routed to "
    "experts, all from product to product is attention's, and the saving is what it takes less a "
    "quarter of the products of fused attention at the same rate: a causal mask hides half of "
    "them, and those that move no scores may be twice as fast. Where softmax kernels with such "
    "products take no more than half of the time of all, the others add theirs, 6/5 of it for the "
    "matrix products, which move the scores six times where softmax moves them five, and up to "
    "19/5 for element-wise kernels (scales, masks, dropout and casts of the scores), as far as the "
    "run has such kernels.",
    verify="`kernel_ns.softmax` is 0, and kernels with `flash`, `fmha` or `sdpa` in their names "
    "run.",
    of_gpu=True,
)
def attention_unfused(evidence: Evidence) -> Answer:
    """Softmax kernels and what belongs to them, which fused attention does without."""
    if not evidence.has_kernels:
        return not_applicable("the run has no GPU kernels")
    if not evidence.kernel_ms("softmax"):
        return not_applicable("no softmax kernels outside the loss")
    known = _known(evidence) if unfused(evidence) else _Part()
    guessed = _guessed(evidence, unknown_ms(evidence))
    usual = known.usual + guessed.usual
    margin = FIXED.usual_margin if guessed.usual else FIXED.attention_margin
    classes = ["softmax", "other", *PRODUCTS]
    if attention_ms(evidence, "memory"):
        classes.append("memory")
    return Answer(
        evidence.flag(asked_ms(evidence)),
        [known.told, guessed.told],
        evidence.saving(known.most + guessed.most, *classes),
        "Call `torch.nn.functional.scaled_dot_product_attention`, and let it choose its kernel: "
        "use 16 bits, no mask other than `is_causal=True`, and no `sdpa_kernel` that allows only "
        "`MATH`.",
        kernel_sites(evidence.owners, "softmax"),
        evidence.faster(usual, margin),
    )


class _Part(msgspec.Struct, frozen=True):
    """What is told of some of the attention, and what fusing it saves at most and usually, ms."""

    told: str = ""
    most: float = 0.0
    usual: float = 0.0


def unfused(evidence: Evidence) -> list[tuple[UnfusedAttention, int]]:
    """Attention that is not fused, with the steps that it is of, of the ranks that have any."""
    known = [(rank.summary.attention, rank.summary.steps) for rank in evidence.ranks]
    return [(found, steps) for found, steps in known if isinstance(found, UnfusedAttention)]


def attention_ms(evidence: Evidence, *classes: str) -> float:
    """Time of some classes of kernels that belongs to attention that is not fused."""
    return evidence.of_steps(
        (sum(each.class_ns.get(c, 0) for c in classes), steps) for each, steps in unfused(evidence)
    )


def fused_ms(evidence: Evidence) -> float:
    """What that attention takes once it is fused, with products at the same rate."""
    return evidence.of_steps(
        (each.fused_ns - each.hidden_ns, steps) for each, steps in unfused(evidence)
    )


def hidden_ms(evidence: Evidence) -> float:
    """What fused attention would take for scores that masks hide."""
    return evidence.of_steps((each.hidden_ns, steps) for each, steps in unfused(evidence))


def counted_ms(evidence: Evidence, *classes: str) -> float:
    """Time of some classes of kernels that this finding counts: none unless it asks."""
    asks = unfused(evidence) and evidence.flag(asked_ms(evidence)) == "warn"
    return attention_ms(evidence, *classes) if asks else 0.0


def asked_ms(evidence: Evidence) -> float:
    """What decides whether to ask for fused attention: what it saves, and softmax by itself."""
    return unfused_ms(evidence) + unknown_ms(evidence)


def unfused_ms(evidence: Evidence) -> float:
    """What attention takes longer than fused attention would, where its products are known."""
    return attention_ms(evidence, *ROUND, *PRODUCTS) - fused_ms(evidence)


def unknown_ms(evidence: Evidence) -> float:
    """Time of softmax kernels without known products, where that is half of softmax or more.

    Where it is less, the run's attention is known, and these are of something else.
    """
    softmax = evidence.kernel_ms("softmax")
    rest = softmax - attention_ms(evidence, "softmax")
    return rest if 2 * rest >= softmax else 0.0


def _known(evidence: Evidence) -> _Part:
    """Attention whose products are known."""
    fused, gain, hidden = fused_ms(evidence), unfused_ms(evidence), hidden_ms(evidence)
    scores = attention_ms(evidence, *ROUND)
    part = percent(hidden / (fused + hidden), 0) if hidden else ""
    masked = f" where masks hide {part} of the scores" if hidden else ""
    count = sum(found.count / steps for found, steps in unfused(evidence)) / len(evidence.ranks)
    return _Part(
        f"{evidence.amount(gain + fused)} from matrix product to matrix product around "
        f"{counted(round(count, 3), 'softmax kernel')}, of which {significant(scores)} ms in "
        "softmax, element-wise kernels and copies; fused attention with products as fast takes "
        f"{significant(fused)} ms{masked}",
        gain + fused - (fused + hidden) * FIXED.attention_least,
        gain + _misread(evidence) * fused * (1 - FIXED.aligned_usual),
    )


def _misread(evidence: Evidence) -> float:
    """Part of attention's products whose operands are not aligned.

    Rows of scores are as long as the sequence is, which may be odd. Fused attention reads none of
    them, only rows of queries, keys and values, which are as long as a head is wide.
    """
    products = attention_ms(evidence, *PRODUCTS)
    return attention_ms(evidence, "matmul_unaligned") / products if products else 0.0


def _guessed(evidence: Evidence, softmax: float) -> _Part:
    """What may belong to attention around softmax kernels without known products.

    Args:
        softmax: ms of these kernels.
    """
    if not softmax:
        return _Part()
    products = evidence.kernel_ms(*PRODUCTS) - attention_ms(evidence, *PRODUCTS)
    others = evidence.kernel_ms("other") - attention_ms(evidence, "other")
    moved = min(softmax * FIXED.softmax_passes, max(products, 0.0))
    around = min(softmax * FIXED.softmax_around, max(others, 0.0))
    more = "more " if unfused(evidence) else ""
    told = (
        f"{evidence.amount(softmax)} {more}in softmax kernels; up to {significant(around)} ms in "
        f"element-wise kernels and {significant(moved)} ms in matrix kernels may belong to "
        "attention"
    )
    most = softmax + moved + around
    return _Part(told, most, FIXED.attention_usual * most)
