"""Records of the memory of a step: what the device held, and what for."""

from __future__ import annotations

from typing import Any

import msgspec

from traceprobe.records.cleaning import Clean

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
    phase: list[str]
    parts: dict[str, list[int]]


class MemoryStep(msgspec.Struct, frozen=True, kw_only=True):
    """One step, measured or simulated."""

    peak_bytes: int
    peak_phase: str | None
    peak_operator: str | None
    parts: MemoryParts
    """At the peak; they add up to it."""
    most: MemoryParts
    """The largest that each part gets, at different moments."""
    phases: dict[str, int]
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


class Memory(Clean, frozen=True, kw_only=True):
    """The memory of a step of one rank. See `docs/report-json.md` for every field."""

    optimizer: str | None = None
    implementation: str | None = None
    measured: MemoryStep | None = None
    predicted: MemoryStep | None = None
    not_measured: str | None = None
    not_predicted: str | None = None
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
        compact = msgspec.json.encode(self, order="sorted")
        return msgspec.json.format(compact, indent=1).decode() + "\n"


def read(recorded: object) -> Memory | None:
    """What a recording says of its memory; None where it says nothing that makes sense."""
    try:
        found = msgspec.convert(recorded, Memory)
    except msgspec.ValidationError:
        return None
    return found if plausible(found) else None


def plausible(found: Memory) -> bool:
    """Whether its numbers agree with each other, and its texts are as short as ours."""
    steps = [step for step in (found.measured, found.predicted) if step is not None]
    whole = all(map(_plausible, steps)) and _amounts(found.device_bytes, found.outside_bytes)
    texts = (found.optimizer, found.implementation, found.not_measured, found.not_predicted)
    return whole and _short(*texts)


def _plausible(step: MemoryStep) -> bool:
    """Whether a step keeps what the types leave open: sums, lengths, signs."""
    parts = msgspec.structs.asdict(step.parts)
    timeline = step.timeline
    count = len(timeline.position)
    return (
        _amounts(step.peak_bytes, step.reserved_bytes, step.allocated_bytes)
        and _amounts(*parts.values(), *msgspec.structs.astuple(step.most), *step.phases.values())
        and sum(parts.values()) == step.peak_bytes
        and _short(step.peak_phase, step.peak_operator, *step.phases, *timeline.phase)
        and len(step.phases) <= MOST_PHASES
        and 0 < count <= MOST_MOMENTS
        and len(timeline.phase) == count
        and set(timeline.parts) == set(PARTS)
        and all(len(s) == count and _amounts(*s) for s in timeline.parts.values())
        and all(abs(at) < MOST_BYTES for at in timeline.position)
    )


def _amounts(*values: Any) -> bool:
    return all(value is None or 0 <= value < MOST_BYTES for value in values)


def _short(*texts: str | None) -> bool:
    return all(text is None or len(text) <= MOST_TEXT for text in texts)
