"""Judgement: shares to a bound, a confidence, reasons and findings. Sees results, never events."""

from traceprobe.verdict.thresholds import Thresholds

__all__ = ["Thresholds"]
