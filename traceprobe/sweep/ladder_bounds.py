"""What a ladder may ask for: it is a file that people pass on, and no program.

Variables decide what an interpreter and a loader execute (`LD_PRELOAD`, `PYTHONPATH`), what a
library loads (`CUDA_INJECTION64_PATH`) and where it writes (`NCCL_DEBUG_FILE`). So those that a
ladder may set are on a list of settings of performance, none of which names a file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

LARGEST_FILE = 64 << 10
"""Bytes; the largest ladder of ours has 2,500."""
LONGEST_LINE = 1_000
"""Characters: the time for a dotted key grows with the square of its parts."""
MOST_RUNGS = 1_000
MOST_RANKS = 1_024
MOST_STEPS = 1_000_000
MOST_ACTIVE = 10_000
_LARGEST = 1 << 53
_LONGEST_TEXT = 1_000
_FOLDER = "data-folder"
_VARIABLES = {
    **dict.fromkeys(("CUBLAS", "CUBLASLT"), "WORKSPACE_CONFIG WORKSPACE_SIZE"),
    "CUDA": "DEVICE_MAX_CONNECTIONS DEVICE_ORDER LAUNCH_BLOCKING MODULE_LOADING VISIBLE_DEVICES",
    "GLOO": "SOCKET_IFNAME",
    "KMP": "AFFINITY BLOCKTIME",
    "MKL": "DYNAMIC NUM_THREADS",
    "NCCL": (
        "ALGO BUFFSIZE COLLNET_ENABLE CROSS_NIC CUMEM_ENABLE IB_DISABLE "
        "IB_HCA IB_QPS_PER_CONNECTION LAUNCH_MODE MAX_CTAS MAX_NCHANNELS MIN_CTAS MIN_NCHANNELS "
        "NET_GDR_LEVEL NSOCKS_PERTHREAD NTHREADS NVLS_ENABLE P2P_DISABLE P2P_LEVEL PROTO "
        "PXN_DISABLE SHM_DISABLE SOCKET_IFNAME SOCKET_NTHREADS"
    ),
    "NVIDIA": "TF32_OVERRIDE",
    "OMP": "DYNAMIC NUM_THREADS PLACES PROC_BIND SCHEDULE WAIT_POLICY",
    "OPENBLAS": "NUM_THREADS",
    "PYTORCH": "ALLOC_CONF CUDA_ALLOC_CONF HIP_ALLOC_CONF NO_CUDA_MEMORY_CACHING",
    "TORCH": (
        "ALLOW_TF32_CUBLAS_OVERRIDE BLAS_PREFER_CUBLASLT COMPILE_DISABLE CUDNN_V8_API_DISABLED "
        "NCCL_ASYNC_ERROR_HANDLING NCCL_AVOID_RECORD_STREAMS NCCL_BLOCKING_WAIT NCCL_HIGH_PRIORITY"
    ),
    "TORCHINDUCTOR": (
        "COMPILE_THREADS COORDINATE_DESCENT_TUNING CPP_WRAPPER EPILOGUE_FUSION FREEZING "
        "FX_GRAPH_CACHE LAYOUT_OPTIMIZATION MAX_AUTOTUNE MAX_AUTOTUNE_GEMM MAX_AUTOTUNE_POINTWISE "
        "PERMUTE_FUSION SHAPE_PADDING UNIQUE_KERNEL_NAMES"
    ),
}
VARIABLES = frozenset(f"{of}_{name}" for of, names in _VARIABLES.items() for name in names.split())
"""Those that a ladder may set."""
_VALUE = re.compile(r"[A-Za-z0-9_.,:;=+^|%{}()\[\]* -]{0,200}")
"""No slash: no path leads out of the current folder."""


class InvalidLadder(ValueError):
    """What a ladder must not say; the message names the key."""


def check_text(text: bytes) -> None:
    """Refuse a file that would take long to parse.

    Raises:
        InvalidLadder: it is too long, or a line of it is.
    """
    if len(text) > LARGEST_FILE:
        raise InvalidLadder(f"has more than {LARGEST_FILE >> 10} KiB, which no ladder needs")
    for number, line in enumerate(text.split(b"\n"), 1):
        if len(line) > LONGEST_LINE:
            raise InvalidLadder(f"line {number}: has more than {LONGEST_LINE} bytes; break it")


def check_settings(where: str, values: Mapping[str, Any]) -> None:
    """Refuse settings that cannot be words of a command line, or name a folder of this machine.

    Raises:
        InvalidLadder: one is such a setting.
    """
    for name, value in values.items():
        if name == _FOLDER:
            raise InvalidLadder(
                f"{where}: {name}: a ladder says nothing of folders; give --{name} after the ladder"
            )
        if not isinstance(value, (bool, int, float, str)):
            raise InvalidLadder(
                f"{where}: {name}: must be true, false, a number or a text, "
                f"not {type(value).__name__}"
            )
        if isinstance(value, str):
            fits = len(value) <= _LONGEST_TEXT and value.isprintable()
        else:
            fits = abs(value) <= _LARGEST  # no infinity, and nothing that is no number
        if not fits:
            raise InvalidLadder(
                f"{where}: {name}: must be a number of at most 2^53 or a text of one line with at "
                f"most {_LONGEST_TEXT} characters"
            )


def check_environment(where: str, variables: Mapping[str, str]) -> None:
    """Refuse variables that are no settings of performance.

    Raises:
        InvalidLadder: one is on no list, or has a value that could be a path.
    """
    for name, value in variables.items():
        if name not in VARIABLES:
            raise InvalidLadder(
                f"{where}: environment: {name[:60]!r} is none that a ladder may set, since "
                "variables decide what is executed; set it in your shell, or use one of those that "
                "workloads/ladders/README.md lists"
            )
        if not _VALUE.fullmatch(value):
            raise InvalidLadder(
                f"{where}: environment: {name}: must have at most 200 letters, digits, spaces and "
                "marks, and no slash"
            )
