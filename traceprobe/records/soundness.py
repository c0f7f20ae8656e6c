"""Saved results are believed only where they agree with themselves.

A record that was changed, or that something else wrote, would be rendered as a lie or break what
renders it. Types are checked as JSON is decoded; here is what types leave open.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from traceprobe.errors import DamagedRecord
from traceprobe.records import report as result
from traceprobe.records.checks import of_record
from traceprobe.records.contradictions import violations
from traceprobe.records.shape import of_report

R = TypeVar("R", bound=msgspec.Struct)

MOST = 1 << 63
"""What an integer must be below: nanoseconds, bytes and counts all are."""
MOST_FLOAT = 1e100
"""What a number must be below, so that sums, squares and percentages of it are finite."""

_LARGE = re.compile(rb"[:,\[]-?\d{18}|\d[eE]\+?\d{2}")
"""In JSON, all that may be too large; few records have any."""


def sound(record: R) -> R:
    """The same record.

    Raises:
        DamagedRecord: something in it contradicts something else, or cannot be.
    """
    problems = [*_numbers(record)]
    if not problems:
        if isinstance(record, result.Report):
            problems = problems_of(record)
        else:
            problems = [*of_record(record)]
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise DamagedRecord(f"contradicts itself: {problems[0]}{more}")
    return record


def problems_of(report: result.Report, ranks: Sequence[result.Rank] | None = None) -> list[str]:
    """What is wrong with a report.

    Args:
        ranks: those of the report with all their details; without them those that have kept theirs.
    """
    return [*of_report(report, ranks)] or violations(report, ranks)


def _numbers(record: msgspec.Struct) -> Iterator[str]:
    try:
        content = msgspec.json.encode(record)
    except OverflowError:
        yield "a number is too large"
        return
    if _LARGE.search(content) and not all(map(_in_range, _leaves(record))):
        yield "a number is too large"


def _in_range(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value) and abs(value) < MOST_FLOAT
    return not isinstance(value, int) or abs(value) < MOST


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            yield from _leaves(getattr(value, name))
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _leaves(item)
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item)
    else:
        yield value
