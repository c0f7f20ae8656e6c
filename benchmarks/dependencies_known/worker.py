"""One rank on the GPU machine: plays all programs, records them, and times interventions.

Started for each rank by `benchmarks/dependencies.py record`; writes a line of JSON for each program
to OUT/rank<N>.jsonl, and recordings beside it. Programs of one rank are shared out.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from benchmarks.dependencies_known import player
from benchmarks.dependencies_known.interventions import interventions
from benchmarks.dependencies_known.player import Player
from benchmarks.dependencies_known.program import Program, encoded, generate

ROUNDS, ITERATIONS = 3, 10
"""Of every intervention so many blocks, of so many iterations each."""
RECORDED = 10
NSYS = range(1, 100, 3)
"""Of the list of programs, those that Nsight Systems records too."""


def programs(single: int, double: int) -> list[Program]:
    """The programs of one rank, then those of two."""
    return [generate(n + 1) for n in range(single)] + [generate(n + 101, 2) for n in range(double)]


class Session:
    """What a rank has at hand."""

    def __init__(self, out: Path, seconds: float) -> None:
        self.rank = int(os.environ["RANK"])
        self.until = time.monotonic() + seconds
        self.out = out
        torch.cuda.set_device(self.rank)
        self.spins = player.library(Path(os.environ.get("SPINS", out)))
        self.spins.use(self.rank)
        dist.init_process_group("cpu:gloo,cuda:nccl")
        self.lines = (out / f"rank{self.rank}.jsonl").open("a")

    def clock_mhz(self) -> int:
        """Clock of the multiprocessors now."""
        return int(torch.cuda.clock_rate(self.rank))

    def late(self, together: bool) -> bool:
        """Whether no time is left, on any rank where they play together."""
        late = torch.tensor([float(time.monotonic() > self.until)])
        if together:
            dist.all_reduce(late, op=dist.ReduceOp.MAX)
        return bool(late.item())

    def write(self, **fields: Any) -> None:
        """A line of the results."""
        self.lines.write(json.dumps({"rank": self.rank, **fields}) + "\n")
        self.lines.flush()

    def players(self, wanted: Sequence[Program]) -> Iterator[Player]:
        """A player of each program that is this rank's, as long as there is time."""
        singles = 0
        for program in wanted:
            together = len(program.ranks) > 1
            if not together:
                singles += 1
                if singles % 2 != self.rank:
                    continue
            if self.late(together):
                print("no time for", program.name, flush=True)
                continue
            try:
                with Player(program, self.rank if together else 0, self.rank, self.spins) as found:
                    yield found
            except Exception:
                traceback.print_exc()
                self.write(program=program.name, failed=traceback.format_exc())

    def together(self, found: Player) -> None:
        """Wait until all ranks that play are here."""
        torch.cuda.synchronize()
        if len(found.program.ranks) > 1:
            dist.all_reduce(torch.zeros(1))


def timed(session: Session, wanted: Sequence[Program], rounds: int) -> None:
    """Record and time them all."""
    for found in session.players(wanted):
        began = time.monotonic()
        session.together(found)
        found.block(2)
        folder = session.out / "traces" / found.program.name
        folder.mkdir(parents=True, exist_ok=True)
        session.together(found)
        player.record(found, RECORDED, folder / f"rank{found.rank}.json.gz")
        changes = [None, *interventions(found.program)]
        blocks: list[list[list[float]]] = [[] for _ in changes]
        clocks: list[list[int]] = [[] for _ in changes]
        for _ in range(rounds):
            for index, change in enumerate(changes):
                found.change(change)
                session.together(found)
                blocks[index].append(found.block(ITERATIONS))
                clocks[index].append(session.clock_mhz())
        found.change(None)
        session.write(
            program=found.program.name,
            truth=encoded(found.program),
            changes=[None if change is None else asdict(change) for change in changes],
            blocks=blocks,
            clocks=clocks,
            seconds=round(time.monotonic() - began, 2),
        )
        print(found.program.name, round(time.monotonic() - began, 2), "s", clocks[0], flush=True)


