"""Does the optimizer take a notable part of the step?"""

from __future__ import annotations

from traceprobe.findings.evidence import Evidence
from traceprobe.findings.rule import Answer, not_applicable, rule


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
    )
