"""What mending something saves, in words: as predicted, else at most."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import UnsetType

from traceprobe.formatting import ordinal, significant
from traceprobe.records.prediction import PredictedSaving
from traceprobe.records.report import Finding, Report

NOTHING = 0.01
"""Part of its upper bound, or of the step, below which a prediction is next to nothing."""
NUMBERS = {2: "two", 3: "three"}


def saving(finding: Finding) -> str:
    """As `8.1 ms a step (6.9 to 9.0; up to 11)`, or `up to 11 ms a step` without a prediction."""
    if finding.saving_ms_per_step is None:
        return ""
    return gain(finding.predicted, finding.saving_ms_per_step)


def gain(predicted: PredictedSaving | UnsetType, most_ms: float) -> str:
    """The same of its numbers."""
    most = significant(most_ms)
    if isinstance(predicted, UnsetType):
        return f"up to {most} ms a step"
    if predicted.ms < NOTHING * most_ms:
        return f"little on its own (at most {most} ms)"
    return f"{significant(predicted.ms)} ms a step ({interval(predicted, most_ms)})"


def interval(predicted: PredictedSaving, most_ms: float) -> str:
    """Where nine of ten measurements lie, and what none exceeds: `6.9 to 9.0; up to 11`."""
    most_ms = max(most_ms, predicted.high_ms)
    low, high, most = (significant(ms) for ms in (predicted.low_ms, predicted.high_ms, most_ms))
    return f"{low} to {high}" if high == most else f"{low} to {high}; up to {most}"


def together(report: Report, fixes: Sequence[Finding]) -> str:
    """What a step takes with the first of these mended; empty where that was not played."""
    joint = report.joint
    if isinstance(joint, UnsetType):
        return ""
    places = [number for number, fix in enumerate(fixes, 1) if fix.id in joint.findings]
    if len(places) < len(joint.findings):
        return ""
    if len(places) == len(fixes):
        which = f"These {NUMBERS.get(len(fixes), len(fixes))}"
    else:
        which = f"The {' and '.join(map(ordinal, places))}"
    if joint.now_ms - joint.step_ms < NOTHING * joint.now_ms:
        return f"{which} together save almost nothing: something else limits the step."
    ends = f"{significant(joint.low_ms)} to {significant(joint.high_ms)}"
    steps = f"{significant(joint.now_ms)} → {significant(joint.step_ms)} ms a step"
    return f"{which} together: {steps} ({ends})."
