"""What advice says where nothing trains."""

from __future__ import annotations

import re

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


def in_words_of_inference(advice: str) -> str:
    """Advice about training as one about inference."""
    for pattern, words in _OF_INFERENCE:
        advice = re.sub(pattern, words, advice)
    return advice
