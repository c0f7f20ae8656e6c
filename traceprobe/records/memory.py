"""Records of the memory of a step: what the device held, and what for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from traceprobe.records.base import json_of
from traceprobe.records.cleaning import Clean
from traceprobe.records.texts import Name, OptimizerName, PhaseName, Sentence, Word

MOST_MOMENTS, MOST_PHASES, MOST_BYTES = 400, 40, 1 << 53
"""What a recording may hold; one with more was not written by traceprobe."""
MOST_TEXT = 200


class MemoryParts(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes by what they are for, in the order in which they pile up."""

    weights: int
    optimizer_state: int
    gradients: int
    input: int
    activations: int
    temporary: int
    held: int


PARTS = MemoryParts.__struct_fields__


class MemoryTimeline(msgspec.Struct, frozen=True, kw_only=True):
    """Moments of a step as parallel arrays, each the largest total of a stretch of it."""

    position: list[float]
    phase: list[PhaseName]
    parts: dict[Word, list[int]]


class MemoryStep(msgspec.Struct, frozen=True, kw_only=True):
    """One step, measured or simulated."""

    peak_bytes: int
    peak_phase: PhaseName | None
    peak_operator: Name | None
    parts: MemoryParts
    """At the peak; they add up to it."""
    most: MemoryParts
    """The largest that each part gets, at different moments."""
    phases: dict[PhaseName, int]
    """The largest total within each phase."""
    timeline: MemoryTimeline
    reserved_bytes: int
    allocated_bytes: int | None = None
    """The allocator's own peak, where it was measured."""

    @property
    def allocated(self) -> int:
        """The peak of what is in use, by the allocator where it counted."""
        return self.peak_bytes if self.allocated_bytes is None else self.allocated_bytes

    @property
    def slack(self) -> int:
        """Reserved by the allocator and not in use at the peak: cached and fragmented."""
        return max(self.reserved_bytes - self.peak_bytes, 0)

    @property
    def plausible(self) -> bool:
        """Whether it keeps what the types leave open: sums, lengths, signs."""
        parts, most = msgspec.structs.astuple(self.parts), msgspec.structs.astuple(self.most)
        timeline, count = self.timeline, len(self.timeline.position)
        return (
            _amounts(self.peak_bytes, self.reserved_bytes, self.allocated_bytes)
            and _amounts(*parts, *most, *self.phases.values())
            and sum(parts) == self.peak_bytes
            and _short(self.peak_phase, self.peak_operator, *self.phases, *timeline.phase)
            and len(self.phases) <= MOST_PHASES
            and 0 < count <= MOST_MOMENTS
            and len(timeline.phase) == count
            and set(timeline.parts) == set(PARTS)
            and all(len(s) == count and _amounts(*s) for s in timeline.parts.values())
            and all(abs(at) < MOST_BYTES for at in timeline.position)
        )


class Memory(Clean, frozen=True, kw_only=True):
    """The memory of a step of one rank. See `docs/report-json.md` for every field."""

    optimizer: OptimizerName | None = None
    implementation: Word | None = None
    measured: MemoryStep | None = None
    predicted: MemoryStep | None = None
    not_measured: Sentence | None = None
    not_predicted: Sentence | None = None
    device_bytes: int | None = None
    outside_bytes: int | None = None
    """Of this process outside of the allocator: CUDA context, kernels, libraries."""
    input: int | None = None
    """Index of the input that it came from; None for a prediction alone."""

    @property
    def used_bytes(self) -> int | None:
        """What the measured step keeps others from using; None where that is not known."""
        if self.measured is None or self.outside_bytes is None:
            return None
        return self.measured.reserved_bytes + self.outside_bytes

    def to_json(self) -> str:
        """Indented JSON with sorted keys, ending in a newline."""
        return json_of(self)

    @property
    def plausible(self) -> bool:
        """Whether its numbers agree with each other, and its texts are as short as ours."""
        steps = [step for step in (self.measured, self.predicted) if step is not None]
        texts = (self.optimizer, self.implementation, self.not_measured, self.not_predicted)
        return (
            all(step.plausible for step in steps)
            and _amounts(self.device_bytes, self.outside_bytes)
            and _short(*texts)
        )

    def problems(self, inputs: int) -> Iterator[str]:
        """What it contradicts itself in, or a report of so many inputs."""
        if not self.plausible:
            yield "memory: its parts do not add up, or their lengths differ"
        if self.input is not None and not 0 <= self.input < inputs:
            yield "memory: it has no input"


def read(recorded: object) -> Memory | None:
    """What a recording says of its memory; None where it says nothing that makes sense."""
    try:
        found = msgspec.convert(recorded, Memory)
    except msgspec.ValidationError:
        return None
    return found if found.plausible else None


def _amounts(*values: Any) -> bool:
    return all(value is None or 0 <= value < MOST_BYTES for value in values)


def _short(*texts: str | None) -> bool:
    return all(text is None or len(text) <= MOST_TEXT for text in texts)