def captured(session: Session, wanted: Sequence[Program]) -> None:
    """Ranges for Nsight Systems, which runs this process."""
    first = True
    for found in session.players(wanted):
        session.together(found)
        found.block(2)
        if first:
            torch.cuda.profiler.start()
            first = False
        session.together(found)
        player.record_nsys(found, RECORDED)
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()


def costs(session: Session, wanted: Sequence[Program], rounds: int) -> None:
    """Steps without a profiler, with one, and with one that also records events."""
    variants: dict[str, Callable[[], Any]] = {
        "none": nullcontext,
        "light": lambda: player.profiler(events=False, warm=0, active=1000),
        "events": lambda: player.profiler(events=True, warm=0, active=1000),
    }

    def measure(name: str, block: Callable[[int], list[float]], wait: Callable[[], None]) -> None:
        found: dict[str, list[list[float]]] = {variant: [] for variant in variants}
        clocks, sizes = [], dict[str, int]()
        for number in range(rounds):
            for variant, profiler in variants.items():
                wait()
                with profiler() as profile:
                    found[variant].append(block(20))
                clocks.append(session.clock_mhz())
                if profile is not None and not number:
                    path = session.out / "cost" / f"{name}-{variant}-rank{session.rank}.json.gz"
                    path.parent.mkdir(exist_ok=True)
                    profile.export_chrome_trace(str(path))
                    sizes[variant] = path.stat().st_size
        session.write(cost=name, blocks=found, clocks=clocks, bytes=sizes)

    # Both GPUs play the same ones.
    for program in wanted:
        with Player(program, 0, session.rank, session.spins) as found:
            found.block(2)
            measure(program.name, found.block, lambda: None)
    block = training(session.rank)
    block(5)
    measure("ddp", block, lambda: dist.barrier() and None)


def training(device: int) -> Callable[[int], list[float]]:
    """A small model that is trained on all ranks: blocks of its steps, ms."""
    from torch import nn

    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True, dropout=0.0)
    model = nn.TransformerEncoder(layer, 6, enable_nested_tensor=False).to(device)
    model = nn.parallel.DistributedDataParallel(model, device_ids=[device])
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    batch = torch.randn(16, 256, 512, device=device)

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()

    def block(steps: int) -> list[float]:
        torch.cuda.synchronize()
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(player.WARM + steps + 1)]
        for mark in marks:
            mark.record()
            step()
        torch.cuda.synchronize()
        counted = marks[player.WARM :]
        return [round(a.elapsed_time(b), 5) for a, b in pairwise(counted)]

    return block


def check(session: Session) -> None:
    """Whether kernels last as long as they are told, and what the machine is."""
    stream = torch.cuda.current_stream()
    lasted = []
    for asked in (50_000, 200_000, 1_000_000) * 4:
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
        session.spins.spin(1, 1000, stream.cuda_stream)
        marks[0].record()
        session.spins.spin(60, asked, stream.cuda_stream)
        marks[1].record()
        torch.cuda.synchronize()
        lasted.append((asked, round(marks[0].elapsed_time(marks[1]) * 1e6)))
    print("asked and measured", lasted, "clock", session.clock_mhz(), flush=True)
    versions = {"torch": torch.__version__, "cuda": torch.version.cuda}
    session.write(check=lasted, device=torch.cuda.get_device_name(), **versions)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("timed", "captured"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--single", type=int, default=28)
    parser.add_argument("--double", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--seconds", type=float, default=1e9)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    session = Session(given.out, given.seconds)
    wanted = programs(given.single, given.double)
    if given.what == "captured":
        captured(session, [p for i, p in enumerate(wanted) if i in NSYS])
    else:
        check(session)
        timed(session, wanted, given.rounds)
        session.until += 60
        single = [program for program in wanted if len(program.ranks) == 1]
        many = max(single, key=lambda p: sum(a.does == "wait" for a in p.ranks[0].actions()))
        costs(session, [many], given.rounds + 2)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
