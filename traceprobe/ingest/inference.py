"""Traces of PyTorch's profiler in which nothing trains."""

from __future__ import annotations

import re
from collections.abc import Iterable

from traceprobe.model.quality import Quality

_SERVERS = (
    (re.compile(r"vllm(::|/|\.)"), "vLLM"),
    (re.compile(r"(sglang|sgl_kernel)(::|/|\.)"), "SGLang"),
    (re.compile(r"(text_generation_server|tgi)(::|/|\.)"), "Text Generation Inference"),
    (re.compile(r"lmdeploy(::|/|\.)"), "LMDeploy"),
)
"""How operators and files begin that only one of them has."""
_TRAINS = re.compile(
    r"autograd::engine::|backward|Optimizer\.(step|zero_grad)|[wd]grad|multi_?tensor", re.IGNORECASE
)
_MAY_TRAIN = re.compile(r"(cuda|hip)GraphLaunch")
"""Graphs replay whatever was captured, without an operator."""
_OPERATOR = "aten::"


def warn_of_inference(names: Iterable[str], quality: Quality) -> None:
    """Warn of a trace with operators and without any of a backward pass or of an update.

    Args:
        names: of everything in it.
    """
    servers, has_operators, may_train = set[str](), False, False
    for name in names:
        if _TRAINS.search(name):
            return
        has_operators |= name.startswith(_OPERATOR)
        may_train |= _MAY_TRAIN.match(name) is not None
        servers |= {server for pattern, server in _SERVERS if pattern.match(name)}
    if servers:
        quality.warn(
            "inference-server",
            f"This is a trace of an inference server ({', '.join(sorted(servers))}), not of "
            "training: a step is one of its batches, and what is said of training loops is not "
            "about it.",
        )
    elif has_operators and not may_train and "truncated-file" not in quality.warnings:
        quality.warn(
            "inference",
            "No backward pass of autograd and no update by an optimizer is in this trace: it is of "
            "inference, of an evaluation or of a benchmark, unless the program computes gradients "
            "by itself, and what is said of training loops is not about it.",
        )
