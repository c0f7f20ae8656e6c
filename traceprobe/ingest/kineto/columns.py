"""Decoded Chrome events to int64 columns, chunk by chunk, so that no event outlives its chunk."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import numpy as np

from traceprobe.ingest.collective_metadata import collective_operation, group_id, message_bytes
from traceprobe.ingest.joins import Table, concatenate_tables, keep_rows, narrow_table
from traceprobe.ingest.kineto.event import Args, Event, Number
from traceprobe.ingest.kineto.frames import own_frame
from traceprobe.ingest.kineto.gpu_samples import (
    CATEGORY,
    gpu_number,
    metric_number,
    plausible_percent,
)
from traceprobe.ingest.kineto.occupancy import Occupancy, percent
from traceprobe.ingest.kineto.operands import OperandTable
from traceprobe.ingest.kineto.sync_notes import SYNC_NOTES, sync_notes
from traceprobe.ingest.kineto.values import floats, in_range, integers, nanoseconds, times_or_zero
from traceprobe.ingest.plausibility import grid_number
from traceprobe.ingest.untrusted_values import (
    FARTHEST_NS,
    LONGEST_NS,
    NAME_LENGTH,
    bounded_text,
    digits,
    integer,
    rank_number,
)
from traceprobe.model.annotation import ADDED, VIEW
from traceprobe.model.events import MODULE, UNKNOWN, Int64s, Quality

GPU = ("kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset")
CALLS = (
    *("cuda_runtime", "cuda_driver", "Runtime", "xpu_runtime", "xpu_driver", "mtia_runtime"),
    *("privateuse1_runtime", "privateuse1_driver"),
)
OPERATORS = ("cpu_op", "Operator")
RANGES = ("user_annotation", "User")
OVERHEAD = ("overhead",)
STACKS = ("python_function", "Python")
BLAME = ("blame",)
"""Frames and modules that our own recordings borrow from a second capture."""
MEMORY = ("cpu_instant_event",)

_PH, _CATEGORY, _NAME, _ARGS = map(attrgetter, ("ph", "cat", "name", "args"))
_TS, _DUR, _PID, _TID = map(attrgetter, ("ts", "dur", "pid", "tid"))
# Of the arguments; `_arguments` collects them once, which is faster than to look them up each time.
_CORRELATION, _STREAM, _DEVICE, _IN_DEVICE, _BYTES = map(
    attrgetter, ("correlation", "stream", "device", "in_device", "bytes")
)
_EXTERNAL, _EXTERNAL_LOWER = map(attrgetter, ("external_id", "external_id_lower"))
_SEQUENCE, _FORWARD_THREAD = map(attrgetter, ("sequence", "forward_thread"))
_GRAPH, _GRAPH_NODE = map(attrgetter, ("graph", "graph_node"))
_COPY_KIND, _COLLECTIVE = map(attrgetter, ("copy_kind", "collective"))
_BLOCKS, _OCCUPANCY, _SAMPLE = map(attrgetter, ("blocks", "occupancy", "sample"))
_NONE = Args()
NOTES_OF_COLLECTIVES = "record_param_comms"
_MOST_PROCESSES = 100
"""Processes whose names are looked at."""
_LISTED = 30
"""Ranks that PyTorch writes of a group before it writes dots."""
WORK = ("kernel", "memcpy", "memset")
"""What a category of `GPU` means; the column `category` holds indices into this."""
_WORK_OF = {category: WORK.index(category.lower().removeprefix("gpu_")) for category in GPU}
_MISSING = np.iinfo(np.int64).min
_UNFINISHED = _MISSING + 1


class _Index(dict[Any, int]):
    """Text to its number in order of first appearance; a name that is no text is kept as it is.

    Of a long one the beginning is kept: what shares it has one number.
    """

    def __missing__(self, name: Any) -> int:
        if isinstance(name, str) and len(name) > NAME_LENGTH:
            return self[name[:NAME_LENGTH]]
        self[name] = number = len(self)
        return number


@dataclass
class EventColumns:
    """Accumulates events as lists of small arrays, one list per group of categories.

    Args:
        made_of: the files that this one was made of by `traceprobe annotate`, if it cannot be
            analysed for that.
    """

    names: _Index = field(default_factory=_Index)
    parts: dict[str, list[Table]] = field(default_factory=dict)
    thread_names: dict[tuple[int, int], str] = field(default_factory=dict)
    process_names: set[str] = field(default_factory=set)
    categories: set[str] = field(default_factory=set)
    flows: dict[str, list[Table]] = field(default_factory=dict)
    ranks: defaultdict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    occupancy: Occupancy = field(default_factory=Occupancy)
    operands: OperandTable = field(default_factory=OperandTable)
    own_frames: dict[str, bool] = field(default_factory=dict)
    copy_kinds: bool = False
    fractional: bool = False
    made_of: str | None = None
    events: int = 0
    lost: int = 0

    def add(self, events: Sequence[Event]) -> None:
        """Take one chunk's events apart."""
        buckets: defaultdict[str | None, list[Event]] = defaultdict(list)
        for event in events:
            buckets[event.cat].append(event)
        self.events += len(events) - len(buckets.pop(ADDED, ()))
        for event in buckets.pop(VIEW, ()):
            self.made_of = bounded_text(event.name)
        self.categories.update(category for category in buckets if category)
        self._put("gpu", _of(buckets, GPU), self._gpu)
        self._put("calls", _of(buckets, CALLS), self._call)
        self._put("syncs", _of(buckets, SYNC_NOTES), self._sync)
        self._put("operators", _of(buckets, OPERATORS), self._operator)
        self._put("ranges", _of(buckets, RANGES), self._host)
        self._put("overhead", _of(buckets, OVERHEAD), self._host)
        stacks = _of(buckets, STACKS + BLAME)
        self._put("modules", _modules(stacks), self._host)
        self._put("frames", self._own_frames(stacks), self._host)
        self._put("samples", [e for e in buckets.get(CATEGORY, ()) if e.ph == "C"], self._sample)
        self._uncategorised(buckets.get(None, []))
        for phase in ("s", "f"):
            arrows = [e for e in buckets.get("cpu_to_cuda", []) if e.ph == phase]
            if arrows:
                self.flows.setdefault(phase, []).append(self._arrow(arrows))

    def _put(self, group: str, events: list[Event], columns: Any) -> None:
        if events:
            table = columns(events)
            keep = table["t0"] != _MISSING
            self.lost += int(np.count_nonzero(~keep))
            self.parts.setdefault(group, []).append(narrow_table(keep_rows(table, keep)))

    def _times(self, events: list[Event]) -> Table:
        ts, dur = floats(events, _TS), floats(events, _DUR)
        usable = in_range(ts) & (np.abs(dur) <= LONGEST_NS / 1000)
        self.fractional = self.fractional or bool(np.any(ts[usable] % 1.0))
        t0 = np.where(usable, nanoseconds(np.where(usable, ts, 0.0)), _MISSING)
        length = nanoseconds(np.where(usable, dur, 0.0))
        return {"t0": t0, "t1": np.where(length < 0, _UNFINISHED, t0 + length)}

    def _host(self, events: list[Event]) -> Table:
        return {
            **self._times(events),
            "name": self._names(map(_NAME, events), len(events)),
            "pid": _pids(events),
            "thread": self._ids(events),
        }

    def _call(self, events: list[Event]) -> Table:
        return {**self._host(events), "correlation": integers(_arguments(events), _CORRELATION)}

    def _sync(self, events: list[Event]) -> Table:
        return {**self._times(events), **sync_notes(events, _arguments(events), _pids(events))}

    def _sample(self, events: list[Event]) -> Table:
        """Those of a known counter and GPU, with a value that can be a percent."""
        metrics = {name: metric_number(name) for name in set(map(_NAME, events))}
        gpus = {process: gpu_number(process) for process in set(map(_PID, events))}
        ts = floats(events, _TS)
        table = {
            "t0": np.where(in_range(ts), nanoseconds(times_or_zero(ts)), _MISSING),
            "gpu": np.array([gpus[event.pid] for event in events], dtype=np.int64),
            "metric": np.array([metrics[event.name] for event in events], dtype=np.int64),
            "counter": self._names(map(_NAME, events), len(events)),
            "percent": plausible_percent(floats(_arguments(events), _SAMPLE)),
        }
        known = [table[column] != UNKNOWN for column in ("gpu", "metric", "percent")]
        return keep_rows(table, np.logical_and.reduce(known))

    def _operator(self, events: list[Event]) -> Table:
        args, host = _arguments(events), self._host(events)
        for row in np.flatnonzero(host["name"] == self.names.get(NOTES_OF_COLLECTIVES, UNKNOWN)):
            rank = rank_in_world(args[row])
            if rank is not None:
                self.ranks[int(host["pid"][row])].add(rank)
        return {
            **host,
            "external": _external(args),
            "sequence": integers(args, _SEQUENCE),
            "forward_thread": integers(args, _FORWARD_THREAD),
            "operands": self.operands.numbers(map(_NAME, events), args),
        }

    def _gpu(self, events: list[Event]) -> Table:
        args = _arguments(events)
        named = any(map(_COPY_KIND, args))
        self.copy_kinds |= named
        device, stream = integers(args, _DEVICE), integers(args, _STREAM)
        if (device == UNKNOWN).any():  # peer-to-peer copies have two ends
            device = np.where(device == UNKNOWN, integers(args, _IN_DEVICE), device)
        if (device == UNKNOWN).any():
            device = np.where(device == UNKNOWN, _pids(events), device)
        if (stream == UNKNOWN).any():
            stream = np.where(stream == UNKNOWN, self._ids(events), stream)
        category = map(_WORK_OF.__getitem__, map(_CATEGORY, events))
        times = self._times(events)
        duration = np.where(times["t0"] == _MISSING, 0, times["t1"] - times["t0"])
        blocks, occupancy = floats(args, _BLOCKS), floats(args, _OCCUPANCY)
        self.occupancy.add(duration, blocks, occupancy)
        return {
            **times,
            "name": self._names(map(_copy_name if named else _NAME, events), len(events)),
            "device": device,
            "stream": stream,
            "category": np.fromiter(category, dtype=np.int64, count=len(events)),
            "correlation": integers(args, _CORRELATION),
            "external": _external(args),
            "grid": grid_number(blocks * 1000),
            "occupancy": percent(occupancy),
            "graph": np.maximum(integers(args, _GRAPH), integers(args, _GRAPH_NODE)),
            **_messages(events, args),
        }

    def _uncategorised(self, events: list[Event]) -> None:
        for event in events:
            if event.ph != "M" or event.args is None:
                continue
            if event.name == "process_name" and len(self.process_names) < _MOST_PROCESSES:
                self.process_names.add(bounded_text(event.args.name))
            elif event.name == "thread_name":
                key = (integer(event.pid), integer(event.tid))
                self.thread_names[key] = bounded_text(event.args.name)
        legacy = [e for e in events if e.ph == "X"]
        on_gpu = [str(e.pid).startswith("CUDA") for e in legacy]
        gpu = [e for e, g in zip(legacy, on_gpu, strict=True) if g]
        host = [e for e, g in zip(legacy, on_gpu, strict=True) if not g]
        self._put("legacy_gpu", gpu, self._host)
        self._put("operators", host, self._operator)

    def _arrow(self, events: list[Event]) -> Table:
        return {
            "t0": nanoseconds(times_or_zero(floats(events, _TS))),
            "thread": self._ids(events),
            "id": integers(events, attrgetter("id")),
        }

    def _own_frames(self, frames: list[Event]) -> list[Event]:
        """Those of the program's own code."""
        own = self.own_frames
        for name in {e.name for e in frames if isinstance(e.name, str)}.difference(own):
            own[name] = own_frame(name)
        return [e for e in frames if isinstance(e.name, str) and own[e.name]]

    def _names(self, values: Iterable[Any], count: int) -> Int64s:
        return np.fromiter(map(self.names.__getitem__, values), dtype=np.int64, count=count)

    def _ids(self, events: list[Event]) -> Int64s:
        """Thread and stream ids; "stream 7" is 7, other text gets a number of its own."""
        try:
            return np.fromiter(map(_TID, events), dtype=np.int64, count=len(events))
        except (TypeError, ValueError, OverflowError):
            return np.array([self._id(e.tid) for e in events], dtype=np.int64)

    def _id(self, value: Number) -> int:
        number = integer(value)
        if number != UNKNOWN or value is None:
            return number
        name = bounded_text(value, NAME_LENGTH)
        numbered = digits(name)
        return -2 - self.names[name] if numbered is None else numbered


