"""What a step would take with something of it mended, predicted by playing it again."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from traceprobe.records.texts import Word


class PredictedSaving(msgspec.Struct, frozen=True, kw_only=True):
    """How much shorter a step gets by what a finding asks for, ms."""

    ms: float
    low_ms: float
    """Nine of ten measurements lie from here"""
    high_ms: float
    """to here."""

    def problems(self) -> Iterator[str]:
        """What it contradicts itself in."""
        if not 0 <= self.low_ms <= self.ms <= self.high_ms:
            yield "a predicted saving is outside its interval"


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
