"""What time is spent on: phases, transfers, idle causes, their groups, and what each is called.

Stated once, for the accounting, the records and all outputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Literal


class Phase(IntEnum):
    """Phase of a kernel, in the order in which concurrent phases claim time."""

    FORWARD = 0
    BACKWARD = 1
    RECOMPUTE = 2
    OPTIMIZER = 3
    GRAPH = 4
    INPUT = 5
    UNATTRIBUTED = 6


COMPUTE_PHASES = tuple(phase.name.lower() for phase in Phase)
"""Name of each phase, by its number."""
KERNEL_PHASES = tuple(name for name in COMPUTE_PHASES if name not in ("optimizer", "input"))
"""Phases whose kernels `KERNEL_CLASSES` divide."""
OFF_DEVICE = ("communication", "h2d", "d2h")
"""Transfers that leave the device."""
TRANSFERS = (*OFF_DEVICE, "memory")
"""`memory` is copies inside the device and memsets."""
IDLE_CAUSES = (
    "idle_data_wait",
    "idle_host",
    "idle_sync",
    "idle_latency",
    "idle_profiler",
    "idle_unexplained",
)
GPU_METRICS = (
    *("sm_active", "tensor_active", "dram_read", "dram_write"),
    *("nvlink_rx", "nvlink_tx", "pcie_rx", "pcie_tx"),
)
"""Hardware counters that a profiler samples, each as a part of what the unit could do."""
BUSY = COMPUTE_PHASES + TRANSFERS
PARTITION = BUSY + IDLE_CAUSES
"""Exclusive classes of a GPU window, in priority order; they sum to the window."""


class Level(IntEnum):
    """What a step of the path to the owner of some time is; the record writes it in lower case."""

    CLASS = 0
    RANGE = 1
    MODULE = 2
    LINE = 3
    OPERATOR = 4
    KERNEL = 5
    CALL = 6
    UNKNOWN = 7
    OTHER = 8


LEVELS = tuple(level.name.lower() for level in Level)
"""Levels of the attribution tree: a class of the partition; a range, a call of a module, a line of
the program, an operator and what it launched, or the call that waited; nothing that the trace
recorded; and the sum of what is too little to be listed."""

SHARE_CLASSES: Mapping[str, tuple[str, ...]] = {
    "io": ("idle_data_wait", "h2d"),
    "communication": ("communication",),
    "overhead": ("idle_host", "idle_sync", "idle_latency"),
    "compute": (*COMPUTE_PHASES, "memory"),
    "other": ("idle_profiler", "idle_unexplained", "d2h"),
}
"""The classes of the partition by the share that they count for; together they are all of them."""
SHARES = tuple(SHARE_CLASSES)
SKEW_CAUSES = ("io", "overhead", "compute", "other")
"""Shares that waiting for another rank is explained by: what that rank had more of."""
LOSSES = ("transfer", "skew", "communication", "io", "overhead", "compute", "other")
"""What a step can lose time to when it runs on more ranks. `communication` is what could not be
divided into the first two."""

KERNEL_CLASSES = (
    "matmul_fp32",
    "matmul_3xtf32",
    "matmul_tf32",
    "matmul_half",
    "matmul_unaligned",
    "matmul_unknown",
    "fused",
    "softmax",
    "layout",
    "other",
    "unknown",
)
"""What a kernel is, by its name.

`matmul_fp32` runs without tensor cores (AMD's in 32 bits also on matrix cores); `matmul_3xtf32` is
PyTorch's fused attention in 32 bits, which makes each product of three in TF32, whatever is
allowed; `matmul_half` has operands of 16 or 8 bits; `matmul_unaligned` runs on tensor cores, but
reads one or two elements at a time; `fused` is several operations in one, made by a compiler or by
hand; `softmax` is that of scores, as of attention that is not fused (that of a loss is a logarithm,
and is `other`); `layout` turns images from NCHW to NHWC or back; `other` is element-wise,
reductions, copies and indexing; `unknown` is what no name tells, and a whole CUDA graph in one row.
"""

WindowKind = Literal["typical", "fastest", "slowest", "only", "long", "capture"]
"""What a window that is shown stands for. Of two iterations none is typical; without any, it is the
capture."""
ThreadRole = Literal["step", "autograd", "loader", "other"]
"""What a thread of the host does."""
HostKind = Literal["range", "operator", "call", "wait"]
"""What a row of the host is; `wait` is a call that waits for the GPU."""

CLASS_LABELS = {
    "forward": "forward",
    "backward": "backward",
    "recompute": "recompute",
    "optimizer": "optimizer",
    "graph": "CUDA graph",
    "input": "input on GPU",
    "unattributed": "unattributed kernels",
    "communication": "exposed communication",
    "h2d": "exposed host-to-device",
    "d2h": "exposed device-to-host",
    "memory": "exposed memory ops",
    "idle_data_wait": "idle: waiting for data",
    "idle_host": "idle: host busy",
    "idle_sync": "idle: synchronisation",
    "idle_latency": "idle: launch latency",
    "idle_profiler": "idle: profiler",
    "idle_unexplained": "idle: unexplained",
}
"""Of `PARTITION`, so copies and communication are the exposed part."""
BUSY_LABELS = {
    **CLASS_LABELS,
    "communication": "communication",
    "h2d": "host-to-device",
    "d2h": "device-to-host",
    "memory": "memory ops",
}
"""The same classes where overlapped time counts too."""
PATH_LABELS = {
    **BUSY_LABELS,
    "host": "host",
    "data-wait": "waiting for data",
    "launch": "launch latency",
    "delay": "late starts",
}
"""What a critical path consists of: work of a device, and what it waits for."""
NO_PARTNER = -2
"""Instead of the process group of a message between two ranks of it, if it is not known which."""
SHARE_LABELS = {
    "io": "I/O",
    "communication": "communication",
    "overhead": "overhead",
    "compute": "compute",
    "other": "other",
}
SHARE_MEANINGS = {
    "io": "waiting for the data loader and exposed host-to-device copies",
    "communication": "communication that no computation hides",
    "overhead": "idle while the host prepares, synchronises or launches work",
    "compute": "kernels and memory operations on the GPU",
    "other": "profiler, unexplained idle and exposed device-to-host copies",
}
LOSS_LABELS = {
    "transfer": "exposed transfer",
    "skew": "waiting for ranks",
    "communication": "exposed transfer or waiting",
    "io": "loading and copying",
    "overhead": "overhead",
    "compute": "computation",
    "other": "other",
}
BOUND_LABELS = {
    "io": "I/O-bound",
    "compute": "Compute-bound",
    "communication": "Communication-bound",
    "overhead": "Overhead-bound",
    "mixed": "Mixed",
    "inconclusive": "Inconclusive",
}
AGREEMENT_LABELS = {
    "agree": "They agree",
    "partly": "They agree in part",
    "disagree": "They disagree",
    "unknown": "They cannot be compared",
}
"""Of the verdicts by profiler and by ablation."""
STATUS_LABELS = {
    "fail": "fail",
    "warn": "warning",
    "inconclusive": "could not check",
    "pass": "passed",
    "not-applicable": "not applicable",
}
"""Of findings, in the order in which they are listed."""
AWAITS_DEVICE = "another GPU of the process computes what it waits for"
"""Why a device idles that takes turns with others."""


def label_of(name: str) -> str:
    """The label of a class or a share; `name` itself where it is neither."""
    return CLASS_LABELS.get(name) or SHARE_LABELS.get(name) or name
