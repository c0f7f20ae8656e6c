"""Decoded Chrome events to int64 columns, chunk by chunk, so that no event outlives its chunk."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from traceprobe.ingest.kineto_event import Args, Event, Number
from traceprobe.model import UNKNOWN, Int64s, Quality

GPU = ("kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset")
CALLS = (
    *("cuda_runtime", "cuda_driver", "Runtime", "xpu_runtime", "xpu_driver", "mtia_runtime"),
    *("privateuse1_runtime", "privateuse1_driver"),
)
OPERATORS = ("cpu_op", "Operator")
RANGES = ("user_annotation", "User")
OVERHEAD = ("overhead",)
STACKS = ("python_function", "Python")
MEMORY = ("cpu_instant_event",)
LEGACY = "legacy"
"""Bucket of events without a category: metadata rows, and everything in dialect A."""

_NO_ARGS = Args()
_MISSING = np.iinfo(np.int64).min
_UNFINISHED = _MISSING + 1
Table = dict[str, Int64s]


class _Index(dict[str, int]):
    """Text to its number in order of first appearance."""

    def __missing__(self, text: str) -> int:
        self[text] = number = len(self)
        return number


@dataclass
class Columns:
    """Accumulates events as lists of small arrays, one list per group of categories."""

    names: _Index = field(default_factory=_Index)
    parts: dict[str, list[Table]] = field(default_factory=dict)
    thread_names: dict[tuple[int, int], str] = field(default_factory=dict)
    categories: set[str] = field(default_factory=set)
    flows: dict[str, list[Table]] = field(default_factory=dict)
    copy_kinds: bool = False
    fractional: bool = False
    events: int = 0
    lost: int = 0

    def add(self, events: Sequence[Event]) -> None:
        """Take one chunk's events apart."""
        self.events += len(events)
        buckets: dict[str | None, list[Event]] = {}
        for event in events:
            bucket = buckets.get(event.cat)
            if bucket is None:
                bucket = buckets[event.cat] = []
            bucket.append(event)
        self.categories.update(category for category in buckets if category)
        self._put("gpu", _of(buckets, GPU), self._gpu)
        self._put("calls", _of(buckets, CALLS), self._call)
        self._put("operators", _of(buckets, OPERATORS), self._operator)
        self._put("ranges", _of(buckets, RANGES), self._host)
        self._put("overhead", _of(buckets, OVERHEAD), self._host)
        self._uncategorised(buckets.get(None, []))
        for phase in ("s", "f"):
            arrows = [e for e in buckets.get("cpu_to_cuda", []) if e.ph == phase]
            if arrows:
                self.flows.setdefault(phase, []).append(self._arrow(arrows))

    def _put(self, group: str, events: list[Event], columns: Any) -> None:
        if events:
            table = columns(events)
            keep = table["t0"] != _MISSING
            self.lost += int(len(keep) - np.count_nonzero(keep))
            self.parts.setdefault(group, []).append(
                table if keep.all() else {c: v[keep] for c, v in table.items()}
            )

    def _times(self, events: list[Event]) -> Table:
        ts, dur = floats([e.ts for e in events]), floats([e.dur for e in events])
        usable = np.isfinite(ts) & np.isfinite(dur)
        self.fractional |= bool(np.any(ts[usable] % 1.0))
        t0 = np.where(usable, nanoseconds(np.where(usable, ts, 0.0)), _MISSING)
        length = nanoseconds(np.where(usable, dur, 0.0))
        return {"t0": t0, "t1": np.where(length < 0, _UNFINISHED, t0 + length)}

    def _host(self, events: list[Event]) -> Table:
        return {
            **self._times(events),
            "name": self._names(e.name for e in events),
            "pid": _pids([e.pid for e in events]),
            "thread": self._ids([e.tid for e in events]),
        }

    def _call(self, events: list[Event]) -> Table:
        args = [e.args or _NO_ARGS for e in events]
        return {
            **self._host(events),
            "correlation": integers([a.correlation for a in args]),
        }

    def _operator(self, events: list[Event]) -> Table:
        args = [e.args or _NO_ARGS for e in events]
        return {
            **self._host(events),
            "external": _external(args),
            "sequence": integers([a.sequence for a in args]),
            "forward_thread": integers([a.forward_thread for a in args]),
        }

    def _gpu(self, events: list[Event]) -> Table:
        args = [e.args or _NO_ARGS for e in events]
        kinds = [a.copy_kind for a in args]
        named = any(kinds)
        self.copy_kinds |= named
        device = integers([a.device for a in args])
        if (device == UNKNOWN).any():  # peer-to-peer copies have two ends
            device = np.where(device == UNKNOWN, integers([a.in_device for a in args]), device)
        pid = _pids([e.pid for e in events])
        stream = integers([a.stream for a in args])
        tid = self._ids([e.tid for e in events])
        return {
            **self._times(events),
            "name": self._names(
                (_copy_name(e, a) for e, a in zip(events, args, strict=True))
                if named
                else (e.name for e in events)
            ),
            "device": np.where(device == UNKNOWN, pid, device),
            "stream": np.where(stream == UNKNOWN, tid, stream),
            "category": self._names(str(e.cat).lower().removeprefix("gpu_") for e in events),
            "correlation": integers([a.correlation for a in args]),
            "external": _external(args),
            "bytes": integers([a.bytes for a in args]),
            "graph": np.maximum(
                integers([a.graph for a in args]), integers([a.graph_node for a in args])
            ),
        }

    def _uncategorised(self, events: list[Event]) -> None:
        for event in events:
            if event.ph == "M" and event.name == "thread_name" and event.args is not None:
                key = (_integer(event.pid), _integer(event.tid))
                self.thread_names[key] = str(event.args.name)
        legacy = [e for e in events if e.ph == "X"]
        on_gpu = [str(e.pid).startswith("CUDA") for e in legacy]
        gpu = [e for e, g in zip(legacy, on_gpu, strict=True) if g]
        host = [e for e, g in zip(legacy, on_gpu, strict=True) if not g]
        self._put("legacy_gpu", gpu, self._host)
        self._put("operators", host, self._operator)

    def _arrow(self, events: list[Event]) -> Table:
        return {
            "t0": nanoseconds(np.nan_to_num(floats([e.ts for e in events]))),
            "thread": self._ids([e.tid for e in events]),
            "id": integers([e.id for e in events]),
        }

    def _names(self, values: Iterable[Number]) -> Int64s:
        table = self.names
        return np.array(
            [table[v] if v.__class__ is str else table[str(v)] for v in values],
            dtype=np.int64,
        )

    def _ids(self, values: list[Number]) -> Int64s:
        """Process and thread ids; "stream 7" is 7, other text gets a number of its own."""
        return np.array([v if v.__class__ is int else self._id(v) for v in values], dtype=np.int64)

    def _id(self, value: Number) -> int:
        number = _integer(value)
        if number != UNKNOWN or value is None:
            return number
        digits = "".join(c for c in str(value) if c.isdigit())
        return (
            int(digits[:18]) if digits else -2 - self.names.setdefault(str(value), len(self.names))
        )


