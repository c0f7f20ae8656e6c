"""What the hooks take of a step, in steps that do next to nothing; with and without take turns."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

ROUNDS, STEPS = 15, 400


def cost() -> dict[str, Any]:
    """Microseconds a step, of a program that loads a batch and updates one weight."""
    import torch
    from torch.utils.data import DataLoader
    from torch.utils.data import dataloader as loaders

    from traceprobe.capture.loader.batch_feed import feed
    from traceprobe.capture.loader.loader_hook import _watch_batches
    from traceprobe.capture.oracle.ablation_plan import AblationPlan
    from traceprobe.capture.oracle.program_ablation import ProgramAblation

    torch.set_num_threads(1)
    kind: Any = loaders._BaseDataLoaderIter
    own = kind.__init__, kind.__next__
    weight = torch.nn.Parameter(torch.zeros(1))
    weight.grad = torch.zeros(1)
    optimizer = torch.optim.SGD([weight], 0.1)

    def block() -> float:
        batches = iter(DataLoader([torch.zeros(1)] * STEPS, None))
        began = time.perf_counter()
        for _ in batches:
            optimizer.step()
        return (time.perf_counter() - began) / STEPS * 1e6

    def plain() -> float:
        kind.__init__, kind.__next__ = own
        return block()

    def idle() -> float:
        _watch_batches(kind)
        handle = optimizer.register_step_post_hook(lambda *_: None)
        try:
            return block()
        finally:
            handle.remove()

    def measuring() -> float:
        _watch_batches(kind)
        with tempfile.TemporaryDirectory() as folder:
            # Never steady within these steps: the trials do not begin.
            session = ProgramAblation(AblationPlan(folder, warmup=10**6))
            numbers = iter(range(10**6))
            handle = optimizer.register_step_post_hook(
                lambda *_: session.before_step(next(numbers)) and None
            )
            try:
                return block()
            finally:
                handle.remove()
                session.close()
                feed.source = None

    ways: dict[str, Callable[[], float]] = {"plain": plain, "idle": idle, "measuring": measuring}
    found: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, way in ways.items():
            found[name].append(way())
    kind.__init__, kind.__next__ = own
    return {
        "rounds": ROUNDS,
        "steps": STEPS,
        **{name: round(statistics.median(values), 2) for name, values in found.items()},
        **{
            f"{name}_more": round(
                statistics.median(a - b for a, b in zip(found[name], found["plain"], strict=True)),
                2,
            )
            for name in ("idle", "measuring")
        },
    }
