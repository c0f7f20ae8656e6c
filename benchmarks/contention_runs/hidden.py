"""What communication costs once it is hidden: the same steps with one bucket, and with several.

One bucket is sent when the backward pass is over, so nothing runs beside it; buckets of the usual
size are sent meanwhile. Steps with shards are those of FSDP with one unit, which gathers all
parameters before anything runs, and with a unit for each layer.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from statistics import median
from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile

from benchmarks.contention_runs.training import (
    Task,
    gpt2,
    in_time,
    in_turns,
    size_of,
    trained,
    unet,
    wide,
)

if TYPE_CHECKING:
    from benchmarks.contention_runs.measure import Rank

ONE_BUCKET_MB = 100_000
NEEDED_S = 16.0
"""Time that a model may take."""
RECORDED = 4
NOT_HIDDEN = ("one bucket", "one unit")
"""Ways whose collectives are recorded: nothing runs beside them."""
Step = Callable[[], None]


def measure(rank: Rank) -> None:
    """Steps of each model in its ways, ms, and the time of collectives that nothing runs beside."""
    rank.found["hidden"] = {}
    for name, task in in_time(rank, "hidden", _tasks(rank), NEEDED_S):
        steps = _with_buckets(rank, task)
        if name.startswith("layers"):
            steps |= _with_shards(rank, task)
        times, clocks = in_turns(rank, steps)
        alone = [way for way in NOT_HIDDEN if way in steps and not rank.cpu]
        rank.found["hidden"][name] = {
            "step_ms": times,
            "clock": clocks,
            "collectives_ms": {way: _collectives(rank, steps[way]) for way in alone},
            "recorded": RECORDED,
            "gradients_mb": sum(4 * p.numel() for p in task.model.parameters()) / 1e6,
        }
        rank.say(name, {way: median(each) for way, each in times.items()})
        steps.clear()


def _tasks(rank: Rank) -> Mapping[str, Callable[[], Task]]:
    """Models of several kinds and widths; those of `layers` are compiled."""
    return {
        "layers-1536": lambda: _layers(rank, 1536, 6, 48),
        "gpt2-b12": lambda: gpt2(rank, 12, 1024),
        "resnet50-b64": lambda: _resnet50(rank, 64),
        "layers-1024": lambda: _layers(rank, 1024, 12, 24),
        "layers-2560": lambda: _layers(rank, 2560, 4, 24),
        "wide-4096": lambda: wide(rank, 4096),
        "unet-b2": lambda: unet(rank, 2),
    }


def _layers(rank: Rank, width: int, count: int, batch: int) -> Task:
    from transformer import Layer, Layers, initialize

    if rank.cpu:
        width, batch = width // 16, 1
    with rank.device:
        made = [Layer(width, 16, causal=True, norm_first=True) for _ in range(count)]
        model, x = Layers(*made), torch.randn(batch, 512, width)
        initialize(model)
    return Task(model, lambda m: m(x).float().square().mean(), torch.optim.AdamW, half=True)


def _resnet50(rank: Rank, batch: int) -> Task:
    import resnet50 as workload

    shape = workload.SIZES[size_of(rank)]
    with rank.device:
        model = workload.ResNet(shape).to(memory_format=torch.channels_last)
        x = torch.randn(batch, 3, shape.crop, shape.crop)
        x = x.contiguous(memory_format=torch.channels_last)
        y = torch.randint(workload.CLASSES, (batch,))
    return Task(model, lambda m: functional.cross_entropy(m(x), y), torch.optim.SGD, half=True)


def _with_buckets(rank: Rank, task: Task) -> dict[str, Step]:
    devices = None if rank.cpu else [rank.device.index]

    def replicated(bucket_mb: float | None) -> Step:
        model = DistributedDataParallel(
            _copy(rank, task), device_ids=devices, bucket_cap_mb=bucket_mb
        )
        return trained(rank, task, model)

    return {
        "one bucket": replicated(ONE_BUCKET_MB),
        "buckets": replicated(None),
    }


def _with_shards(rank: Rank, task: Task) -> dict[str, Step]:
    if rank.cpu:
        return {}
    whole, by_layer = _copy(rank, task), _copy(rank, task)
    for layer in by_layer.children():
        fully_shard(layer)
    return {
        "one unit": trained(rank, task, fully_shard(whole)),
        "units": trained(rank, task, fully_shard(by_layer)),
    }


def _copy(rank: Rank, task: Task) -> nn.Module:
    """A model of its own, whose layers are compiled where it has nothing else."""
    from transformer import Layers

    model = copy.deepcopy(task.model)
    if isinstance(model, Layers) and not rank.cpu:
        for layer in model:
            layer.compile()
    return model


def _collectives(rank: Rank, step: Step) -> list[float]:
    """Durations of the collectives of a few steps, ms, in order."""
    rank.synchronize()
    rank.meet()
    with profile(activities=[ProfilerActivity.CUDA]) as recording:
        for _ in range(RECORDED):
            step()
        rank.synchronize()
    rank.meet()
    found = [
        (event.time_range.start, event.time_range.elapsed_us() / 1e3)
        for event in recording.events()
        if event.name.startswith("ncclDevKernel")
    ]
    return [ms for _, ms in sorted(found)]
