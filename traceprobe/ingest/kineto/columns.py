"""The columns of a trace, put together of those of its chunks in the order of the file."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import numpy as np

from traceprobe.ingest.joins import Table, concatenate_tables, keep_rows
from traceprobe.ingest.kineto.chunk_columns import (
    MOST_NAMED,
    TEXTUAL,
    UNFINISHED,
    ChunkColumns,
)
from traceprobe.ingest.kineto.occupancy import Occupancy
from traceprobe.ingest.kineto.operands import OperandTable
from traceprobe.ingest.untrusted_values import FARTHEST_NS, integer
from traceprobe.model.codes import UNKNOWN, Ints
from traceprobe.model.numbering import narrow
from traceprobe.model.quality import Quality

_NAMES = ("name", "counter")
"""Columns of numbers of names."""
_IDS = ("thread", "stream")
"""Columns in which a text has a number: from -2 downwards that of its name in the trace."""


class EventColumns(msgspec.Struct):
    """Lists of small tables, one list per group of categories; names are numbered as they appear.

    Args:
        ranks: of each process. made_of, fractional, copy_kinds: as in `ChunkColumns`.
        unplaced: events without a time that can be.
    """

    names: dict[Any, int] = msgspec.field(default_factory=dict)
    parts: dict[str, list[Table]] = msgspec.field(default_factory=dict)
    thread_names: dict[tuple[int, int], str] = msgspec.field(default_factory=dict)
    process_names: set[str] = msgspec.field(default_factory=set)
    categories: set[str] = msgspec.field(default_factory=set)
    flows: dict[str, list[Table]] = msgspec.field(default_factory=dict)
    ranks: defaultdict[int, set[int]] = msgspec.field(default_factory=lambda: defaultdict(set))
    occupancy: Occupancy = msgspec.field(default_factory=Occupancy)
    operands: OperandTable = msgspec.field(default_factory=OperandTable)
    copy_kinds: bool = False
    fractional: bool = False
    made_of: str | None = None
    events: int = 0
    unplaced: int = 0

    def add(self, chunk: ChunkColumns) -> None:
        """Take the next chunk in; its tables become part of these columns."""
        renumbered = _Renumbering(
            names=self._numbers(chunk.names),
            operands=np.append(self.operands.numbers(chunk.texts.found), UNKNOWN),
        )
        for kept, new in ((self.parts, chunk.parts), (self.flows, chunk.flows)):
            for group, tables in new.items():
                kept.setdefault(group, []).extend(map(renumbered.table, tables))
        self.thread_names |= chunk.thread_names
        for name in chunk.process_names:
            if len(self.process_names) < MOST_NAMED:
                self.process_names.add(name)
        self.categories |= chunk.categories
        for process, rank in chunk.ranks:
            self.ranks[process].add(rank)
        self.occupancy.merge(chunk.occupancy)
        self.copy_kinds |= chunk.copy_kinds
        self.fractional |= chunk.fractional
        if chunk.made_of is not None:
            self.made_of = chunk.made_of
        self.events += chunk.events
        self.unplaced += chunk.unplaced

    def _numbers(self, names: Iterable[Any]) -> Ints:
        """Numbers of names in the trace, by their numbers in a chunk."""
        known = self.names
        return narrow(np.array([known.setdefault(n, len(known)) for n in names], dtype=np.int64))


class _Renumbering(msgspec.Struct, frozen=True):
    """From the numbers of a chunk to those of the trace.

    Args:
        names: by number in the chunk. operands: the same, and UNKNOWN for UNKNOWN.
    """

    names: Ints
    operands: Ints

    def table(self, table: Table) -> Table:
        """A table with the numbers of the trace."""
        return {column: self._column(column, values) for column, values in table.items()}

    def _column(self, column: str, values: Ints) -> Ints:
        if column in _NAMES:
            return self.names[values]
        if column == "operands":
            return narrow(self.operands[values])
        if column in _IDS and len(values) and values.min() < TEXTUAL + len(self.names):
            textual = values < TEXTUAL + len(self.names)
            number = np.where(textual, values - TEXTUAL, 0)
            return narrow(np.where(textual, -2 - self.names[number].astype(np.int64), values))
        return values


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
    quality.events_lost += columns.unplaced
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
            unfinished = table["t1"] == UNFINISHED
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
