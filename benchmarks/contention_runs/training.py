"""Training steps without DistributedDataParallel, with it, and with gradients that are buckets."""

from __future__ import annotations

import copy
import gzip
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile, record_function, schedule

if TYPE_CHECKING:
    from benchmarks.contention_runs.measure import Rank

BLOCKS = 4
BLOCK_S = 0.35
MOST_STEPS = 12
NEEDED_S = 14.0
"""Time that a model may take."""
RECORDED = 6


@dataclass(frozen=True)
class Task:
    """A model, and what trains it."""

    model: nn.Module
    loss: Callable[[nn.Module], torch.Tensor]
    optimizer: Callable[..., torch.optim.Optimizer]
    half: bool = False


def measure(rank: Rank) -> None:
    """Steps of each model; recordings of those without DDP and with it."""
    torch.set_float32_matmul_precision("high")
    rank.found["ddp"] = {}
    for name, task in in_time(rank, "ddp", _tasks(rank), NEEDED_S):
        steps = _steps(rank, task)
        times, clocks = in_turns(rank, steps)
        rank.found["ddp"][name] = {"step_ms": times, "clock": clocks}
        rank.say(name, times)
        for which in ("none", "ddp"):
            _record(rank, f"{rank.link}-{name}-{which}", steps[which])
        steps.clear()


def in_time(
    rank: Rank, part: str, tasks: Mapping[str, Callable[[], Task]], needed_s: float
) -> Iterator[tuple[str, Task]]:
    """Each task that there is time for; what is found of it is saved before the next one."""
    for name, make in tasks.items():
        if rank.left() < needed_s:
            rank.found.setdefault("skipped", []).append([part, name])
            continue
        torch.manual_seed(0)
        yield name, make()
        if not rank.cpu:
            torch.cuda.empty_cache()
        rank.save()


def wide(rank: Rank, rows: int) -> Task:
    """An MLP with few rows and many gradients."""
    import wide_mlp

    width = wide_mlp.WIDTH[size_of(rank)]
    with rank.device:
        model, x = wide_mlp.build(width), torch.randn(rows, width)
    return Task(model, lambda m: functional.mse_loss(m(x), x), torch.optim.SGD)


def gpt2(rank: Rank, batch: int, length: int) -> Task:
    """GPT-2 in bf16."""
    import gpt2 as workload

    shape = workload.SIZES[size_of(rank)]
    with rank.device:
        model = workload.GPT2(shape)
        tokens = torch.randint(shape.vocab, (batch, min(length, shape.length)))

    def loss(model: nn.Module) -> torch.Tensor:
        return functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())

    return Task(model, loss, torch.optim.AdamW, half=True)


def unet(rank: Rank, batch: int) -> Task:
    """A U-Net of volumes."""
    import unet as workload

    shape = workload.SIZES[size_of(rank)]
    cube = [shape.cube] * 3
    with rank.device:
        model = workload.UNet(shape)
        x, y = (torch.randn(batch, n, *cube) for n in (workload.INPUTS, workload.TARGETS))
    return Task(model, lambda m: functional.l1_loss(m(x), y), torch.optim.Adam)


def size_of(rank: Rank) -> str:
    """Of the workloads' sizes."""
    return "tiny" if rank.cpu else "full"


def _tasks(rank: Rank) -> Mapping[str, Callable[[], Task]]:
    """The models that are trained over this link."""
    found = {"gpt2-b4": lambda: gpt2(rank, 4, 1024), "unet-b2": lambda: unet(rank, 2)}
    if rank.link == "wire":
        return found
    more = {"gpt2-b1": lambda: gpt2(rank, 1, 1024), "gpt2-b1-s128": lambda: gpt2(rank, 1, 128)}
    return {"wide": lambda: wide(rank, 8), **found, **more}


def _steps(rank: Rank, task: Task) -> dict[str, Callable[[], None]]:
    """A step of each way to train the same model."""
    devices = None if rank.cpu else [rank.device.index]
    ways: dict[str, Callable[[nn.Module], nn.Module]] = {
        "none": lambda model: model,
        "ddp": lambda model: DistributedDataParallel(model, device_ids=devices),
    }
    if rank.link == "link":
        ways["view"] = lambda model: DistributedDataParallel(
            model, device_ids=devices, gradient_as_bucket_view=True
        )
    return {
        which: trained(rank, task, wrap(copy.deepcopy(task.model))) for which, wrap in ways.items()
    }


def trained(rank: Rank, task: Task, model: nn.Module) -> Callable[[], None]:
    """A step of a model of its own."""
    optimizer = task.optimizer(model.parameters(), lr=1e-4)
    lower = torch.autocast(rank.device.type, torch.bfloat16) if task.half else nullcontext()

    def step() -> None:
        with record_function("forward"), lower:
            loss = task.loss(model)
        with record_function("backward"):
            loss.backward()
        with record_function("optimizer"):
            optimizer.step()
            optimizer.zero_grad()

    return step


def in_turns(
    rank: Rank, steps: Mapping[str, Callable[[], None]]
) -> tuple[dict[str, list[float]], dict[str, list[int | None]]]:
    """Times of a step, ms, in blocks of each way in turn, and the clock after each block."""
    counts = {}
    for which, step in steps.items():
        for _ in range(4):
            step()
        rough = rank.agreed(_timed(rank, step, 2))
        counts[which] = max(2, min(MOST_STEPS, int(BLOCK_S / rough)))
    times: dict[str, list[float]] = {which: [] for which in steps}
    clocks: dict[str, list[int | None]] = {which: [] for which in steps}
    for _ in range(BLOCKS):
        for which, step in steps.items():
            step()
            rank.meet()
            step()  # ranks that meet do so at slightly different times
            times[which].append(1e3 * _timed(rank, step, counts[which]))
            clocks[which].append(rank.clock())
    return times, clocks


def _timed(rank: Rank, step: Callable[[], None], count: int) -> float:
    """Seconds of a step."""
    rank.synchronize()
    began = time.perf_counter()
    for _ in range(count):
        step()
    rank.synchronize()
    return (time.perf_counter() - began) / count


def _record(rank: Rank, name: str, step: Callable[[], None]) -> None:
    """A trace of a few steps."""
    rank.synchronize()
    rank.meet()
    kinds = [ProfilerActivity.CPU] + ([] if rank.cpu else [ProfilerActivity.CUDA])
    plan = schedule(wait=0, warmup=2, active=RECORDED, repeat=1)
    with profile(activities=kinds, schedule=plan) as recording:
        for _ in range(2 + RECORDED):
            step()
            recording.step()
        rank.synchronize()
    path = rank.out / "traces" / f"{name}.rank{rank.number}.json"
    recording.export_chrome_trace(str(path))
    path.with_suffix(".json.gz").write_bytes(gzip.compress(path.read_bytes(), 6))
    path.unlink()
    rank.meet()
