"""Does the optimizer take a notable part of the step?"""

from __future__ import annotations

import re
from collections.abc import Sequence

from traceprobe.findings.evidence import Evidence
from traceprobe.findings.rule import Answer, not_applicable, rule
from traceprobe.records.rank import Rank
from traceprobe.replay.scenario import Changes
from traceprobe.verdict.thresholds import FIXED

ADAM = re.compile(r"adam|lerp|addc|pointwiseop", re.IGNORECASE)
"""What only optimizers with two moments launch."""
FUSED = re.compile(r"(?<!un)fused", re.IGNORECASE)
"""PyTorch's, Apex's and a compiler's kernels are called so."""


@rule(
    "optimizer-cost",
    title="The optimizer step is expensive",
    definition="Exclusive time of the optimizer's kernels. The saving is all of it.",
    verify="`partition_ns.optimizer` falls. Adam in fp32 moves 28 bytes a parameter; below what "
    "that takes at the memory's bandwidth it cannot fall.",
)
def optimizer_cost(evidence: Evidence) -> Answer:
    """Exclusive time of the optimizer's kernels."""
    if not evidence.observed("optimizer"):
        return not_applicable("no optimizer kernels were found")
    ms = evidence.exclusive_ms("optimizer")
    return Answer(
        evidence.flag(ms),
        [f"{evidence.amount(ms)} in the optimizer"],
        evidence.saving(ms, "optimizer"),
        "Use `fused=True`, or at least `foreach=True`; accumulate gradients over more samples, so "
        "that there are fewer updates.",
        evidence.sites("optimizer"),
        cheaper_updates(evidence),
    )


def cheaper_updates(evidence: Evidence) -> Changes:
    """A fused optimizer, or where it is that already, rarer updates."""
    if is_fused(evidence.ranks):
        return Changes(speedup={"optimizer": FIXED.rarer_updates})
    adam = _is_called(ADAM, evidence.ranks)
    factor = FIXED.fused_adam if adam else FIXED.fused_sgd
    return Changes(
        speedup={"optimizer": round(factor, 2)},
        fewer={"optimizer": FIXED.fused_launches},
        margin=FIXED.usual_margin if adam else FIXED.fusion_margin,
    )


def is_fused(ranks: Sequence[Rank]) -> bool:
    """Whether one of the kernels with most time is a fused optimizer by its name."""
    return _is_called(FUSED, ranks)


def _is_called(pattern: re.Pattern[str], ranks: Sequence[Rank]) -> bool:
    """Whether one of the optimizer's kernels among those with most time has such a name."""
    return any(
        kernel.phase == "optimizer" and pattern.search(kernel.name)
        for rank in ranks
        for kernel in rank.summary.top_kernels
    )
