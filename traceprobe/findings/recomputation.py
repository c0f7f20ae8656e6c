"""Are activations computed twice?"""

from __future__ import annotations

from traceprobe.findings.evidence import HOST_IDLE, Evidence
from traceprobe.findings.rule import Answer, inconclusive, not_applicable, rule
from traceprobe.replay.scenario import Changes


@rule(
    "recomputation",
    title="Activations are computed twice",
    definition="Exclusive time of forward operations that run again on the autograd thread. Where "
    "no operator tells, as in compiled graphs, kernels of attention, normalisation and softmax do: "
    "of a backward pass that launches their forward ones, these and the products that the forward "
    "pass launches too, and all between them. The saving is all of it and the idle time of "
    "`host-overhead`, since their launches go away too, but of that no more than the host spends "
    "between those launches.",
    verify="`partition_ns.recompute` falls, peak memory rises.",
)
def recomputation(evidence: Evidence) -> Answer:
    """Forward operations that run again in the backward pass, to save memory."""
    if not evidence.observed("recompute") and "operators" not in evidence.profiled:
        return inconclusive(
            "no operators, and no kernel of attention, norms or softmax shows forward work in the "
            "backward pass"
        )
    if not evidence.observed("recompute"):
        return not_applicable("no forward work in the backward pass")
    ms = evidence.exclusive_ms("recompute")
    return Answer(
        evidence.flag(ms),
        [f"{evidence.amount(ms)} of recomputation"],
        evidence.saving(ms + evidence.launching_ms("recompute"), "recompute", *HOST_IDLE),
        "Checkpoint fewer layers if memory allows it, or only the cheap ones; a smaller batch "
        "without checkpointing may be faster.",
        [site for site in evidence.sites("recompute") if site.line or site.within],
        changes=Changes(removed=frozenset({"recompute"})),
    )
