"""Ranks of a data parallel training as traces without sizes, with the dumps of the same run."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from tests.builders.nsight import UTC_NS
from tests.builders.scenario import COMM_STREAM, Process, Scenario, Script
from tests.flight_records import Run
from tests.inspector_logs import SMALLEST, Log

SIZES = (6_000_000, 7_000_000, 7_000_000, 20_000_000)
"""Elements of the buckets of a step."""
MS = 1_000_000


@dataclass(frozen=True)
class Recorded:
    """A run that was profiled and recorded.

    Args:
        scenarios: by rank. truth: by rank, elements of each kernel in the order of launches.
        calls: by rank, what was noted: (time on the trace's clock, elements).
    """

    scenarios: list[Scenario]
    truth: list[list[int]]
    calls: list[list[tuple[int, int]]]
    ranks: int = field(default=2)

    def dumps(self, folder, *, keep=slice(None), ahead_ns=0, drift=0.0, form="json", **about):
        """Dumps of all ranks in a new folder, of the entries that the recorder still has.

        Args:
            ahead_ns: of the recorder's clock. drift: by how much it is faster.
        """
        run = Run(self.ranks)
        for rank, calls in enumerate(self.calls):
            for at, elements in calls:
                when = UTC_NS + at + ahead_ns + round(drift * at)
                run.issue(rank, at=when, size=[elements], **about)
            run.entries[rank] = run.entries[rank][keep]
        folder.mkdir(exist_ok=True)
        run.write(folder, form=form)
        return folder

    def log(self, rank, *, keep=slice(None), smallest=SMALLEST, ahead_us=0, **about):
        """The log of a rank, whose plugin hears of a kernel some 25 us after its launch."""
        log = Log(rank, self.ranks, pid=4_000 + rank, **about)
        for at, elements in self.calls[rank][keep]:
            if 4 * elements >= smallest:
                log.note("AllReduce", 4 * elements, (UTC_NS + at + 75_000) // 1000 + ahead_us)
        return log


def recorded(*, steps=10, before=0, after=0, seed=1, jitter_ns=MS, lost=()):
    """Two ranks, of whose steps the trace has those in the middle.

    Args:
        before, after: steps that are recorded but not profiled.
        jitter_ns: by how much steps and their parts differ.
        lost: kernels that the trace does not have, by their number.
    """
    scenarios, truth, noted = [], [], []
    for rank in range(2):
        random_ = random.Random(seed + rank)
        script = Script(Process(1_000 + rank, rank=rank, devices=("NVIDIA H200",) * 2))
        script.world_size = 2
        now, number = MS, 0
        truth.append([])
        noted.append([])
        for step in range(-before, steps + after):
            begin, seen = now, 0 <= step < steps
            kernel = (now + 50_000, now + 4 * MS, (now + 10_000, now + 20_000))
            if seen:
                script.op("kernel", *kernel, device=rank)
            for elements in SIZES:
                now += MS + random_.randrange(max(jitter_ns, 1))
                noted[-1].append((now, elements))
                launch = now + 40_000 + random_.randrange(min(jitter_ns, 20_000) or 1)
                if seen and number not in lost:
                    ends = max(launch + MS, now + 2 * MS)
                    call = (launch, launch + 8_000)
                    where = {"device": rank, "stream": COMM_STREAM}
                    script.op("comm", launch + 10_000, ends, call, **where)
                    truth[-1].append(elements)
                number += seen
            now += 3 * MS + random_.randrange(max(jitter_ns, 1))
            if seen:
                script.range(f"step {step}", begin, now - 1_000)
        scenarios.append(script.build())
    return Recorded(scenarios, truth, noted)
