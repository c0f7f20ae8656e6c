"""Whole iterations with every operation, packed: what the page draws.

Times are non-negative integers of ns, so that a column is a few bytes a row: `start` counts from
the row before it (the first from the window's start), and all else is small.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec
import numpy as np

from traceprobe.model.taxonomy import BUSY_LABELS, HostKind, ThreadRole, WindowKind
from traceprobe.records.packed import Table
from traceprobe.records.texts import Name, PhaseName, Word

OPS = ("start", "duration", "stream", "class", "name", "launch", "thread", "bytes", "shared")
"""Columns of `Window.ops`."""
PARTS = ("duration", "class")
"""Columns of `Window.parts`."""
HOST = ("start", "duration", "thread", "kind", "name")
"""Columns of `Window.host`."""


class Thread(msgspec.Struct, frozen=True, kw_only=True):
    """A thread of the host that has a lane."""

    role: ThreadRole
    name: Name


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """One iteration, or a part of a capture without any; ns after the time zero of the input.

    Args:
        ops: all GPU operations in it, clipped to it, in the order of their start, as `OPS`.
            `stream`, `class` and `name` are indices into the picture's lists. `launch` is 0
            where the call that launched it is unknown, else 1 + ns from its start to that of the
            operation; `thread` 0 or 1 + index of the thread that called. `bytes` is 0 where
            unknown, `shared` where no other rank has it, else a number that it has on all of them.
        parts: the partition: stretches that tile the window, each of one class, as `PARTS`.
        host: ranges, operators and calls of the threads, as `HOST`; those that enclose others
            come first.
        left_out: rows of the host that are missing because there are too many; the shortest.
    """

    why: WindowKind
    iteration: int | None
    start_ns: int
    duration_ns: int
    ops: Table
    parts: Table
    host: Table
    left_out: int = 0


class Picture(msgspec.Struct, frozen=True, kw_only=True):
    """The windows of one device, and what the columns of their tables are indices of.

    Args:
        classes: of the partition. streams: as the trace numbers them. names: of kernels, copies,
            ranges, operators and calls. kinds: of the rows of the host.
        clock_ns: what to add to the times of this rank so that they are on the clock of the
            run; None where that is not known, as nothing ends on several ranks at once.
    """

    classes: list[Word]
    streams: list[int]
    threads: list[Thread]
    names: list[PhaseName]
    kinds: list[HostKind]
    windows: list[Window]
    clock_ns: int | None = None

    def problems(self) -> Iterator[str]:
        """What it contradicts itself in."""
        if set(self.classes) - set(BUSY_LABELS):
            yield "a picture has unknown classes"
        limits = {
            "stream": len(self.streams),
            "class": len(self.classes),
            "name": len(self.names),
            "thread": len(self.threads),
            "kind": len(self.kinds),
        }
        for window in self.windows:
            if window.duration_ns <= 0:
                yield "a window of a picture is empty"
            # 0 stands for no thread in the operations.
            of_ops = {**limits, "thread": limits["thread"] + 1}
            yield from _rows_problems(window.ops, OPS, of_ops, window.duration_ns)
            yield from _rows_problems(window.parts, PARTS, limits, window.duration_ns)
            yield from _rows_problems(window.host, HOST, limits, window.duration_ns)


def _rows_problems(
    table: Table, names: Sequence[str], limits: Mapping[str, int], length: int
) -> Iterator[str]:
    """What a table contradicts in its window, which is `length` ns long.

    Args:
        limits: by column what its indices are below.
    """
    if sorted(table.widths) != sorted(names):
        yield "a table of a picture has other columns"
        return
    try:
        columns = table.columns()
    except ValueError as error:
        yield str(error)
        return
    for column, limit in limits.items():
        if column in columns and int(columns[column].max(initial=-1)) >= limit:
            yield f"a {column} of a picture is none of its list"
    # As floats, which do not overflow whatever the file says.
    duration = columns["duration"].astype(np.float64)
    if "start" in columns:
        fits = (columns["start"].cumsum(dtype=np.float64) + duration).max(initial=0.0) <= length
    else:  # the partition fills its window
        fits = duration.sum() == length
    if not fits:
        yield "rows of a picture do not fit into their window"
