"""Is time spent on moving intermediate results through memory?"""

from __future__ import annotations

from typing import NamedTuple

from traceprobe.findings.attention_unfused import counted_ms
from traceprobe.findings.evidence import Evidence
from traceprobe.findings.graph_breaks import eager_ms, launched_ms
from traceprobe.findings.owned_time import kernel_sites
from traceprobe.findings.rule import Answer, inconclusive, not_applicable, rule
from traceprobe.formatting import significant
from traceprobe.verdict.thresholds import FIXED

_FUSE = (
    "`torch.compile` fuses them; without it, use fused operations "
    "(`scaled_dot_product_attention`, fused losses and norms)."
)
_INDEXED = (
    "Fetch each row once and repeat it afterwards, or use `F.embedding` instead of `x[index]`. "
    "Most of the time goes to the gradient of that, which adds the rows of one index one after "
    "the other."
)


@rule(
    "unfused-kernels",
    title="Element-wise operations are not fused",
    definition="Time of the kernels of forward and backward pass that are element-wise, reductions "
    "or copies by their names, not fused, and not launched by a compiled graph, whose compiler "
    "could not fuse them. The saving is all of it. What belongs to attention, where "
    "`attention-unfused` asks for that, is counted there, and what graph breaks leave uncompiled "
    "at `graph-breaks`; so is all of it by `memory-format`, where that asks for another layout, "
    "which replaces the same kernels.",
    verify="`kernel_ns.other` falls by more than `kernel_ns.fused` rises.",
    of_gpu=True,
)
def unfused_kernels(evidence: Evidence) -> Answer:
    """Element-wise kernels, reductions and copies, outside of the optimizer."""
    if not evidence.has_kernels:
        return not_applicable("the run has no GPU kernels")
    fused, unknown = evidence.kernel_ms("fused"), evidence.kernel_ms("unknown")
    ms, attention, broken, launched, left = _parts(evidence)
    if unknown > ms:
        return _unknown(evidence, unknown)
    converted = evidence.flag(evidence.kernel_ms("layout")) == "warn"
    return Answer(
        "warn" if asks_for_fusion(evidence) else "pass",
        [
            f"{evidence.amount(ms)} in element-wise kernels, reductions and copies, "
            f"{significant(fused)} ms in fused kernels",
            f"{significant(unknown)} ms in kernels whose names say nothing" if unknown else "",
            f"{significant(attention)} ms more belong to attention: `attention-unfused` counts them"
            if attention
            else "",
            f"`graph-breaks` counts {significant(broken)} ms of them" if broken else "",
            f"{significant(launched)} ms of them are launched by compiled graphs, whose compiler "
            "could not fuse them"
            if launched
            else "",
            "`memory-format` counts what they cost: another layout replaces them"
            if converted
            else "",
        ],
        None if converted else evidence.saving(left, "other", "softmax"),
        _INDEXED if _mostly_indexed(evidence, left) else _FUSE,
        kernel_sites(evidence.owners, "other", "softmax"),
        evidence.faster(FIXED.fusion_usual * left, FIXED.fusion_margin),
    )


class _Parts(NamedTuple):
    """Element-wise kernels, reductions and copies, ms a step.

    Args:
        ms: all but those of attention. broken, launched: of those, what graph breaks leave
            uncompiled, and what compiled graphs launch. left: the others.
    """

    ms: float
    attention: float
    broken: float
    launched: float
    left: float


def _parts(evidence: Evidence) -> _Parts:
    attention = counted_ms(evidence, "other", "softmax")
    ms = evidence.kernel_ms("other", "softmax") - attention
    broken = min(eager_ms(evidence), ms)
    launched = min(launched_ms(evidence), ms - broken) if evidence.kernel_ms("fused") else 0.0
    return _Parts(ms, attention, broken, launched, ms - broken - launched)


def _mostly_indexed(evidence: Evidence, ms: float) -> bool:
    """Whether more than half of the kernels put gradients back to the rows that were fetched."""
    indexed = evidence.operators.get("aten::_index_put_impl_")
    return indexed is not None and 2 * indexed.device_ms > ms > 0


def asks_for_fusion(evidence: Evidence) -> bool:
    """Whether `unfused-kernels` asks for a change, and so counts short element-wise kernels too."""
    ms, *_, left = _parts(evidence)
    named = evidence.has_kernels and evidence.kernel_ms("unknown") <= ms
    return named and evidence.share(left) >= evidence.thresholds.bound


def _unknown(evidence: Evidence, ms: float) -> Answer:
    """The answer where most of what could be element-wise has no name that tells."""
    listed = (kernel.name for rank in evidence.ranks for kernel in rank.summary.top_kernels)
    if any(name.startswith("CUDA graph ") for name in listed):
        return inconclusive(
            "the trace shows CUDA graphs only as a whole",
            "Record graph nodes: `nsys profile --cuda-graph-trace=node`.",
        )
    return inconclusive(f"{evidence.amount(ms)} in kernels whose names say nothing")
