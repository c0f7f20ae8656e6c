"""Does the optimizer take a notable part of the step?"""

from __future__ import annotations

import re

from traceprobe.findings.evidence import Evidence
from traceprobe.findings.optimizer_forms import advice, is_called, may_be_fused
from traceprobe.findings.rule import Answer, not_applicable, rule
from traceprobe.replay.scenario import Changes
from traceprobe.verdict.thresholds import FIXED

ADAM = re.compile(r"adam|lerp|addc|pointwiseop", re.IGNORECASE)
"""What only optimizers with two moments launch."""


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
        advice(evidence.ranks, on_cpu=evidence.on_cpu),
        evidence.sites("optimizer"),
        cheaper_updates(evidence),
    )


def cheaper_updates(evidence: Evidence) -> Changes:
    """A fused optimizer, or where it is that already or has no such form, rarer updates."""
    if not may_be_fused(evidence.ranks):
        return Changes(speedup={"optimizer": FIXED.rarer_updates})
    adam = is_called(ADAM, evidence.ranks)
    factor = FIXED.fused_adam if adam else FIXED.fused_sgd
    spared = 1 - 1 / FIXED.fused_launches
    return Changes(
        speedup={"optimizer": round(factor, 2)},
        fewer={"optimizer": round(1 / (1 - _updating(evidence) * spared), 2)},
        margin=FIXED.usual_margin if adam else FIXED.fusion_margin,
    )


def _updating(evidence: Evidence) -> float:
    """Part of what the host spends between the optimizer's launches that is for its update.

    1 where no kernel tells where an update begins.
    """
    hosts = [rank.summary.host for rank in evidence.ranks]
    whole = [host.phase_launching_ns("optimizer") for host in hosts]
    own = [host.launching_ns("optimizer") for host in hosts]
    return min(sum(own) / sum(whole), 1.0) if all(whole) else 1.0
