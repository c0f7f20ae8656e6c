"""What a capture left in a trace, field by field: one that no capture writes is lost and said.

Anybody may have written it, so it is data of bounded size and of the types that are read later.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import isfinite
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from traceprobe.ingest.untrusted_values import (
    LONGEST_TEXT,
    MAX_RANKS,
    MOST_FLOPS,
    STEP_MS,
    bounded_text,
)
from traceprobe.model.events import Quality

_MOST_VALUES = 50_000
"""Values of a field; the largest of ours, the timelines of memory, have 6,000."""
_DEEPEST = 8
_LARGEST = 1 << 62
_Ms = Annotated[float, Meta(ge=STEP_MS[0], le=STEP_MS[1])]
_Wait = Annotated[float, Meta(ge=0, le=STEP_MS[1])]
_Flops = Annotated[float, Meta(ge=0, le=MOST_FLOPS)]
_Ranks = Annotated[int, Meta(ge=1, le=MAX_RANKS)]
_Count = Annotated[int, Meta(ge=0, le=_LARGEST)]
_Rate = Annotated[float, Meta(ge=0, le=1e18)]
_Facts = dict[str, Any]
FIELDS: Mapping[str, Any] = {
    "unprofiled_step_ms": _Ms | None,
    "unprofiled_data_wait_ms": _Wait | None,
    "calibration_steps": _Count,
    "calibration_step_ms": list[_Wait],
    "peak_memory_bytes": _Count | None,
    "samples_per_second": _Rate,
    "tokens_per_second": _Rate,
    "workload": _Facts,
    "hardware": _Facts,
    "flags": _Facts,
    "libraries": _Facts,
    "memory": _Facts,
}
"""What a capture records, and what it can be."""
_WORKLOAD: Mapping[str, Any] = {
    "flops_per_step": _Flops | None,
    "ranks": _Ranks | None,
    "samples_per_step": _Rate | None,
    "tokens_per_step": _Rate | None,
}
"""The numbers of a workload that are reckoned with."""


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
    found = dict(_fitting(recorded, FIELDS, lost))
    if isinstance(found.get("workload"), dict):
        told = found["workload"]
        sure = dict(_fitting(told, _WORKLOAD, lost, "workload."))
        found["workload"] = {k: v for k, v in told.items() if k not in _WORKLOAD or k in sure}
    if lost:
        quality.damaged(
            "capture-record",
            len(lost),
            f"fields of what the capture recorded are what no capture writes ({', '.join(lost)}); "
            "they were left out.",
        )
    return found


def _fitting(
    recorded: Mapping[str, Any], fields: Mapping[str, Any], lost: list[str], prefix: str = ""
) -> Iterator[tuple[str, Any]]:
    for name, kind in fields.items():
        if name not in recorded:
            continue
        try:
            value = _bounded(recorded[name], iter(range(_MOST_VALUES)), _DEEPEST)
            msgspec.convert(value, kind)
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
