"""Operators of all devices, as the mean of a step of one."""

from __future__ import annotations

from collections.abc import Sequence

from traceprobe.formatting import truncated
from traceprobe.pipeline.rank_summary import MAX_KERNEL
from traceprobe.records.operator_work import Operators, OperatorWork
from traceprobe.timeline.operator_time import CalledOperator, OperatorTime

_LEAST_MS = 1e-6
"""Below the resolution of the record."""


def build_operators(found: Sequence[OperatorTime | None]) -> Operators | None:
    """The operators of a step, without what the peaks of a device say of them.

    Args:
        found: of each device; None for those whose trace has no sizes.
    """
    known = [each for each in found if each is not None and each.steps]
    steps = sum(each.steps for each in known)
    if not steps:
        return None
    sums: dict[tuple[object, ...], list[int]] = {}
    first: dict[tuple[object, ...], CalledOperator] = {}
    for row in (row for each in known for row in each.rows):
        key = (row.operator, row.shape, row.precision, row.flops, row.bytes)
        first.setdefault(key, row)
        total = sums.setdefault(key, [0, 0])
        total[0] += row.calls
        total[1] += row.ns
    rows = [_row(first[key], calls / steps, ns / steps / 1e6) for key, (calls, ns) in sums.items()]
    return Operators(
        kernel_ms=_ms(sum(each.ns for each in known), steps),
        known_ms=_ms(sum(each.known_ns for each in known), steps),
        excess_ms=None,
        rows=[row for row in rows if row.ms >= _LEAST_MS],
        notes=[],
    )


def _ms(ns: int, steps: int) -> float:
    return round(ns / steps / 1e6, 6)


def _row(row: CalledOperator, calls: float, ms: float) -> OperatorWork:
    return OperatorWork(
        operator=truncated(row.operator, MAX_KERNEL),
        sizes=[list(dims) for dims in row.shape],
        precision=row.precision,
        calls=round(calls, 6),
        ms=round(ms, 6),
        flops=row.flops,
        bytes=row.bytes,
    )
