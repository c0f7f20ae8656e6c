"""Facts about machine and libraries that explain a step time; nothing that names anybody."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from typing import Any

from traceprobe.capture.machine.tf32 import tf32_allowed


def collect_environment() -> dict[str, Any]:
    """Hardware, library versions and the flags that decide which kernels run."""
    return {"hardware": _hardware(), "libraries": _libraries(), "flags": _flags()}


def _hardware() -> dict[str, Any]:
    import torch

    hardware: dict[str, Any] = {"cpu_count": len(os.sched_getaffinity(0)), "gpus": []}
    for index in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        p = torch.cuda.get_device_properties(index)
        hardware["gpus"].append(
            {
                "name": p.name,
                "memory_bytes": p.total_memory,
                "multiprocessors": p.multi_processor_count,
                "capability": f"{p.major}.{p.minor}",
                "clock_khz": getattr(p, "clock_rate", None),
                "memory_clock_khz": getattr(p, "memory_clock_rate", None),
                "memory_bus_bits": getattr(p, "memory_bus_width", None),
                "l2_bytes": getattr(p, "L2_cache_size", None),
            }
        )
    if len(hardware["gpus"]) > 1:
        hardware["links"] = _links()
    return hardware


def _links() -> list[str] | None:
    """How pairs of GPUs are connected, in the words of `nvidia-smi topo -m` (NV18, PIX, SYS)."""
    lines = nvidia_smi("topo", "-m")
    if lines is None:
        return None
    rows = [line.split() for line in lines if re.match(r"GPU\d", line.strip())]
    count = len(rows)
    return sorted({cell for i, row in enumerate(rows) for cell in row[1 + i + 1 : 1 + count]})


def nvidia_smi(*arguments: str) -> list[str] | None:
    """Lines that `nvidia-smi` prints; None where it is missing or does not answer."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return None
    try:
        done = subprocess.run([tool, *arguments], capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.splitlines()


def _libraries() -> dict[str, str | None]:
    import torch

    cudnn = torch.backends.cudnn.version() if torch.cuda.is_available() else None
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cudnn": None if cudnn is None else str(cudnn),
        "nccl": _nccl(),
    }


def _nccl() -> str | None:
    import torch

    if not (torch.cuda.is_available() and torch.distributed.is_nccl_available()):
        return None
    version = torch.cuda.nccl.version()
    return ".".join(map(str, version)) if isinstance(version, tuple) else str(version)


def _flags() -> dict[str, Any]:
    import torch

    return {
        "matmul_precision": torch.get_float32_matmul_precision(),
        "cudnn_allow_tf32": tf32_allowed()["convolution"],
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
        "deterministic": torch.are_deterministic_algorithms_enabled(),
    }


def world_size() -> int:
    """Number of ranks of `torch.distributed`; 1 without it."""
    import torch.distributed as dist

    return int(dist.get_world_size()) if dist.is_available() and dist.is_initialized() else 1
