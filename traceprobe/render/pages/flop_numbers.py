"""Numbers of operations for people."""

from __future__ import annotations

from traceprobe.formatting import significant


def flops(count: float) -> str:
    """A number of operations with its unit: 14.0 TFLOP."""
    for factor, unit in ((1e15, "P"), (1e12, "T"), (1e9, "G")):
        if count >= factor:
            return f"{significant(count / factor)} {unit}FLOP"
    return f"{significant(count / 1e6)} MFLOP"
