"""What one more millisecond costs: delays put into a running program, and what became of the step.

Plain records that serialise to JSON, alone (`traceprobe bench --causal -o`) or inside a report.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

import msgspec

from traceprobe.records.base import Record
from traceprobe.records.texts import PRIVATE, Facts, Sentence

RegionName = Literal["between", "loader", "forward", "backward", "optimizer", "collectives"]
Resource = Literal["host", "device", "workers", "network"]
Judgement = Literal["critical", "partly", "hidden", "unclear"]


class Slope(msgspec.Struct, frozen=True, kw_only=True):
    """What a step takes longer for one millisecond of delay, and its 95 % interval."""

    value: float
    low: float
    high: float

    @property
    def ordered(self) -> bool:
        """Whether its bounds are in order."""
        return self.low <= self.value <= self.high


class Delayed(msgspec.Struct, frozen=True, kw_only=True):
    """Blocks of steps with one delay, means over the rounds."""

    delay_ms: float
    """Of a step, as it was measured."""
    step_ms: float


class ProbedRegion(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the step that was held up."""

    region: RegionName
    resource: Resource
    """What was held up: the thread that trains, the stream of the device, the processes that load,
    or the stream that collectives run on."""
    slope: Slope
    judgement: Judgement
    blocks: list[Delayed]
    """The smallest delay first."""

    def problems(self) -> Iterator[str]:
        """What it contradicts itself in."""
        delays = [block.delay_ms for block in self.blocks]
        if not delays or delays != sorted(delays) or min(delays) < 0:
            yield f"the delays of {self.region} are missing or out of order"
        if not self.slope.ordered:
            yield f"the slope of {self.region} is outside its interval"


class Causal(Record, frozen=True, kw_only=True):
    """All probes of a program. See `docs/report-json.md` for the meaning of every field."""

    kind: Literal["causal"] = "causal"
    workload: Annotated[dict[str, Any] | None, PRIVATE]
    hardware: Facts
    libraries: Facts
    flags: Facts
    ranks: int
    rounds: int
    """Blocks of each region and delay; they took turns."""
    steps_per_block: int
    """Without a delay."""
    workers: int
    """Processes that load batches; 0 for none."""
    step_ms: float
    """Without hooks and delays."""
    hooks_ms: Slope
    """What the hooks add to a step without a delay."""
    regions: list[ProbedRegion]
    absent: dict[Sentence, Sentence]
    """Regions that were not probed, and why."""

    def problems(self) -> Iterator[str]:
        """What it contradicts itself in."""
        if min(self.ranks, self.rounds, self.steps_per_block) < 1 or self.workers < 0:
            yield "probes without ranks, rounds or steps"
        if self.step_ms <= 0:
            yield "a step takes no time"
        if not self.hooks_ms.ordered:
            yield "what the hooks cost is outside its interval"
        named = [(region.region, region.resource) for region in self.regions]
        if len(set(named)) < len(named):
            yield "a region was probed twice"
        for region in self.regions:
            yield from region.problems()
