"""What the programs here share: their options, and a clock for their steps."""

from __future__ import annotations

import argparse
import json
import os
import time

import torch
import torch.distributed as dist


def options(description: str | None, *taken_out: str) -> argparse.ArgumentParser:
    """The options of every program, with those that take a part of the work out.

    Args:
        taken_out: of "loading", "ranks", "wire" and "host", the parts that the program can do
            without.
    """
    parser = argparse.ArgumentParser(description=(description or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=25, help="iterations of the training loop")
    parser.add_argument("--timed", type=int, default=15, help="the last so many are timed")
    parser.add_argument("--tiny", action="store_true", help="a size for a CPU")
    if "loading" in taken_out:
        parser.add_argument("--no-loading", action="store_true", help="train on the same batch")
    if "ranks" in taken_out:
        parser.add_argument("--one-rank", action="store_true", help="without other processes")
    if "wire" in taken_out:
        parser.add_argument("--silent", action="store_true", help="ranks that send nothing")
    if "host" in taken_out:
        parser.add_argument("--no-host", action="store_true", help="without the work of the host")
    return parser


def device() -> torch.device:
    """The GPU of this process, or the CPU."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    gpu = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
    torch.cuda.set_device(gpu)
    return gpu


def join_ranks(*, silent: bool = False) -> tuple[int, int]:
    """Join the other processes that torchrun has started: rank and number of ranks.

    Args:
        silent: each as if there were the others, but nothing is sent.
    """
    if silent:
        from torch.testing._internal.distributed.fake_pg import FakeStore

        rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=world)
        return rank, world
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    return dist.get_rank(), dist.get_world_size()


class StepClock:
    """Times the last iterations, with the device synchronised at both ends.

    Args:
        steps: iterations that the loop makes. timed: how many of them, the last, are timed.
    """

    def __init__(self, steps: int, timed: int) -> None:
        self.steps, self.timed = steps, min(timed, steps - 1)
        self.count, self.started = 0, 0.0

    def tick(self) -> None:
        """An iteration has ended. After the last one, print the mean time of a step, ms."""
        self.count += 1
        if self.count == self.steps - self.timed:
            self.started = _now()
        if self.count == self.steps:
            mean = (_now() - self.started) / self.timed * 1e3
            print(json.dumps({"step_ms": round(mean, 3)}), flush=True)


def _now() -> float:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()