def gather(columns: Columns, metadata: Mapping[str, Any], quality: Quality) -> dict[str, Table]:
    """Concatenate the chunks and put every time on the trace's absolute clock.

    Returns:
        Group name ("gpu", "calls", "operators", "ranges", "overhead", "legacy_gpu", "flow_s",
        "flow_f") to columns. A host event that never ended runs to the end of the capture; a GPU
        event with a negative duration or at time 0 is lost.
    """
    base = _integer(metadata.get("baseTimeNanoseconds"))
    base = 0 if base == UNKNOWN else base
    quality.events_lost += columns.lost
    groups = {**columns.parts, **{f"flow_{k}": v for k, v in columns.flows.items()}}
    tables = {group: concatenate(parts) for group, parts in groups.items()}
    for group in ("gpu", "legacy_gpu"):
        if group in tables:
            table = tables[group]
            keep = (table["t1"] >= table["t0"]) & (table["t0"] != 0)
            quality.events_lost += int(len(keep) - np.count_nonzero(keep))
            tables[group] = {c: v[keep] for c, v in table.items()}
    end = max(
        (int(t["t1"].max()) for t in tables.values() if "t1" in t and len(t["t1"])), default=0
    )
    for table in tables.values():
        if "t1" in table:
            unfinished = table["t1"] == _UNFINISHED
            if unfinished.any():
                quality.warn(
                    "unfinished-events",
                    "Some host events never ended; they are taken to run to the end of the "
                    "capture.",
                )
                table["t1"] = np.where(unfinished, np.maximum(end, table["t0"]), table["t1"])
            table["t1"] = table["t1"] + base
        table["t0"] = table["t0"] + base
    return tables


def concatenate(parts: Sequence[Table]) -> Table:
    """Join tables that have the same columns."""
    return {column: np.concatenate([p[column] for p in parts]) for column in parts[0]}


def _of(buckets: dict[str | None, list[Event]], categories: Sequence[str]) -> list[Event]:
    found = [buckets[c] for c in categories if c in buckets]
    events = found[0] if len(found) == 1 else [event for bucket in found for event in bucket]
    return events if {event.ph for event in events} <= {"X"} else _complete(events)


def _complete(events: list[Event]) -> list[Event]:
    return [event for event in events if event.ph == "X"]


def _pids(values: list[Number]) -> Int64s:
    """Process ids; dialect A writes "CPU functions", which is one process without a number."""
    pids = integers(values)
    return np.where(pids == UNKNOWN, 0, pids)


def _copy_name(event: Event, args: Args) -> str:
    """The name that other dialects give a copy: `Memcpy HtoD (Pinned -> Device)`."""
    if not args.copy_kind:
        return str(event.name)
    return f"{event.name} {args.copy_kind} ({args.source_kind} -> {args.target_kind})"


def _external(args: list[Args]) -> Int64s:
    external = integers([a.external_id for a in args])
    if (external == UNKNOWN).all():  # dialect B spells it in lower case
        return integers([a.external_id_lower for a in args])
    return external


def floats(values: list[Number]) -> np.typing.NDArray[np.float64]:
    """Numbers or numeric strings to float64; anything else becomes NaN."""
    try:
        return np.array(values, dtype=np.float64)
    except (ValueError, TypeError):
        return np.array([_float(v) for v in values], dtype=np.float64)


def nanoseconds(microseconds: np.typing.NDArray[np.float64]) -> Int64s:
    """Microseconds to int64 ns without the rounding of one large product."""
    whole = np.floor(microseconds)
    return whole.astype(np.int64) * 1000 + np.rint((microseconds - whole) * 1000).astype(np.int64)


def integers(values: list[Number]) -> Int64s:
    """Numbers or numeric strings to int64; None and what does not fit becomes UNKNOWN."""
    try:
        return np.array(values, dtype=np.int64)
    except (OverflowError, TypeError, ValueError):
        return np.array([_integer(v) for v in values], dtype=np.int64)


def _integer(value: Any) -> int:
    if isinstance(value, str):
        try:
            value = int(value)
        except ValueError:
            return UNKNOWN
    if isinstance(value, float):
        value = int(value) if np.isfinite(value) else UNKNOWN
    return value if isinstance(value, int) and abs(value) < 2**63 else UNKNOWN


def _float(value: Number) -> float:
    try:
        return float(value) if value is not None else float("nan")
    except ValueError:
        return float("nan")
