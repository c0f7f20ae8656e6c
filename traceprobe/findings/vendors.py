"""What libraries, tools and units are called that each vendor has: findings name NVIDIA's.

Where AMD has something of another kind, or nothing, the finding itself asks for the vendor. What
PyTorch calls the same on both stays: `torch.cuda`, `ProfilerActivity.CUDA`, `cudnn` in its
switches, and RCCL's environment variables, which are NCCL's.
"""

from __future__ import annotations

import re

from traceprobe.records.rank import Vendor

_OF_AMD = (
    # Whose matrix cores take fp32, too.
    (r"fp32( matrix kernels)? without tensor cores", r"fp32\1"),
    (r"without tensor cores", "in fp32"),
    (r"tensor cores", "matrix cores"),
    (r"cuDNN", "MIOpen"),
    (r"CUDA graph", "HIP graph"),
    (r"CUDA runtime", "HIP runtime"),
    (r"CUDA call", "HIP call"),
    (r"CUDA context", "HIP context"),
    (r"\bcuda(Malloc|Free)\b", r"hip\1"),
    (r"\bcuMem(Map|Unmap)\b", r"hipMem\1"),
    (r"CUDA's libraries", "ROCm's libraries"),
    (r"(?<![A-Z_])NCCL(?!_)", "RCCL"),
    (r"nccl-tests", "rccl-tests"),
    (r"use CUPTI \(DCGM, Nsight, ", "use rocprofiler (rocprofv3, "),
    (r"CUPTI", "rocprofiler"),
    # Commands of NVIDIA's tools, then the tools.
    (r",? (or )?(of )?`nsys [^`]*`", ""),
    (r"nvidia-smi dmon -s pc", "rocm-smi --showpower --showclocks"),
    (r"nvidia-smi -q -d PERFORMANCE", "rocm-smi --showpower --showtemp"),
    (r"nvidia-smi -lgc", "rocm-smi --setperfdeterminism"),
    (r"nvidia-smi topo -m", "rocm-smi --showtopo"),
    (r"nvidia-smi", "rocm-smi"),
    (r",? or with Nsight Systems `[^`]*`", ""),
    (r"(an )?Nsight Systems( capture)?", "a rocprofv3 capture"),
)
"""What to write instead, in this order."""


def in_words_of(vendor: Vendor | None, text: str) -> str:
    """A text about NVIDIA's GPUs as one about those of `vendor`."""
    if vendor == "amd":
        for pattern, words in _OF_AMD:
            text = re.sub(pattern, words, text)
    return text
