"""The result of an ablation: how fast a training loop is with parts of it taken out.

Plain records that serialise to JSON, alone (`traceprobe bench -o`) or inside a report. Shares are
fractions of the step of the whole loop; intervals are 95 % bootstrap intervals over the trials.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from traceprobe.records.cleaning import Clean

SCHEMA_VERSION = "1.0"

AblationBound = Literal["io", "compute", "communication", "overhead", "mixed"]
VariantName = Literal[
    "io",
    "synthetic-host",
    "synthetic-device",
    "full",
    "full-no-comm",
    "synthetic-no-comm",
]
INCLUDES: dict[VariantName, str] = {
    "io": "the loader alone: load, decode, augment, collate, pin; no training",
    "synthetic-host": "one loaded batch again and again from host memory: the copy to the device "
    "and training, no loading",
    "synthetic-device": "one batch that is on the device: training alone, neither loading nor copy",
    "full": "everything: loading, copy, training, gradient synchronisation",
    "full-no-comm": "everything but DDP's gradient synchronisation",
    "synthetic-no-comm": "training on one batch without DDP's gradient synchronisation",
}


class Interval(msgspec.Struct, frozen=True, kw_only=True):
    """A median over trials, its bootstrap interval, and the spread of the trials."""

    median: float
    low: float
    high: float
    p10: float
    p90: float


class Variant(msgspec.Struct, frozen=True, kw_only=True):
    """The trials of one variant, and what they come to."""

    name: VariantName
    includes: str
    steps_per_trial: int
    trial_ms: list[float]
    """Step time of each trial in the order they ran; the slowest rank's, since all wait for it."""
    step_ms: Interval
    samples_per_second: Interval | None
    tokens_per_second: Interval | None


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


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the step that goes away with what causes it, and its interval."""

    value: float
    low: float
    high: float


class AblationVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """What bounds the loop, by ablation alone."""

    bound: AblationBound
    secondary: str | None
    margin: float
    """Distance to the nearest threshold that would change the answer, as a share of the step."""
    shares: dict[str, Share | None]
    """io, communication, overhead, compute; None where the ablation cannot tell."""
    reasons: list[str]
    thresholds: dict[str, float]


class Ablation(Clean, frozen=True, kw_only=True):
    """A whole ablation. See `docs/report-json.md` for the meaning of every field."""

    schema_version: str
    traceprobe_version: str
    workload: dict[str, Any] | None
    hardware: dict[str, Any]
    libraries: dict[str, Any]
    flags: dict[str, Any]
    ranks: int
    variants: list[Variant]
    absent: dict[str, str]
    """Variants that were not measured, and why."""
    gpu_busy_ms: float | None
    """Union of the kernels and copies of a synthetic step, collectives left out; slowest rank."""
    overlap: Overlap | None
    oracle: AblationVerdict

    def to_json(self) -> str:
        """Indented JSON with sorted keys, ending in a newline."""
        compact = msgspec.json.encode(self, order="sorted")
        return msgspec.json.format(compact, indent=1).decode() + "\n"

    @classmethod
    def from_json(cls, text: str | bytes) -> Ablation:
        """Read an ablation back.

        Raises:
            msgspec.DecodeError: `text` is not JSON.
            msgspec.ValidationError: it is no ablation; the message holds the offending path.
            DamagedRecord: it contradicts itself.
        """
        from traceprobe.records.soundness import sound

        return sound(msgspec.json.decode(text, type=cls))
