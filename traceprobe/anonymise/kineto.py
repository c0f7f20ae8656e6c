"""Kineto traces without private names: event by event, by the list of public arguments."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import msgspec

from traceprobe.anonymise.names import public_name
from traceprobe.ingest.foreign_traces import FOREIGN_PROCESSES
from traceprobe.ingest.kineto.values import LONGEST_US
from traceprobe.slicing.kineto_events import read_metadata, readable_events, write_trace
from traceprobe.slicing.kineto_fields import (
    LEFT_OUT,
    METADATA_EVENTS,
    public_event,
    public_metadata,
)
from traceprobe.version import __version__

_BEGIN_NS = 1_000
"""The new time of the first event: GPU work at time 0 counts as lost."""
_NUMERIC = re.compile(r"[-+]?\d+(\.\d+)?([eE][-+]?\d+)?")
_DECODE = msgspec.json.Decoder(dict[str, Any]).decode


def write_kineto_copy(source: Path, target: Path) -> None:
    """Write the copy, one event a line. Damaged events are left out."""
    times = (_nanoseconds(event.get("ts")) for event, _ in readable_events(source, _DECODE))
    first = min((time for time in times if time), default=0)
    facts = read_metadata(source)
    metadata = {
        key: public_recording(value) if key == "traceprobe" else without_names(value)
        for key, value in public_metadata(facts).items()
    }
    if "baseTimeNanoseconds" in metadata:
        metadata["baseTimeNanoseconds"] = 0
    metadata["traceprobe_anonymised"] = __version__
    kept = (
        event
        for event, _ in readable_events(source, _DECODE)
        if event.get("cat") not in LEFT_OUT
        and (event.get("ph") != "M" or event.get("name") in METADATA_EVENTS)
    )
    write_trace(target, metadata, (_event(event, first) for event in kept))


def _event(event: dict[str, Any], first: int) -> dict[str, Any]:
    kept = public_event(event)
    arguments = kept.pop("args", None)
    kept = {key: without_names(value) for key, value in kept.items()}
    if arguments is not None:
        kept["args"] = {key: without_names(value) for key, value in arguments.items()}
    if "ts" in kept:
        kept["ts"] = _shifted(event["ts"], first)
    return kept


def public_recording(record: dict[str, Any]) -> dict[str, Any]:
    """What the capture of traceprobe left, as slices have it, with public names.

    The fields of a loader and of the compiler have names of ours; a loader is nameless but for
    those of its lines, and the compiler has none.
    """
    ours = {"loader", "compiler"}
    found = {public_name(k): without_names(v) for k, v in record.items() if k not in ours}
    if "compiler" in record:
        found["compiler"] = record["compiler"]
    if isinstance(loader := record.get("loader"), dict):
        lines = [{**line, "name": None} for line in loader["lines"]]
        found["loader"] = {**loader, "dataset": None, "lines": lines}
    return found


def without_names(value: Any) -> Any:
    """The same with public texts; numbers stay, written as they are."""
    if isinstance(value, dict):
        return {public_name(str(key)): without_names(item) for key, item in value.items()}
    if isinstance(value, list):
        return [without_names(item) for item in value]
    if isinstance(value, str) and not _NUMERIC.fullmatch(value) and value not in FOREIGN_PROCESSES:
        return public_name(value)
    return value


def _nanoseconds(time: Any) -> int:
    """A time stamp as it is read; 0 where it is none."""
    try:
        microseconds = float(time)
    except (TypeError, ValueError):
        return 0
    if not abs(microseconds) <= LONGEST_US:
        return 0
    whole = math.floor(microseconds)
    return whole * 1000 + round((microseconds - whole) * 1000)


def _shifted(time: Any, first: int) -> Any:
    """The time in µs after the first one; what is no time stays none."""
    nanoseconds = _nanoseconds(time)
    if not nanoseconds:
        return 0 if time == 0 else None
    nanoseconds += _BEGIN_NS - first
    return nanoseconds / 1000 if nanoseconds % 1000 else nanoseconds // 1000
