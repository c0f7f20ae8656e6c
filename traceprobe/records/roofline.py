"""How far a step is from what the hardware could do: plain records that serialise to JSON.

`docs/roofline.md` says how every field is computed. Times are per step of one GPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from traceprobe.records.base import Record
from traceprobe.records.numbers import SHARE_ROUNDING, positive
from traceprobe.records.operator_work import Operators
from traceprobe.records.texts import Name, PhaseName, Sentence, Word

Limit = Literal["math", "memory", "neither"]
"""What the kernels' time mostly goes to, as far as the work explains it."""


class Peaks(msgspec.Struct, frozen=True, kw_only=True):
    """What a device can do at most."""

    source: Sentence
    tflops: dict[Word, float]
    """Dense, by precision; those that are not known are missing."""
    bandwidth_gbps: float | None
    """Of its memory, read and written together."""

    def problems(self) -> Iterator[str]:
        """What of it cannot be."""
        if not positive([*self.tflops.values(), self.bandwidth_gbps]):
            yield "roofline: a peak is not above 0"


class PhaseWork(msgspec.Struct, frozen=True, kw_only=True):
    """What a phase computes and moves, and the least time that this takes."""

    phase: PhaseName
    ms: float | None
    """Exclusive time of its kernels; None where the trace does not know the phase."""
    flops: dict[Word, int]
    """Executed, by precision; empty where the phase multiplies nothing."""
    bytes: int | None
    """Operands of its operators; None where a compiler decides what is read and written."""
    math_ms: float | None
    """Its operations at peak."""
    memory_ms: float | None
    """Its bytes at full bandwidth."""
    floor_ms: float | None
    """At peak where its operators overlap their own math and traffic: no less is possible, but for
    what stays in a cache."""
    tflops: float | None
    gbps: float | None
    intensity: float | None
    """Operations per byte."""

    def problems(self) -> Iterator[str]:
        """What of it cannot be."""
        numbers = (self.ms, self.bytes, self.math_ms, self.memory_ms, self.floor_ms)
        rates = (self.tflops, self.gbps, self.intensity)
        known = [n for n in (*self.flops.values(), *numbers, *rates) if n is not None]
        if any(number < 0 for number in known):
            yield f"roofline: {self.phase} has less than nothing"


class Utilisation(msgspec.Struct, frozen=True, kw_only=True):
    """The three numbers that are called utilisation, as parts of 1."""

    busy: float | None
    """Part of the time in which a kernel runs, as nvidia-smi counts; None for a CPU."""
    covered: float | None
    """`busy`, times the part of the multiprocessors that has a block meanwhile."""
    occupancy: float | None
    """`busy`, times the part of the threads that the GPU can hold meanwhile."""
    mfu: float | None


class SampledUnits(msgspec.Struct, frozen=True, kw_only=True):
    """Means of sampled counters over the time of the kernels, as parts of 1."""

    tensor_active: float
    """Tensor cores at work."""
    dram: float
    """The memory's interface reads or writes."""

    def problems(self) -> Iterator[str]:
        """What of it cannot be."""
        if not (0 <= self.tensor_active <= 1 and 0 <= self.dram <= 1):
            yield "roofline: a sampled unit is no part of 1"


class Roofline(msgspec.Struct, frozen=True, kw_only=True):
    """The step beside the peaks of the device."""

    device: Sentence | None
    step_ms: float
    unprofiled: bool
    """Whether the step was timed without a profiler; else it is that of the trace."""
    published: Peaks | None
    measured: Peaks | None
    """From `traceprobe roofline --measure`; floors take it where it knows more."""
    flops_per_step: float | None
    """As the model defines it: what is computed again does not count."""
    achieved_tflops: float | None
    mfu: float | None
    """Operations of the model at the published peak of the precision they ran in, over the step."""
    hfu: float | None
    """The same with everything that is computed again."""
    phases: list[PhaseWork]
    kernel_ms: float
    """Time of a step in which kernels compute, communication not counted."""
    math_ms: float | None
    memory_ms: float | None
    """Traffic that no math of the same operator hides."""
    rest_ms: float | None
    """Of the step, what neither explains: kernels below peak, communication, idle time."""
    limit: Limit | None
    utilisation: Utilisation
    notes: list[Sentence]
    operators: Operators | UnsetType = UNSET
    """Left out where the trace has no sizes of operands."""
    sampled: SampledUnits | UnsetType = UNSET
    """Left out where the profiler sampled no such counters for most of the kernels' time."""

    def problems(self) -> Iterator[str]:
        """What it contradicts itself in."""
        if min(self.step_ms, self.kernel_ms) < 0 or (self.flops_per_step or 1) <= 0:
            yield "roofline: a step takes less than no time, or no operations"
        if self.step_ms == 0 and self.math_ms is not None:
            yield "roofline: a step takes no time"
        for part in (self.published, self.measured, *self.phases):
            if part is not None:
                yield from part.problems()
        if self.operators is not UNSET:
            yield from self.operators.problems()
        if self.sampled is not UNSET:
            yield from self.sampled.problems()
        if self.mfu is not None and self.hfu is not None and self.mfu > self.hfu + SHARE_ROUNDING:
            yield "the model has more operations than were executed"
        parts = (self.math_ms, self.memory_ms, self.rest_ms)
        if None not in parts and sum(p or 0.0 for p in parts) < self.step_ms - SHARE_ROUNDING:
            yield "math, memory and rest are less than the step"


class RooflineRecord(Record, frozen=True, kw_only=True):
    """A roofline on its own, as `traceprobe roofline` gives it."""

    kind: Literal["roofline"] = "roofline"
    headline: Sentence
    inputs: list[Name]
    roofline: Roofline

    def problems(self) -> Iterator[str]:
        """What it contradicts itself in."""
        return self.roofline.problems()
