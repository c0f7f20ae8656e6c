"""What runs beside each other slows each other: numbers measured on hardware.

Measured on 2026-11-22 with two NVIDIA H200 (132 multiprocessors, 1,980 MHz), NCCL 2.28.9 and
PyTorch 2.11 (CUDA 13.0), the ranks joined by NVLink or by sockets (`NCCL_P2P_DISABLE=1
NCCL_SHM_DISABLE=1`), NVLink multicast off: `docs/validation/contention.md`, which has each kernel
and collective. Other GPUs, and collectives with more or fewer channels, differ; a trace that shows
the same kernels alone and beside collectives is asked first.
"""

from __future__ import annotations

from collections.abc import Mapping

SLOWDOWN: Mapping[str, tuple[float, float]] = {
    "matmul_fp32": (1.22, 1.00),
    "matmul_3xtf32": (1.22, 1.03),
    "matmul_tf32": (1.22, 1.03),
    "matmul_half": (1.31, 1.08),
    "matmul_unaligned": (1.31, 1.08),
    "matmul_unknown": (1.31, 1.08),
    "softmax": (1.25, 1.01),
    "other": (1.20, 1.01),
}
"""How much longer a kernel of a class takes beside a collective than alone: over NVLink, and where
the data crosses the host. Medians over several kernels and collectives; the third and the last but
two were not measured, and are like their neighbours."""
SLOWDOWN_OF_OTHERS = SLOWDOWN["other"]
"""Of classes that were not measured."""
SLOW_GBPS = 30.0
"""Data of messages per time of collectives, GB/s, below which a wire counts as slow: between what
was measured of the two, 3 and 240."""
HIDDEN_COST: Mapping[str, tuple[float, float, float]] = {
    "fast": (0.25, 0.5, 0.75),
    "shards": (0.45, 0.85, 1.25),
    "slow": (0.0, 0.05, 0.1),
}
"""How much longer kernels take, of what a collective takes alone, once it runs beside them: at
least, likely and at most. The first is of gradients that DDP sends in buckets, over NVLink: of
six models on H200s 0.24 to 0.62, of a transformer on H100s 0.54 to 0.65. The second is of FSDP,
whose units gather most parameters once more for the backward pass: 0.47 to 1.30 of two on H200s,
about 0.65 of one on H100s.
The third is of a wire that takes little of the GPU: how much longer the collective gets there,
times what kernels lose meanwhile."""
GRAPH_GAP_NS = 700
"""Time between two kernels of one stream of a CUDA graph: of a replay, less the durations that a
profiler shows of the same kernels launched one by one. Measured: 640 to 780 ns for kernels up to
7 µs. Launched one by one without the host being late it is about 1,000 ns."""
LOADER_SERIAL = 0.08
"""Part of one worker's time for a batch that more workers do not shorten (Amdahl's law): what the
step's process does for each batch, and memory that all share. Measured with 4, 8 and 16 workers on
32 cores, for samples that are cut, turned and copied, and for samples that are computed: 0 to 0.21,
in the middle 0.085."""
