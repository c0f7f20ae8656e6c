"""How far a step is from what the hardware could do: plain records that serialise to JSON.

`docs/roofline.md` says how every field is computed. Times are per step of one GPU.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from traceprobe.records.base import Record

SCHEMA_VERSION = "1.0"

Limit = Literal["math", "memory", "neither"]
"""What the kernels' time mostly goes to, as far as the work explains it."""


class Peaks(msgspec.Struct, frozen=True, kw_only=True):
    """What a device can do at most."""

    source: str
    tflops: dict[str, float]
    """Dense, by precision; those that are not known are missing."""
    bandwidth_gbps: float | None
    """Of its memory, read and written together."""


class PhaseWork(msgspec.Struct, frozen=True, kw_only=True):
    """What a phase computes and moves, and the least time that this takes."""

    phase: str
    ms: float | None
    """Exclusive time of its kernels; None where the trace does not know the phase."""
    flops: dict[str, int]
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


class Utilisation(msgspec.Struct, frozen=True, kw_only=True):
    """The three numbers that are called utilisation, as parts of 1."""

    busy: float | None
    """Part of the time in which a kernel runs, as nvidia-smi counts; None for a CPU."""
    covered: float | None
    """`busy`, times the part of the multiprocessors that has a block meanwhile."""
    occupancy: float | None
    """`busy`, times the part of the threads that the GPU can hold meanwhile."""
    mfu: float | None


class Roofline(msgspec.Struct, frozen=True, kw_only=True):
    """The step beside the peaks of the device."""

    device: str | None
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
    notes: list[str]


class RooflineRecord(Record, frozen=True, kw_only=True):
    """A roofline on its own, as `traceprobe roofline` gives it."""

    kind: Literal["roofline"] = "roofline"
    headline: str
    inputs: list[str]
    roofline: Roofline
