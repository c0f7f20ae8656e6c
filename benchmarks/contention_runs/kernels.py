"""Chains of kernels and of collectives, alone and beside each other, in blocks that alternate."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile

if TYPE_CHECKING:
    from benchmarks.contention_runs.measure import Rank

Launch = Callable[[], object]
BLOCK_MS = 1.5
"""Time of a chain that runs inside the other."""
BLOCKS = {"link": 5, "wire": 4}
MOST_LAUNCHES = 800
"""CUDA holds 1,024 launches; with more the host would set the pace."""
SHARE = 0.45
"""Of the time of a run."""


class Beside:
    """Runs a chain of kernels and one of collectives at once, on streams of their own."""

    def __init__(self, device: torch.device, compute: torch.cuda.Stream) -> None:
        self._compute, self._tiny = compute, torch.zeros(1, device=device)
        self._messages, self._gate = torch.cuda.Stream(), torch.cuda.Stream()
        self._ahead: dict[Any, float] = {}
        """Host time of a block, ms: the GPU sleeps for as long and never waits for launches."""

    def run(
        self, kernels: Launch | None, count: int, message: Launch | None, messages: int
    ) -> tuple[float, float, float]:
        """Times of the kernels and of the collectives, and the end of the kernels, ms."""
        key = (kernels, count, message, messages)
        events = [torch.cuda.Event(enable_timing=True) for _ in range(4)]
        begin, sent, first, last = events
        torch.cuda.synchronize()
        began = time.perf_counter()
        with torch.cuda.stream(self._gate):
            torch.cuda._sleep(int(self._ahead.get(key, 4.0) * 1.98e6) + 400_000)
        self._messages.wait_stream(self._gate)
        with torch.cuda.stream(self._messages):
            dist.all_reduce(self._tiny)  # all ranks are here
            begin.record()
            for _ in range(messages if message else 0):
                message()
            sent.record()
        if kernels:
            self._compute.wait_event(begin)
            with torch.cuda.stream(self._compute):
                first.record()
                for _ in range(count):
                    kernels()
                last.record()
        host = (time.perf_counter() - began) * 1e3
        torch.cuda.synchronize()
        self._ahead[key] = min(self._ahead.get(key, 40.0), max(0.5, 1.3 * host))
        took = begin.elapsed_time(sent) if message else 0.0
        if not kernels:
            return 0.0, took, 0.0
        return first.elapsed_time(last), took, begin.elapsed_time(last)

    def each(self, kernels: Launch | None, message: Launch | None, count: int) -> float:
        """Time of one of `count`, ms; the first block tells how far ahead the host must be."""
        for _ in range(2):
            kernel_ms, message_ms, _ = self.run(kernels, count, message, count)
        return (kernel_ms if kernels else message_ms) / count


def measure(rank: Rank) -> None:
    """Every chain of kernels beside every collective."""
    compute = None if rank.cpu else torch.cuda.Stream()
    chains, messages = _chains(rank, compute), _messages(rank)
    for launch in (*chains.values(), *messages.values()):
        for _ in range(3):
            launch()
    rank.synchronize()
    if compute is None:
        return
    rank.found["kernels"] = {name: _kernels_of(launch) for name, launch in chains.items()}
    beside = Beside(rank.device, compute)
    kernel_ms = {n: rank.agreed(beside.each(chain, None, 8)) for n, chain in chains.items()}
    message_ms = {n: rank.agreed(beside.each(None, send, 4)) for n, send in messages.items()}
    rank.found |= {"per_call_ms": kernel_ms, "per_collective_ms": message_ms, "contention": []}
    stop = rank.until - (1 - SHARE) * rank.left()
    for collective, send in messages.items():
        for name, chain in chains.items():
            if rank.agreed(time.monotonic() > stop):
                rank.found.setdefault("skipped", []).append([collective, name])
                continue
            times = _blocks(rank, beside, (chain, kernel_ms[name]), (send, message_ms[collective]))
            rank.found["contention"].append({"kernel": name, "collective": collective, **times})
            rank.say(collective, name, times)
        rank.save()


def _blocks(
    rank: Rank, beside: Beside, chain: tuple[Launch, float], send: tuple[Launch, float]
) -> dict[str, list[Any]]:
    """Times of a chain alone and within collectives, and of these alone and within the chain, ms.

    Args:
        chain, send: each with the time of one, ms.
    """
    (kernels, kernel_ms), (message, message_ms) = chain, send
    inner = max(1, min(300, round(BLOCK_MS / kernel_ms)))
    around = max(1, round(3 * inner * kernel_ms / message_ms + 0.5))
    few = max(1, round(BLOCK_MS / message_ms))
    outer = max(1, min(MOST_LAUNCHES, round(2.2 * few * message_ms / kernel_ms + 0.5)))
    names = ("alone", "beside", "inside", "coll_alone", "coll_beside", "coll_inside", "clock")
    found: dict[str, list[Any]] = {name: [] for name in names}
    for block in range(BLOCKS[rank.link] + 1):
        alone, _, _ = beside.run(kernels, inner, None, 0)
        slowed, all_messages, ended = beside.run(kernels, inner, message, around)
        _, messages_alone, _ = beside.run(None, 0, message, few)
        _, messages_slowed, kernels_ended = beside.run(kernels, outer, message, few)
        if block:  # the first only tells how far ahead the host must be
            row = (alone, slowed, ended <= all_messages, messages_alone, messages_slowed)
            row = (*row, messages_slowed <= kernels_ended, rank.clock())
            for name, value in zip(names, row, strict=True):
                found[name].append(value)
    return found


def _kernels_of(launch: Launch) -> dict[str, list[float]]:
    """Kernels of a chain by name: how many each time, and how long one takes, ns."""
    with profile(activities=[ProfilerActivity.CUDA]) as recording:
        for _ in range(3):
            launch()
        torch.cuda.synchronize()
    found: dict[str, list[float]] = {}
    for event in recording.events():
        if event.device_type == torch.autograd.DeviceType.CUDA:
            found.setdefault(event.name, []).append(1e3 * event.time_range.elapsed_us())
    return {name: [len(ns) / 3, sum(ns) / len(ns)] for name, ns in found.items()}


def _messages(rank: Rank) -> Mapping[str, Launch]:
    """Collectives, by operation and size; over sockets only an all-reduce of DDP's usual size."""

    def zeros(megabytes: int) -> torch.Tensor:
        return torch.zeros(megabytes << (6 if rank.cpu else 18), device=rank.device)

    bucket = zeros(25)
    found: dict[str, Launch] = {"all_reduce-25MB": lambda: dist.all_reduce(bucket)}
    if rank.link == "link" and not rank.cpu:
        large, whole, part = zeros(256), zeros(64), zeros(32)
        found["all_reduce-256MB"] = lambda: dist.all_reduce(large)
        found["all_gather-64MB"] = lambda: dist.all_gather_into_tensor(whole, part)
        found["reduce_scatter-64MB"] = lambda: dist.reduce_scatter_tensor(part, whole)
    return found


