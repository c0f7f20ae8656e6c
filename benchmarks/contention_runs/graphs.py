"""Time between the kernels of a CUDA graph, and between those that are launched one by one."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING

import torch
from torch.profiler import ProfilerActivity, profile

if TYPE_CHECKING:
    from benchmarks.contention_runs.measure import Rank

SIZES = tuple(1 << bits for bits in (8, 12, 16, 20, 22, 24))
FEW, MANY = 20, 220
"""Kernels of a chain; what both need besides falls out of the difference."""
CYCLES_PER_MS = 1_980_000
Launch = Callable[[], object]


def measure(rank: Rank) -> None:
    """Chains of additions by size, and of small matrix products; on one GPU."""
    rows = rank.found["graphs"] = []
    if rank.number or rank.cpu:
        return
    vector, matrix = (torch.randn(n, 64, device=rank.device) for n in (16, 64))
    for size in SIZES:
        x, y = (torch.randn(size, device=rank.device) for _ in range(2))
        rows.append({"kind": "add", "bytes": 4 * size, **_gaps(lambda x=x, y=y: x.add_(y))})
        rows[-1]["clock"] = rank.clock()
    rows.append({"kind": "linear", "bytes": 1024, **_gaps(lambda: torch.mm(vector, matrix))})
    for row in rows:
        rank.say(row)


def _gaps(launch: Launch) -> dict[str, float]:
    """Time per kernel, ns, without a profiler, and durations and gaps as the profiler has them."""
    replays = {count: _graph(launch, count).replay for count in (FEW, MANY)}

    def eager(count: int) -> Launch:
        def go() -> None:
            for _ in range(count):
                launch()

        return go

    found: dict[str, float] = {}
    each = MANY - FEW
    of_graph = {n: median(_timed(replays[n], 0) for _ in range(15)) for n in (FEW, MANY)}
    one_by_one = {n: median(_timed(eager(n), 6) for _ in range(9)) for n in (FEW, MANY)}
    found["graph_ns_per_kernel"] = (of_graph[MANY] - of_graph[FEW]) / each
    found["eager_ns_per_kernel"] = (one_by_one[MANY] - one_by_one[FEW]) / each
    for mode, go in (("graph", replays[MANY]), ("eager", eager(MANY))):
        spans = _profiled(go)
        gaps = [after[0] - before[1] for before, after in pairwise(spans)]
        found[f"{mode}_gap_ns"] = median(gaps)
        found[f"{mode}_duration_ns"] = median(end - start for start, end in spans)
        found[f"{mode}_count"] = len(spans)
    return found


def _graph(launch: Launch, count: int) -> torch.cuda.CUDAGraph:
    launch()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(count):
            launch()
    graph.replay()
    torch.cuda.synchronize()
    return graph


def _timed(go: Launch, ahead_ms: float) -> float:
    """Time on the GPU, ns; it sleeps first, so that the host has launched all of it."""
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    if ahead_ms:
        torch.cuda._sleep(int(ahead_ms * CYCLES_PER_MS))
    first.record()
    go()
    last.record()
    torch.cuda.synchronize()
    return first.elapsed_time(last) * 1e6


def _profiled(go: Launch) -> list[tuple[float, float]]:
    """Start and end of each kernel but the first, ns."""
    with profile(activities=[ProfilerActivity.CUDA]) as recording:
        torch.cuda._sleep(8 * CYCLES_PER_MS)
        go()
        torch.cuda.synchronize()
    spans = [
        (1e3 * event.time_range.start, 1e3 * event.time_range.end)
        for event in recording.events()
        if event.device_type == torch.autograd.DeviceType.CUDA and "spin" not in event.name
    ]
    return sorted(spans)[FEW:]
