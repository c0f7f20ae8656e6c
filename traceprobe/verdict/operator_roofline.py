"""Operators beside the roofline: the least time of each, and which lose most.

The least time of a call is the longer of its operations at the peak of their precision and its
bytes at full bandwidth. What takes less shows that the peak or the work is not what it is taken
for, or that operands were in a cache: it is shown as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec.structs import replace

from traceprobe.records.operator_work import MOST_ROWS, Operators, OperatorWork
from traceprobe.records.roofline import Peaks

_FASTER = {"fp32 or tf32": ("tf32", "fp32"), "fp64": ("fp64_tensor", "fp64")}
"""What may have run at several rates: the least time is that of the fastest."""


def rate(precision: str, measured: Peaks | None, published: Peaks | None) -> float | None:
    """The peak of a precision, TFLOP/s: as it was measured, else as it is published."""
    # Either half: where a GPU has both, they are as fast.
    names = ("bf16", "fp16") if precision == "half" else (precision,)
    known = [peaks.tflops.get(name) for peaks in (measured, published) if peaks for name in names]
    return next((each for each in known if each), None)


def beside_roofline(found: Operators, measured: Peaks | None, published: Peaks | None) -> Operators:
    """Operators with their least times, those that lose most first; the others are left out."""
    peaks = measured if measured is not None and measured.bandwidth_gbps else published
    bandwidth = None if peaks is None else peaks.bandwidth_gbps
    fastest = {row.precision: _fastest(row.precision, measured, published) for row in found.rows}
    rows = [_beside(row, fastest[row.precision], bandwidth) for row in found.rows]
    over = [row.excess_ms for row in rows if row.excess_ms is not None]
    rows.sort(key=lambda row: (-(row.excess_ms or 0.0), -row.ms, row.operator, row.sizes))
    return replace(
        found,
        excess_ms=round(sum(max(ms, 0.0) for ms in over), 6) if over else None,
        rows=rows[:MOST_ROWS],
        notes=[*found.notes, *_notes(rows)],
    )


def _fastest(precision: str, measured: Peaks | None, published: Peaks | None) -> float | None:
    names = _FASTER.get(precision, (precision,))
    known = [rate(name, measured, published) for name in names]
    return max((each for each in known if each is not None), default=None)


def _beside(row: OperatorWork, tflops: float | None, gbps: float | None) -> OperatorWork:
    if gbps is None or (row.flops and tflops is None):
        return row
    math = row.calls * row.flops / tflops / 1e9 if tflops else 0.0
    memory = row.calls * row.bytes / gbps / 1e6
    bound: Literal["math", "memory"] = "math" if math > memory else "memory"
    least = round(max(math, memory), 6)
    return replace(
        row,
        bound=bound,
        least_ms=least,
        attained=round(least / row.ms, 6),
        excess_ms=round(row.ms - least, 6),
    )


def _notes(rows: Sequence[OperatorWork]) -> list[str]:
    """What is faster than it can be, and why that may be so."""
    faster = [row for row in rows if row.attained is not None and row.attained > 1]
    notes = []
    for bound, words in (
        ("math", "the peak or the formula of their operations is off"),
        ("memory", "their operands were in a cache, or the bandwidth or their bytes are off"),
    ):
        count = sum(row.bound == bound for row in faster)
        if count:
            number = "an operator is" if count == 1 else f"{count} operators are"
            notes.append(f"{number} faster than the roofline allows by {bound}: {words}")
    return notes
