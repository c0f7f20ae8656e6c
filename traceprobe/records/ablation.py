"""The result of an ablation: how fast a training loop is with parts of it taken out.

Plain records that serialise to JSON, alone (`traceprobe bench -o`) or inside a report. Shares are
fractions of the step of the whole loop; intervals are 95 % bootstrap intervals over the trials.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

import msgspec

from traceprobe.model.taxonomy import SHARES
from traceprobe.records.base import Saved
from traceprobe.records.texts import PRIVATE, Facts, Sentence, Word

AblationBound = Literal["io", "compute", "communication", "overhead", "mixed", "inconclusive"]
VariantName = Literal[
    "io",
    "synthetic-host",
    "synthetic-device",
    "full",
    "full-no-comm",
    "synthetic-no-comm",
    "full-fused",
    "full-regular",
]
INCLUDES: dict[VariantName, str] = {
    "io": "the loader alone: load, decode, augment, collate, pin; no training",
    "synthetic-host": "a few loaded batches again and again from host memory: the copy to the "
    "device and training, no loading",
    "synthetic-device": "batches that are on the device: training alone, neither loading nor copy",
    "full": "everything: loading, copy, training, gradient synchronisation",
    "full-no-comm": "everything but communication between ranks",
    "synthetic-no-comm": "training on such batches without communication between ranks",
    "full-fused": "everything, with the updates of the optimizers fused into few kernels",
    "full-regular": "everything but the iterations that are rare and long: evaluation, checkpoint, "
    "log",
}


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """A bootstrap interval."""

    low: float
    high: float

    @property
    def ordered(self) -> bool:
        """Whether they are in order."""
        return self.low <= self.high


class Interval(Bounds, frozen=True, kw_only=True):
    """A median over trials, its bootstrap interval, and the spread of the trials."""

    median: float
    p10: float
    p90: float


class Variant(msgspec.Struct, frozen=True, kw_only=True):
    """The trials of one variant, and what they come to."""

    name: VariantName
    includes: Sentence
    steps_per_trial: int
    trial_ms: list[float]
    """Step time of each trial in the order they ran; the slowest rank's, since all wait for it."""
    step_ms: Interval
    samples_per_second: Interval | None
    tokens_per_second: Interval | None

    def problems(self) -> Iterator[str]:
        """What it contradicts itself in."""
        rates = [r for r in (self.samples_per_second, self.tokens_per_second) if r is not None]
        if not self.trial_ms or self.steps_per_trial < 1 or min(self.trial_ms) < 0:
            yield f"variant {self.name} has no trials, or one that takes less than no time"
        if not all(interval.ordered for interval in (self.step_ms, *rates)):
            yield f"variant {self.name}: an interval is out of order"


class Overlap(msgspec.Struct, frozen=True, kw_only=True):
    """Throughput of the whole loop between loading and training one after the other, and at once.

    `position` is 0 at the serial bound 1/(1/io + 1/synthetic) and 1 at min(io, synthetic); below 0
    the parts get in each other's way. Rates are steps per second.
    """

    serial: float
    full: float
    parallel: float
    position: float | None
    """None where the two bounds are less than 10 % apart: overlap could not show."""


class Share(Bounds, frozen=True, kw_only=True):
    """A part of the step that goes away with what causes it, and its interval."""

    value: float


class AblationVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """What bounds the loop, by ablation alone."""

    bound: AblationBound
    secondary: Word | None
    margin: float
    """Distance to the nearest threshold that would change the answer, as a share of the step."""
    shares: dict[Word, Share | None]
    """io, communication, overhead, compute; None where the ablation cannot tell."""
    reasons: list[Sentence]
    thresholds: dict[Word, float]


class Ablation(Saved, frozen=True, kw_only=True):
    """A whole ablation. See `docs/report-json.md` for the meaning of every field."""

    workload: Annotated[dict[str, Any] | None, PRIVATE]
    hardware: Facts
    libraries: Facts
    flags: Facts
    ranks: int
    variants: list[Variant]
    absent: dict[Sentence, Sentence]
    """Variants that were not measured, and why."""
    gpu_busy_ms: float | None
    """Union of the kernels and copies of a synthetic step, collectives left out; slowest rank."""
    overlap: Overlap | None
    oracle: AblationVerdict

    def problems(self) -> Iterator[str]:
        """What it contradicts itself in."""
        if self.ranks < 1 or not self.variants:
            yield "an ablation without ranks or variants"
        for variant in self.variants:
            yield from variant.problems()
        shares = [share for share in self.oracle.shares.values() if share is not None]
        if set(self.oracle.shares) - set(SHARES) or not all(share.ordered for share in shares):
            yield "the shares of the ablation are unknown or out of order"
        overlap = self.overlap
        if overlap is not None and min(overlap.serial, overlap.full, overlap.parallel) <= 0:
            yield "the rates of the ablation are not above 0"