def rank_in_world(noted: Args) -> int | None:
    """The rank of the process in the group of all; of another group it would be a place in that."""
    rank, size = rank_number(noted.rank), rank_number(noted.group_size)
    everyone = str(list(range(size))) if size and size <= _LISTED else None
    if rank is None or (bounded_text(noted.group) != "0" and noted.members != everyone):
        return None
    return rank


def base_ns(metadata: Mapping[str, Any]) -> int:
    """What the file's time stamps count from, on the trace's clock; 0 where it is no such time."""
    base = integer(metadata.get("baseTimeNanoseconds"))
    return 0 if base == UNKNOWN or abs(base) > FARTHEST_NS else base


def collect_tables(
    columns: EventColumns, metadata: Mapping[str, Any], quality: Quality
) -> dict[str, Table]:
    """Columns of the whole trace by group, every time in ns on the trace's absolute clock.

    Returns:
        Group name ("gpu", "calls", "syncs", "operators", "ranges", "overhead", "modules", "frames",
        "samples", "legacy_gpu", "flow_s", "flow_f") to columns. A host event that never ended runs
        to the end of the capture; a GPU event with a negative duration or at time 0 is lost.
    """
    base = base_ns(metadata)
    if metadata.get("baseTimeNanoseconds") not in (None, base, str(base)):
        quality.warn(
            "implausible-clock",
            "The file says that its clock began at what is no time; times count from 0 instead.",
        )
    quality.events_lost += columns.lost
    groups = {**columns.parts, **{f"flow_{k}": v for k, v in columns.flows.items()}}
    columns.parts, columns.flows = {}, {}
    tables = {group: concatenate_tables(groups.pop(group)) for group in list(groups)}
    for group in ("gpu", "legacy_gpu"):
        if group in tables:
            table = tables[group]
            keep = (table["t1"] >= table["t0"]) & (table["t0"] != 0)
            quality.events_lost += int(np.count_nonzero(~keep))
            tables[group] = keep_rows(table, keep)
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
            table["t1"] += base
        table["t0"] += base
    return {group: table for group, table in tables.items() if len(table["t0"])}


