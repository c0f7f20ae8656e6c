"""The events of a chunk as int64 columns, so that no event outlives its chunk.

A chunk needs no other one: names, operands and ids that are texts are numbered within it, and
`traceprobe.ingest.kineto.columns` puts chunks together. So any process can take any chunk.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from operator import attrgetter
from pickle import PickleBuffer
from typing import Any, NamedTuple, SupportsIndex

import msgspec
import numpy as np
from msgspec import field

from traceprobe.ingest.collective_metadata import collective_operation, group_id, message_bytes
from traceprobe.ingest.joins import Table, keep_rows, narrow_table
from traceprobe.ingest.kineto.categories import (
    BLAME,
    CALLS,
    GPU,
    OPERATORS,
    OVERHEAD,
    RANGES,
    STACKS,
    WORK_OF,
)
from traceprobe.ingest.kineto.decode import Decoder, garbage_collection_paused
from traceprobe.ingest.kineto.duplicate_keys import count_duplicate_keys
from traceprobe.ingest.kineto.event import Args, Event, Number
from traceprobe.ingest.kineto.frames import function_of, own_frame
from traceprobe.ingest.kineto.hardware_counters import (
    CATEGORY,
    gpu_number,
    metric_number,
    plausible_percent,
)
from traceprobe.ingest.kineto.occupancy import Occupancy, percent
from traceprobe.ingest.kineto.operands import OperandTexts
from traceprobe.ingest.kineto.sync_notes import SYNC_NOTES, sync_notes
from traceprobe.ingest.kineto.values import floats, in_range, integers, nanoseconds, times_or_zero
from traceprobe.ingest.plausibility import grid_number
from traceprobe.ingest.untrusted_values import (
    LONGEST_NS,
    NAME_LENGTH,
    bounded_text,
    digits,
    integer,
    rank_number,
)
from traceprobe.model.annotation import ADDED, VIEW
from traceprobe.model.codes import MODULE, UNKNOWN, Int64s

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
MOST_NAMED = 100
"""Processes whose names are looked at."""
_LISTED = 30
"""Ranks that PyTorch writes of a group before it writes dots."""
MISSING_TIME = np.iinfo(np.int64).min
UNFINISHED = MISSING_TIME + 1
TEXTUAL = np.iinfo(np.int64).min
"""From here on upwards, where no file has an id, are the numbers of names that stand for one."""


class NameNumbers(dict[Any, int]):
    """Text to its number in order of first appearance; a name that is no text is kept as it is.

    Of a long one the beginning is kept: what shares it has one number.
    """

    def __missing__(self, name: Any) -> int:
        if isinstance(name, str) and len(name) > NAME_LENGTH:
            return self[name[:NAME_LENGTH]]
        self[name] = number = len(self)
        return number


class Chunk(NamedTuple):
    """Whole events, comma-separated and without the array's brackets.

    Args:
        streamed: whether the file is of the exporter in Python, which may write a key twice.
    """

    text: bytes
    streamed: bool

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[type[Chunk], tuple[Any, bool]]:
        """The text may travel by itself: it is long."""
        return Chunk, (PickleBuffer(self.text), self.streamed)


def columns_of_chunk(chunk: Chunk) -> ChunkColumns:
    """The columns of a chunk."""
    with garbage_collection_paused():
        found = _decoder().decode(chunk.text)
        twice = count_duplicate_keys(chunk.text) if chunk.streamed else 0
        columns = ChunkColumns(repaired=found.repaired, lost=found.lost, twice=found.twice + twice)
        columns.add(found.events)
    return columns


@cache
def _decoder() -> Decoder[Event]:
    return Decoder(Event)


class ChunkColumns(msgspec.Struct):
    """Columns of a chunk's events by group of categories, a table for each of its categories.

    Args:
        names: text to number. parts, flows: group to tables with times in ns as the file has them.
        process_names: those that were found first. ranks: (process, rank) that collectives note.
        texts: the operands of operators, by number.
        fractional: some time has a fraction of a µs. copy_kinds: copies name theirs.
        made_of: the files that this one was made of by `traceprobe annotate`, if it cannot be
            analysed for that.
        unplaced: events without a time that can be. repaired, lost, twice: as in `Salvage`.
    """

    names: NameNumbers = field(default_factory=NameNumbers)
    parts: dict[str, list[Table]] = field(default_factory=dict)
    flows: dict[str, list[Table]] = field(default_factory=dict)
    thread_names: dict[tuple[int, int], str] = field(default_factory=dict)
    process_names: dict[str, None] = field(default_factory=dict)
    categories: set[str] = field(default_factory=set)
    ranks: set[tuple[int, int]] = field(default_factory=set)
    occupancy: Occupancy = field(default_factory=Occupancy)
    texts: OperandTexts = field(default_factory=OperandTexts)
    copy_kinds: bool = False
    fractional: bool = False
    made_of: str | None = None
    events: int = 0
    unplaced: int = 0
    repaired: int = 0
    lost: int = 0
    twice: int = 0

    def add(self, events: Sequence[Event]) -> None:
        """Take events apart."""
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
        stacks, noted = _of(buckets, STACKS), _of(buckets, BLAME)
        self._put("modules", _modules([*stacks, *noted]), self._host)
        self._put("frames", self._own_frames(noted), self._host)
        self._put("frames", self._own_frames(stacks), self._function)
        self._put("samples", [e for e in buckets.get(CATEGORY, ()) if e.ph == "C"], self._sample)
        self._uncategorised(buckets.get(None, []))
        for phase in ("s", "f"):
            arrows = [e for e in buckets.get("cpu_to_cuda", []) if e.ph == phase]
            if arrows:
                self.flows.setdefault(phase, []).append(self._arrow(arrows))

    def _put(self, group: str, events: list[Event], columns: Any) -> None:
        if events:
            table = columns(events)
            keep = table["t0"] != MISSING_TIME
            self.unplaced += int(np.count_nonzero(~keep))
            self.parts.setdefault(group, []).append(narrow_table(keep_rows(table, keep)))

    def _times(self, events: list[Event]) -> Table:
        ts, dur = floats(events, _TS), floats(events, _DUR)
        usable = in_range(ts) & (np.abs(dur) <= LONGEST_NS / 1000)
        self.fractional = self.fractional or bool(np.any(ts[usable] % 1.0))
        t0 = np.where(usable, nanoseconds(np.where(usable, ts, 0.0)), MISSING_TIME)
        length = nanoseconds(np.where(usable, dur, 0.0))
        return {"t0": t0, "t1": np.where(length < 0, UNFINISHED, t0 + length)}

    def _host(self, events: list[Event]) -> Table:
        return {
            **self._times(events),
            "name": self._names(map(_NAME, events), len(events)),
            "pid": _pids(events),
            "thread": self._ids(events),
        }

    def _function(self, events: list[Event]) -> Table:
        return {
            **self._times(events),
            "name": self._names((function_of(str(event.name)) for event in events), len(events)),
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
            "t0": np.where(in_range(ts), nanoseconds(times_or_zero(ts)), MISSING_TIME),
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
                self.ranks.add((int(host["pid"][row]), rank))
        return {
            **host,
            "external": _external(args),
            "sequence": integers(args, _SEQUENCE),
            "forward_thread": integers(args, _FORWARD_THREAD),
            "operands": self.texts.numbers(map(_NAME, events), args),
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
        category = map(WORK_OF.__getitem__, map(_CATEGORY, events))
        times = self._times(events)
        duration = np.where(times["t0"] == MISSING_TIME, 0, times["t1"] - times["t0"])
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
            if event.name == "process_name" and len(self.process_names) < MOST_NAMED:
                self.process_names[bounded_text(event.args.name)] = None
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
        own = {n for n in {e.name for e in frames} if isinstance(n, str) and own_frame(n)}
        return [e for e in frames if e.name in own]

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
        if numbered is not None:
            return numbered
        return TEXTUAL + self.names[name]


def rank_in_world(noted: Args) -> int | None:
    """The rank of the process in the group of all; of another group it would be a place in that."""
    rank, size = rank_number(noted.rank), rank_number(noted.group_size)
    everyone = str(list(range(size))) if size and size <= _LISTED else None
    if rank is None or (bounded_text(noted.group) != "0" and noted.members != everyone):
        return None
    return rank


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
