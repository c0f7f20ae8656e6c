"""The result of the same workload on several devices: plain records that serialise to JSON.

Rates and times are those of one device, per sample where all runs know how many their steps hold,
else per step (`GpuComparison.per`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from traceprobe.records.base import Record
from traceprobe.records.comparison import Per, RunSummary
from traceprobe.records.numbers import ROUNDING, positive
from traceprobe.records.report import Message
from traceprobe.records.texts import Sentence, Word

PeakName = Literal["fp32", "tf32", "half", "bandwidth"]
PEAKS: tuple[PeakName, ...] = ("fp32", "tf32", "half", "bandwidth")
"""Peaks that a ranking is held against; `half` is that of matrices in bf16 or fp16."""
Ran = Literal["fp32", "tf32", "half"]


def device_scale(run: RunSummary, per: Per) -> float:
    """What makes a time of a step one of a device and a sample."""
    if per == "step" or not run.samples_per_step:
        return 1.0
    return run.world_size / run.samples_per_step


class Hardware(msgspec.Struct, frozen=True, kw_only=True):
    """A device as the table of GPUs has it, scaled to the slice or die that it is."""

    name: Sentence
    slice: Word | None
    part: float
    """Its part of the multiprocessors of the board."""
    multiprocessors: int
    peaks_tflops: dict[Word, float]
    """Dense, at boost clock, by precision; those that it lacks are missing."""
    bandwidth_gbps: float | None
    matched: Word
    """What it was recognised by: `name`, `pattern` or `fingerprint`."""
    source: Sentence
    year: int


class Contender(msgspec.Struct, frozen=True, kw_only=True):
    """A run of the comparison."""

    run: RunSummary
    device: Sentence
    """As the trace names it."""
    hardware: Hardware | None
    """None where the device is not in the table, or the run has several kinds of them."""
    peaks: dict[Word, float]
    """Those that the ranking is held against, by `PEAKS`: TFLOP/s, and GB/s of the bandwidth."""
    rate: float
    """Samples, or steps, per second and device."""
    relative: float
    """Its rate over that of the fastest."""
    compute_ms: float | None
    """Time in kernels, communication left out."""
    data_wait: float | None
    """Part of the traced step in which the GPU waits for the loader."""
    precision: Word | None
    """What the program was asked for."""
    ran: Ran | None
    """In which most of the time of matrix kernels went; None where their names do not tell."""
    achieved_tflops: float | None
    """None unless the program recorded `flops_per_step`."""
    efficiency: float | None
    """Of the peak of the precision that ran."""
    usd_per_hour: float | None
    usd_per_million: float | None
    """Of a million samples or steps, at that price of a device."""

    @property
    def title(self) -> str:
        """The label, and the device where the label does not say it."""
        label, hardware = self.run.label, self.hardware
        short = self.device if hardware is None else hardware.name
        if hardware is not None and hardware.slice is not None:
            short = f"{short} MIG {hardware.slice}"
        return label if short.casefold() in label.casefold() else f"{label} ({short})"

    @property
    def part(self) -> str:
        """Multiprocessors, and of how many they are a part; empty where they are not known."""
        if self.hardware is None:
            return ""
        count = self.hardware.multiprocessors
        if self.hardware.part == 1:
            return str(count)
        return f"{count} of {round(count / self.hardware.part)}"

    def problems(self) -> Iterator[str]:
        """What it contradicts itself in."""
        name = f"run {self.run.label}"
        yield from self.run.problems()
        if self.rate <= 0 or not 0 < self.relative <= 1 + ROUNDING:
            yield f"{name}: its rate is not above 0, or above the fastest"
        if self.hardware is not None and not 0 < self.hardware.part <= 1:
            yield f"{name}: its hardware is no part of itself"
        if not positive([*self.peaks.values(), self.compute_ms or None]):
            yield f"{name}: a peak is not above 0"


class PeakFit(msgspec.Struct, frozen=True, kw_only=True):
    """How well the compute time of the devices follows one of their peaks."""

    peak: PeakName
    devices: int
    """Devices whose peak is known."""
    agreement: float
    """Pairs of devices in the order of their peaks less those in the other order, over all."""
    spread: float
    """Largest over smallest product of peak and time; 1 where time is inversely proportional."""
    slope: float
    """Of log speed over log peak; 1 where they are proportional."""
    r2: float


class GpuComparison(Record, frozen=True, kw_only=True):
    """A workload on several devices. See `docs/gpus.md` for the meaning of a field."""

    kind: Literal["gpus"] = "gpus"
    per: Per
    headline: Sentence
    contenders: list[Contender]
    """Fastest first."""
    ratios: dict[Word, float]
    """Device with the least compute time over that with the most: `compute` (speed) and peaks."""
    fits: list[PeakFit]
    """Best first; empty with fewer than three different devices of known peaks."""
    explained_by: PeakName | None
    """The peak that explains the ranking; None where none does or it cannot be decided."""
    explanation: Sentence
    points: list[Sentence]
    cautions: list[Message]

    def problems(self) -> Iterator[str]:
        """What it contradicts itself in."""
        if not self.contenders:
            yield "there are no runs"
        for contender in self.contenders:
            yield from contender.problems()
        for fit in self.fits:
            if not any(c.compute_ms and fit.peak in c.peaks for c in self.contenders):
                yield f"no run has the peak {fit.peak}"