def _of(buckets: Mapping[str | None, list[Event]], categories: Sequence[str]) -> list[Event]:
    found = [buckets[c] for c in categories if c in buckets]
    events = found[0] if len(found) == 1 else [event for bucket in found for event in bucket]
    if set(map(_PH, events)) <= {"X"}:
        return events
    return [event for event in events if event.ph == "X"]


def _modules(frames: list[Event]) -> list[Event]:
    """The calls of modules among frames of Python, of which there are many more."""
    return [e for e in frames if isinstance(e.name, str) and e.name.startswith(MODULE)]


def _arguments(events: list[Event]) -> list[Args]:
    """The arguments of each event; of one without any, those that say nothing."""
    args = list(map(_ARGS, events))
    return [found or _NONE for found in args] if None in args else args


def _pids(events: list[Event]) -> Int64s:
    """Process ids; dialect A writes "CPU functions", which is one process without a number."""
    pids = integers(events, _PID)
    return np.where(pids == UNKNOWN, 0, pids)


def _copy_name(event: Event) -> str:
    """The name that other dialects give a copy: `Memcpy HtoD (Pinned -> Device)`."""
    args = event.args
    if args is None or not args.copy_kind:
        return str(event.name)
    return f"{event.name} {args.copy_kind} ({args.source_kind} -> {args.target_kind})"


