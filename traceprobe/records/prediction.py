"""What a step would take with something of it mended, predicted by playing it again."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from msgspec import UNSET, UnsetType

from traceprobe.records.texts import Word


class PredictedSaving(msgspec.Struct, frozen=True, kw_only=True):
    """How much shorter a step gets by what a finding asks for, ms."""

    ms: float
    low_ms: float
    """Nine of ten measurements lie from here"""
    high_ms: float
    """to here."""
    step_ms: float | UnsetType = UNSET
    """The step that is left; not there in reports of before."""
    step_low_ms: float | UnsetType = UNSET
    """Nine of ten measurements of that lie from here: a step varies, whatever was saved"""
    step_high_ms: float | UnsetType = UNSET
    """to here."""

    def problems(self) -> Iterator[str]:
        """What it contradicts itself in."""
        if not 0 <= self.low_ms <= self.ms <= self.high_ms:
            yield "a predicted saving is outside its interval"
        left = (self.step_low_ms, self.step_ms, self.step_high_ms)
        known = [ms for ms in left if not isinstance(ms, UnsetType)]
        if len(known) not in {0, len(left)} or known != sorted(known) or min(known, default=0) < 0:
            yield "the step that a saving leaves is outside its interval"


class JointPrediction(msgspec.Struct, frozen=True, kw_only=True):
    """A step with the first findings mended together, ms: their savings need not add up."""

    findings: list[Word]
    now_ms: float
    step_ms: float
    low_ms: float
    high_ms: float

    def problems(self) -> Iterator[str]:
        """What it contradicts itself in."""
        if not self.findings:
            yield "a joint prediction is of no finding"
        if not 0 <= self.low_ms <= self.step_ms <= self.high_ms:
            yield "a joint prediction is outside its interval"
        if self.step_ms > self.now_ms:
            yield "a joint prediction makes the step longer"
