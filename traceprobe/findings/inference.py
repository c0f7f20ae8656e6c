"""Whether steps are of training, and what advice says where they are not."""

from __future__ import annotations

from traceprobe.findings.evidence import Evidence

_OF_TRAINING = ("backward", "recompute", "optimizer", "graph")
"""Phases of which a step of training has some; a graph may have any."""


def infers(evidence: Evidence) -> bool:
    """Whether steps have a forward pass, and neither a backward pass nor an update."""
    return bool(evidence.busy_ms("forward")) and not evidence.busy_ms(*_OF_TRAINING)


def of_results(evidence: Evidence, advice: str) -> str:
    """Advice on how precise a step computes, for inference where the steps are of that."""
    if not infers(evidence):
        return advice
    return (
        advice.replace("Run forward pass and loss", "Run the forward pass")
        .replace(" with a `torch.amp.GradScaler`", "")
        .replace("compare the loss curves", "compare the results")
    )
