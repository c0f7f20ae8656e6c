"""Machines that the doctor looks at."""

from __future__ import annotations

from traceprobe.doctor.facts import Facts, Gpu, Torch

GIB = 1 << 30
TORCH = Torch(
    state="ok",
    stage="profiler",
    version="2.9.0+cu128",
    cuda="12.8",
    cuda_available=True,
    devices=("NVIDIA H200", "NVIDIA H200"),
    kineto=True,
    activities=("CPU", "CUDA"),
    distributed=True,
    nccl="2.27.5",
    cupti="libcupti.so.2025.1.0",
    bundled_cupti="libcupti.so.2025.1.0",
)
CALM_GPU = Gpu(1980, 1980, 88.0, 700.0, 40, 0, (), 0, 0, True)
GOOD_MACHINE = Facts(
    python=(3, 12, 1),
    packages={"polars": "2.1.0", "altair": "6.3.0"},
    required={"polars": ">=2.0", "altair": ">=6.2.2,<6.4"},
    torch=TORCH,
    nsys="2025.5.2",
    driver="580.65.06",
    gpus=(CALM_GPU, CALM_GPU),
    admin_only=False,
    sys_admin=False,
    paranoid=2,
    dali="1.50.0",
    temporary_free=100 * GIB,
    memory=64 * GIB,
    cores=16,
)
"""Nothing is wrong with it."""
BARE_MACHINE = Facts(
    python=(3, 10, 0), packages={"polars": "2.1.0"}, temporary_free=9 * GIB, memory=9 * GIB
)
"""A laptop without PyTorch, GPU and nsys."""