def _messages(events: list[Event], args: list[Args]) -> Table:
    """Sizes of copies; and what the profiler notes of a collective, which few events have."""
    unknown = np.full(len(events), UNKNOWN, dtype=np.int64)
    table = {"bytes": integers(args, _BYTES)}
    table |= {c: unknown.copy() for c in ("operation", "group", "group_size")}
    if not any(map(_COLLECTIVE, args)):
        return table
    for row in [i for i, noted in enumerate(map(_COLLECTIVE, args)) if noted]:
        noted = args[row]
        said, name = (bounded_text(t, NAME_LENGTH) for t in (noted.collective, events[row].name))
        kind = collective_operation(said) or collective_operation(name)
        sent, received = integer(noted.elements_in), integer(noted.elements_out)
        table["bytes"][row] = message_bytes(kind, sent, received, noted.dtype)
        table["operation"][row] = int(kind)
        table["group"][row] = group_id(noted.group, noted.members)
        size = rank_number(noted.group_size)
        table["group_size"][row] = UNKNOWN if size is None else size
    return table


def _external(args: list[Args]) -> Int64s:
    external = integers(args, _EXTERNAL)
    if (external == UNKNOWN).all():  # dialect B spells it in lower case
        return integers(args, _EXTERNAL_LOWER)
    return external
