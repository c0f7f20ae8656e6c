"""Traces of servers that answer requests: PyTorch's profiler recorded them, and nothing trains."""

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
_TRAINS = re.compile(r"autograd::engine::|Optimizer\.step")


def warn_of_server(names: Iterable[str], quality: Quality) -> None:
    """Warn of a trace with the names of a server and without those of a training."""
    found = set[str]()
    for name in names:
        if _TRAINS.match(name):
            return
        found |= {server for pattern, server in _SERVERS if pattern.match(name)}
    if found:
        quality.warn(
            "inference-server",
            f"This is a trace of an inference server ({', '.join(sorted(found))}), not of "
            "training: a step is one of its batches, and what is said of training loops is not "
            "about it.",
        )
