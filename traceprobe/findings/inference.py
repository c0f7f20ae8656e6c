"""Whether steps are of training, and what advice says where they are not."""

from __future__ import annotations

import re

from traceprobe.findings.evidence import Evidence

_OF_TRAINING = ("backward", "recompute", "optimizer", "graph")
"""Phases of which a step of training has some; a graph may have any."""

_OF_INFERENCE = (
    (r"Run forward pass and loss", "Run the forward pass"),
    (r" with a `torch\.amp\.GradScaler`", ""),
    (r"compare the loss curves", "compare the results"),
    (r"Annotate forward pass and optimizer \(([^;)]*)[^)]*\)", r"Annotate the forward pass (\1)"),
    (r", fused or foreach optimizers", ""),
    (r", fused optimizers and losses", ""),
    (r"fused losses and norms", "fused norms"),
)
"""What to write instead of what is about losses and updates."""


def infers(evidence: Evidence) -> bool:
    """Whether nothing trains, as the file says, or as steps of nothing but a forward pass do."""
    if any(w.code in ("inference", "inference-server") for w in evidence.quality.warnings):
        return True
    return bool(evidence.busy_ms("forward")) and not evidence.busy_ms(*_OF_TRAINING)


def in_words_of_inference(advice: str) -> str:
    """Advice about training as one about inference."""
    for pattern, words in _OF_INFERENCE:
        advice = re.sub(pattern, words, advice)
    return advice
