"""Training loops with random parameters, of which some of what a trace records is taken away.

What bounds each is known from its parameters. None was looked at when a rule was made.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from tests.builders import kineto, nsight
from tests.builders.loop import Loop
from tests.builders.scenario import Scenario
from traceprobe.verdict.ablation import CANDIDATES
from traceprobe.verdict.bounds import by_threshold
from traceprobe.verdict.thresholds import Thresholds

MS = 1_000_000
CLEAR = 0.03
"""Share of the step by which the bound of a loop is at least clear."""
SEEN = ("everything", "no step ranges", "no ranges")


@dataclass(frozen=True)
class RandomLoop:
    """A loop, what its trace shows, and what bounds it."""

    name: str
    scenario: Scenario
    format: str
    bound: str

    def write(self, folder: Path) -> Path:
        """Its trace as a file."""
        if self.format == "nsys":
            return nsight.write(self.scenario, folder / f"{self.name}.sqlite")
        return kineto.write(self.scenario, folder / f"{self.name}.json")


def random_loops(seed: int) -> Iterator[RandomLoop]:
    """Loops without end, the same for a seed."""
    source = random.Random(seed)
    number = 0
    while True:
        loop, seen = _loop(source), source.choice(SEEN)
        form = source.choice(("kineto", "nsys"))
        shares = loop.expected().shares
        decision = by_threshold({name: shares[name] for name in CANDIDATES}, Thresholds())
        if decision.margin >= CLEAR:
            name = f"loop {number}, {form}, {seen}"
            yield RandomLoop(name, _shown(loop, seen), form, decision.bound)
            number += 1


def _loop(source: random.Random) -> Loop:
    """A loop of 4 to 40 ms of computation, with any of what slows loops."""
    forward = source.choice((1, 2, 5, 10)) * MS
    whole = 4 * forward

    def part(most: float) -> int:
        return int(source.choice((0, 0, source.uniform(0.02, most))) * whole)

    communication, copies = part(1.0), part(0.3)
    # Where the host is silent before a batch is copied, nothing tells its work from a loader's.
    work = (0, 0) if copies else (part(0.5), part(0.5))
    return Loop(
        steps=source.choice((6, 8, 12, 20)),
        kernels=source.choice(((4, 4, 2), (12, 16, 3), (20, 30, 6))),
        forward_ns=forward,
        backward_ns=2 * forward,
        optimizer_ns=forward // 2,
        data_wait_ns=part(1.5),
        comm_ns=communication,
        world_size=2 if communication else None,
        h2d_ns=copies,
        tail_ns=20_000 + work[0],
        head_ns=20_000 + work[1],
        sync_ns=20_000 + part(0.5),
        wait=source.choice(("between", "loader", "range")),
    )


def _shown(loop: Loop, seen: str) -> Scenario:
    scenario = loop.scenario()
    if seen == "everything":
        return scenario
    if seen == "no ranges":
        return replace(scenario, ranges=())
    return replace(scenario, ranges=tuple(r for r in scenario.ranges if "step" not in r.name))