def _chains(rank: Rank, compute: torch.cuda.Stream | None) -> Mapping[str, Launch]:
    """Kernels of each class, by name; on a CPU of a 32nd of each side."""
    half = torch.bfloat16

    def rand(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        sizes = [max(2, size // 32) for size in shape] if rank.cpu else shape
        return torch.randn(*sizes, device=rank.device, dtype=dtype)

    found: dict[str, Launch] = {}
    for name, sides, dtype in (
        ("mm-bf16-4096", (4096, 4096, 4096), half),
        ("mm-bf16-1024", (1024, 1024, 4096), half),
        ("mm-tf32-4096", (4096, 4096, 4096), torch.float32),
        ("mm-fp32-2048", (2048, 2048, 2048), torch.float32),
        ("mm-tf32-thin", (64, 8192, 8192), torch.float32),
        ("mm-tf32-outer", (8192, 8, 16384), torch.float32),
        ("mm-bf16-thin", (64, 8192, 8192), half),
    ):
        found[name] = _product(rand, sides, dtype, tf32="fp32" not in name)
    image, kernel = rand(32, 256, 56, 56, dtype=half), rand(256, 256, 96, 96, dtype=half)
    image, kernel = (
        t.to(memory_format=torch.channels_last) for t in (image, kernel[..., :3, :3].contiguous())
    )
    found["conv2d-bf16"] = lambda: functional.conv2d(image, kernel, padding=1)
    volume = rand(64, 64, 32, 32, 32)[:8]
    cube = rand(64, 64, 96, 96, 96)[..., :3, :3, :3].contiguous()
    found["conv3d-tf32"] = lambda: functional.conv3d(volume, cube, padding=1)
    heads = rand(256, 384, 1024, 64, dtype=half)[:8, :12].contiguous()
    attention = functional.scaled_dot_product_attention
    found["flash-fwd"] = lambda: attention(heads, heads, heads, is_causal=True)
    found["flash-bwd"] = _attention_backward(heads, compute)
    tokens, scale = rand(16384, 768, dtype=half), rand(768, dtype=half)
    found["layernorm"] = lambda: functional.layer_norm(tokens, scale.shape, scale, scale)
    scores, logits = rand(98304, 1024, dtype=half), rand(4096, 50257, dtype=half)
    found["softmax"] = lambda: torch.softmax(scores, -1)
    found["log-softmax"] = lambda: torch.log_softmax(logits, -1)
    a, b, c = (rand(1 << 26) for _ in range(3))  # 256 MB each
    found["add-256MB"] = lambda: torch.add(a, b, out=c)
    found["mul-256MB"] = lambda: torch.mul(a, 0.5, out=c)
    found["copy-256MB"] = lambda: c.copy_(a)
    found["sum-256MB"] = lambda: a.sum()
    small, other = rand(1 << 18), rand(1 << 18)
    found["add-1MB"] = lambda: small.add_(other)
    hidden = rand(16384, 3072, dtype=half)
    found["gelu-bf16"] = lambda: functional.gelu(hidden)
    planes, mean, variance = rand(64, 256, 56, 56), rand(256), rand(256).abs()
    found["batchnorm"] = lambda: functional.batch_norm(planes, mean, variance, training=True)
    weights = [torch.nn.Parameter(rand(2048, 1024)) for _ in range(40)]
    for weight in weights:
        weight.grad = torch.randn_like(weight)
    found["adam-foreach"] = torch.optim.Adam(weights, lr=1e-6, foreach=True).step
    found["adam-fused"] = torch.optim.Adam(weights, lr=1e-6, fused=True).step
    found["sgd-foreach"] = torch.optim.SGD(weights, lr=1e-6, foreach=True).step
    return found


def _product(
    rand: Callable[..., torch.Tensor],
    sides: tuple[int, int, int],
    dtype: torch.dtype,
    *,
    tf32: bool,
) -> Launch:
    rows, inner, columns = sides
    left, right = rand(rows, inner, dtype=dtype), rand(inner, columns, dtype=dtype)
    result = left @ right

    def go() -> None:
        torch.backends.cuda.matmul.allow_tf32 = tf32
        torch.mm(left, right, out=result)

    return go


def _attention_backward(heads: torch.Tensor, compute: torch.cuda.Stream | None) -> Launch:
    """A backward pass runs on the stream of its forward pass."""
    query = heads.clone().requires_grad_()
    with torch.cuda.stream(compute):
        result = functional.scaled_dot_product_attention(query, query, query, is_causal=True)
        gradient = torch.randn_like(result)
    return lambda: torch.autograd.grad(result, query, gradient, retain_graph=True)
