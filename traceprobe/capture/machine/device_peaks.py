"""What this machine's device does at most, measured: matrix products by precision, and copies.

Products of random numbers, as zeros draw less power and clock higher. Each repetition is timed by
the clock of the device, while the host runs ahead, so that no launch is in it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import pairwise
from statistics import median
from typing import Any, NamedTuple

from traceprobe.capture.machine.tf32 import supports_tf32

WARM_UP_SECONDS = 0.3
"""Until clocks have settled and libraries have chosen their kernels."""
GPU_SIDE, SMALL_GPU_SIDE, CPU_SIDE = 8192, 4096, 1024
"""Large enough that the rate no longer grows."""
SMALL_GPU_BYTES = 6e9
"""Below it three large matrices are too much."""
GPU_REPETITIONS, CPU_REPETITIONS = 20, 5
COPIED_BYTES = {"cuda": 1 << 30, "cpu": 1 << 28}
"""Far beyond any cache."""


class DevicePeaks(NamedTuple):
    """Rates in TFLOP/s by precision and in GB/s; None where there is no such copy."""

    device: str
    kind: str
    torch: str
    side: int
    repetitions: int
    tflops: dict[str, float]
    copy_gbps: float
    h2d_gbps: float | None


def measure_device_peaks() -> DevicePeaks:
    """Peak rates of the first GPU, or of the CPU where there is none: TFLOP/s and GB/s."""
    import torch

    device = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
    on_gpu = device.type == "cuda"
    memory = torch.cuda.get_device_properties(device).total_memory if on_gpu else 0
    large = GPU_SIDE if memory >= SMALL_GPU_BYTES else SMALL_GPU_SIDE
    side = large if on_gpu else CPU_SIDE
    tflops = {}
    for precision in _precisions(device):
        seconds = _product(precision, side, device)
        if seconds is not None:
            tflops[precision] = round(2 * side**3 / seconds / 1e12, 4)
    return DevicePeaks(
        device=torch.cuda.get_device_name(device) if on_gpu else "CPU",
        kind="gpu" if on_gpu else "cpu",
        torch=str(torch.__version__),
        side=side,
        repetitions=GPU_REPETITIONS if on_gpu else CPU_REPETITIONS,
        tflops=tflops,
        copy_gbps=_copy(device),
        h2d_gbps=_upload(device) if on_gpu else None,
    )


def _precisions(device: Any) -> list[str]:
    """Those that the device has matrix units for, and fp32."""
    import torch

    if device.type == "cpu":
        return ["fp32", "bf16"]
    if torch.version.hip is not None:
        return ["fp32", "fp16", "bf16"]
    first = {"fp32": (0, 0), "tf32": (8, 0), "fp16": (7, 0), "bf16": (8, 0), "fp8": (8, 9)}
    capability = torch.cuda.get_device_capability(device)
    return [name for name, least in first.items() if capability >= least]


def _product(precision: str, side: int, device: Any) -> float | None:
    """Seconds of a product of square matrices; None where PyTorch cannot make it."""
    import torch

    dtypes = {"fp16": torch.float16, "bf16": torch.bfloat16}
    switch = torch.backends.cuda.matmul
    before = switch.allow_tf32
    if supports_tf32(device):
        switch.allow_tf32 = precision == "tf32"
    try:
        a, b = (torch.randn(side, side, device=device) for _ in range(2))
        if precision == "fp8":
            one = torch.ones((), device=device)
            x, y = a.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn).t()
            return _seconds(
                lambda: torch._scaled_mm(x, y, one, one, out_dtype=torch.bfloat16), device
            )
        a, b = (m.to(dtypes.get(precision, torch.float32)) for m in (a, b))
        out = torch.empty_like(a)
        return _seconds(lambda: torch.mm(a, b, out=out), device)
    except (RuntimeError, AttributeError, NotImplementedError):
        if precision != "fp8":
            raise
        return None  # depends on the versions of PyTorch and its libraries
    finally:
        if supports_tf32(device):
            switch.allow_tf32 = before


def _copy(device: Any) -> float:
    import torch

    size = COPIED_BYTES[device.type]
    source = torch.ones(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return round(2 * size / _seconds(lambda: target.copy_(source), device) / 1e9, 2)


def _upload(device: Any) -> float:
    import torch

    size = COPIED_BYTES["cpu"]
    source = torch.ones(size, dtype=torch.uint8).pin_memory()
    target = torch.empty(size, dtype=torch.uint8, device=device)
    seconds = _seconds(lambda: target.copy_(source, non_blocking=True), device)
    return round(size / seconds / 1e9, 2)


def _seconds(work: Callable[[], object], device: Any) -> float:
    """Median seconds of `work`."""
    import torch

    on_gpu = device.type == "cuda"
    until = time.perf_counter() + WARM_UP_SECONDS
    while time.perf_counter() < until:
        work()
        if on_gpu:
            torch.cuda.synchronize(device)
    if on_gpu:
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(GPU_REPETITIONS + 1)]
        marks[0].record()
        for mark in marks[1:]:
            work()
            mark.record()
        torch.cuda.synchronize(device)
        milliseconds: list[float] = [a.elapsed_time(b) for a, b in pairwise(marks)]
        return median(milliseconds) / 1e3
    times = []
    for _ in range(CPU_REPETITIONS):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return median(times)
