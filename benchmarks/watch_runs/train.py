"""A training loop that is held up at random times, and says when, for `traceprobe watch` to find.

    python train.py --seconds 60 --seed 1 --truth truth.json [--device cuda] [--quiet]

Pauses are full collections of a large heap, checkpoints are tensors that torch.save writes to the
folder of the truth, a slow worker is one of two that sleeps at each batch, and a slow stretch
computes more for some seconds: on a GPU another process beside it, on a CPU this one.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import multiprocessing
from torch.utils.data import DataLoader, Dataset, get_worker_info

KINDS = ("garbage-collection", "checkpoint", "loader-worker", "pace")
WORKERS = 2
WARM_S, APART_S = 8.0, (2.0, 3.5)
"""Before the first, and between the end of one and the beginning of the next."""
BESIDE = """
import time, torch
a = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
torch.mm(a, a); torch.cuda.synchronize(); print("ready", flush=True)
import sys
for line in sys.stdin:
    end = time.time() + float(line)
    while time.time() < end:
        for _ in range(20): torch.mm(a, a)
        torch.cuda.synchronize()
"""


class Numbers(Dataset):
    """Random rows; one worker sleeps before each batch while the flag holds a time."""

    def __init__(self, width: int, batch: int, slow_s: Any) -> None:
        self.width, self.batch, self.slow_s = width, batch, slow_s

    def __len__(self) -> int:
        return 1 << 30

    def __getitem__(self, index: int) -> torch.Tensor:
        worker = get_worker_info()
        if worker.id == 1 and self.slow_s.value:
            time.sleep(self.slow_s.value)
        return torch.ones(self.batch, self.width)


class Loop:
    """The model and its step."""

    def __init__(self, device: str, width: int, depth: int) -> None:
        layers = [torch.nn.Linear(width, width) for _ in range(depth)]
        self.model = torch.nn.Sequential(*layers).to(device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-6)
        self.device = device

    def step(self, batch: torch.Tensor, times: int = 1) -> torch.Tensor:
        """One update, of so many passes."""
        x = batch.to(self.device, non_blocking=True)
        for _ in range(times):
            loss = self.model(x).square().mean()
            loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss


def main() -> None:
    """Measure as the arguments say."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--truth", type=Path, required=True)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--quiet", action="store_true", help="hold nothing up")
    args = parser.parse_args()
    torch.set_num_threads(1)
    dice = random.Random(args.seed)
    cuda = args.device == "cuda"
    width, depth, batch = (4096, 8, 4096) if cuda else (512, 3, 128)
    slow_s = multiprocessing.Value("d", 0.0, lock=False)
    loop = Loop(args.device, width, depth)
    heap = [[n] for n in range(1_000_000)]
    data = DataLoader(Numbers(width, batch, slow_s), batch_size=None, num_workers=WORKERS)
    beside = None
    if cuda and not args.quiet:
        beside = subprocess.Popen(
            [sys.executable, "-c", BESIDE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
    truth, started = [], time.time()
    due, number = started + WARM_S, -1  # the first update is the beginning of step 0
    kinds = []
    slow_until, until_step, times = 0.0, 0, 1
    for x in data:
        now = time.time()
        if now - started > args.seconds:
            break
        if until_step and number >= until_step:
            until_step, slow_s.value = 0, 0.0
            due = now + dice.uniform(*APART_S)
        if slow_until and now > slow_until:
            truth[-1]["last"] = number
            slow_until, times = 0.0, 1
            due = now + dice.uniform(*APART_S)
        if not args.quiet and now > due and not until_step and not slow_until:
            kinds = kinds or dice.sample(KINDS, len(KINDS))
            kind = kinds.pop()
            truth.append({"kind": kind, "first": number, "last": number, "at_s": now - started})
            if kind == "garbage-collection":
                gc.collect()
            elif kind == "checkpoint":
                state = torch.zeros(dice.randrange(10, 40) << 20, device=args.device)
                torch.save(state, args.truth.with_suffix(".pt"))
            elif kind == "loader-worker":
                # Long enough that the batches which lie ready do not hide it.
                slow_s.value = max(0.15, 4 * (now - started) / max(number, 1))
                until_step = number + 20
                truth[-1]["last"] = until_step + 6
            else:
                seconds = dice.uniform(3, 6)
                slow_until = time.time() + seconds
                if beside:
                    beside.stdin.write(f"{seconds}\n")
                    beside.stdin.flush()
                else:
                    times = 2
            truth[-1]["took_s"] = time.time() - now
            due = time.time() + dice.uniform(*APART_S)
        loss = loop.step(x, times)
        number += 1
        if number % 50 == 0:
            loss.item()
    if slow_until or until_step:
        truth.pop()  # it did not come to its end
    if beside:
        beside.stdin.close()
        beside.wait()
    args.truth.with_suffix(".pt").unlink(missing_ok=True)
    args.truth.write_text(json.dumps({"steps": number, "seconds": args.seconds, "truth": truth}))
    del heap


if __name__ == "__main__":
    main()
