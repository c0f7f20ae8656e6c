"""What a capture left in a trace, field by field: one that no capture writes is lost and said.

Anybody may have written it, so it is data of bounded size and of the types that are read later.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import isfinite
from typing import Any

import msgspec

from traceprobe.ingest.untrusted_values import LONGEST_TEXT, bounded_text
from traceprobe.model.quality import Quality
from traceprobe.model.sidecar import Sidecar, Workload

_MOST_VALUES = 50_000
"""Values of a field; the largest of ours, the timelines of memory, have 6,000."""
_DEEPEST = 8
_LARGEST = 1 << 62


class _Unfit(Exception):
    """A value that no capture writes."""


def checked(recorded: object, quality: Quality) -> dict[str, Any] | None:
    """The fields that are what they should be; None of what is no record.

    Args:
        quality: where it is said which fields are lost.
    """
    if not isinstance(recorded, dict):
        return None
    lost: list[str] = []
    found = dict(_fitting(recorded, Sidecar, lost))
    if "workload" in found:
        workload = found["workload"]
        sure = dict(_fitting(workload, Workload, lost, "workload."))
        unread = {k: v for k, v in workload.items() if k not in Workload.__struct_fields__}
        found["workload"] = unread | sure
    if lost:
        quality.damaged(
            "capture-record",
            len(lost),
            f"fields of what the capture recorded are what no capture writes ({', '.join(lost)}); "
            "they were left out.",
        )
    return found


def _fitting(
    recorded: Mapping[str, Any], record: type[msgspec.Struct], lost: list[str], prefix: str = ""
) -> Iterator[tuple[str, Any]]:
    for name in record.__struct_fields__:
        if name not in recorded:
            continue
        try:
            value = _bounded(recorded[name], iter(range(_MOST_VALUES)), _DEEPEST)
            msgspec.convert({name: value}, record)
        except (_Unfit, msgspec.ValidationError):
            lost.append(prefix + name)
        else:
            yield name, value


def _bounded(value: Any, left: Iterator[int], deep: int) -> Any:
    """A JSON value with short texts and plain numbers.

    Raises:
        _Unfit: it is too large, too deep, or has a number that 64 bits do not hold.
    """
    if next(left, None) is None or not deep:
        raise _Unfit
    if isinstance(value, dict):
        return {bounded_text(key): _bounded(item, left, deep - 1) for key, item in value.items()}
    if isinstance(value, list):
        return [_bounded(item, left, deep - 1) for item in value]
    if isinstance(value, str):
        if len(value) > LONGEST_TEXT:
            raise _Unfit
        return bounded_text(value)
    if value is None or isinstance(value, bool):
        return value
    fits = abs(value) <= _LARGEST if isinstance(value, int) else isfinite(value)
    if not fits:
        raise _Unfit
    return value
