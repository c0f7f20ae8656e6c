"""Iterations of kernels whose lengths are given."""

from __future__ import annotations

from tests.builders.scenario import Script

US = 1_000
KERNELS = 12
"""Of an iteration."""


def kernels_lasting(lengths, *, kinds=("kernel",) * KERNELS, blocks=None, beside=()):
    """Iterations of kernels of their own, each of the length, in µs, that is given for it.

    Args:
        lengths: of each iteration: one for all kernels, or one a kernel.
        blocks: of each iteration, the grid of its kernels.
        beside: numbers of the iterations whose kernels all run beside communication.
    """
    script, at = Script(), 1_000_000
    for k, of_iteration in enumerate(lengths):
        begin = at
        each = of_iteration if isinstance(of_iteration, list) else [of_iteration] * len(kinds)
        for number, (kind, length) in enumerate(zip(kinds, each, strict=True)):
            end = at + int(length * US)
            name = "ncclDevKernel_AllReduce" if kind == "comm" else f"gemm_{number % 5}"
            launch = (at - 20 * US, at - 15 * US)
            grid = None if blocks is None else blocks[k]
            script.op(kind, at, end, launch, name=name, blocks=grid)
            at = end + US
        if k in beside:
            launch = (begin - 20 * US, begin - 15 * US)
            script.op("comm", begin, at, launch, name="ncclDevKernel_AllGather", stream=20)
        script.range(f"step {k}", begin - 21 * US, at - 21 * US)
    return script.build()
