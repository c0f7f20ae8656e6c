"""The host's side of a Kineto trace that we recorded: events by thread, and its steps."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path

import msgspec
import numpy as np
from msgspec import field

from traceprobe.ingest.detect_format import detect_format
from traceprobe.ingest.kineto.categories import CALLS, OPERATORS, RANGES
from traceprobe.ingest.kineto.chunks import BlockReader, EventSplitter, read_ahead
from traceprobe.ingest.kineto.values import floats, nanoseconds
from traceprobe.model.codes import Int64s
from traceprobe.model.step_names import OF_PROFILER, counts_the_loop

SHAPES = ("Input Dims", "Input type", "Concrete Inputs")
"""What PyTorch calls the shapes, the types and the values of an operator's inputs."""
_ANCHORS = {*OPERATORS, *CALLS, *RANGES}
_STEP = re.compile(OF_PROFILER)
_NUMBER = re.compile(r"\b\d+\b")
_TS, _DUR = attrgetter("ts"), attrgetter("dur")


class _Args(msgspec.Struct, gc=False):
    dims: msgspec.Raw = field(default=msgspec.Raw(), name=SHAPES[0])
    types: msgspec.Raw = field(default=msgspec.Raw(), name=SHAPES[1])
    values: msgspec.Raw = field(default=msgspec.Raw(), name=SHAPES[2])

    def text(self) -> bytes:
        """The members of an object that say so, as JSON; empty where nothing is known."""
        found = zip(SHAPES, (self.dims, self.types, self.values), strict=True)
        return b", ".join(b'"' + name.encode() + b'": ' + bytes(raw) for name, raw in found if raw)


class _Row(msgspec.Struct, gc=False):
    ph: str = ""
    cat: str | None = None
    name: int | float | str | None = None
    pid: int | str | None = None
    tid: int | str | None = None
    ts: float = 0.0
    dur: float = 0.0
    args: _Args | None = None


@dataclass(frozen=True)
class HostEvents:
    """Operators, calls and ranges of the host, in the order of their begins.

    Args:
        t0, t1: ns on the file's own clock. thread: number that the system gave it.
        name: what each is, as a number that `names` shares between traces.
        row: place in the file. operator: whether it is one.
        steps: begins and ends of the profiler's steps, (n, 2), and the thread that made them.
        shapes: those of operators, by place in the file.
        pid: of the steps.
    """

    t0: Int64s
    t1: Int64s
    thread: Int64s
    name: Int64s
    row: Int64s
    operator: np.typing.NDArray[np.bool_]
    steps: Int64s
    step_thread: int
    pid: int
    shapes: dict[int, bytes]


def event_chunks(path: Path, splitter: EventSplitter) -> Iterator[bytes]:
    """The events of a trace in pieces, as `EventSplitter` has them."""
    reader = BlockReader(path, detect_format(path).gzipped, lambda done, total: None)
    return splitter.chunks(read_ahead(reader.blocks()))


def read_host_events(path: Path, names: dict[str, int]) -> HostEvents:
    """The events of one trace.

    Args:
        names: numbers by name; new ones are added.

    Raises:
        ValueError: it has no steps of the profiler, or steps on several threads.
        msgspec.MsgspecError: it is not what PyTorch writes.
    """
    parts: list[tuple[Int64s, ...]] = []
    steps: list[tuple[int, int]] = []
    makers: set[tuple[int, int]] = set()
    shapes: dict[int, bytes] = {}
    known: dict[bytes, bytes] = {}
    first = 0
    decoder = msgspec.json.Decoder(list[_Row])
    for chunk in event_chunks(path, EventSplitter()):
        rows = decoder.decode(b"[" + chunk + b"]")
        picked = [n for n, row in enumerate(rows) if row.ph == "X" and row.cat in _ANCHORS]
        wanted = [rows[n] for n in picked]
        t0 = nanoseconds(floats(wanted, _TS))
        t1 = t0 + nanoseconds(floats(wanted, _DUR))
        thread = np.array([r.tid if isinstance(r.tid, int) else -1 for r in wanted], dtype=np.int64)
        name = np.array([names.setdefault(_kind(r), len(names)) for r in wanted], dtype=np.int64)
        operator = np.array([r.cat in OPERATORS for r in wanted], dtype=np.int64)
        for n, row in zip(picked, wanted, strict=True):
            if row.args is not None and (text := row.args.text()):
                shapes[first + n] = known.setdefault(text, text)
        for at, row in enumerate(wanted):
            if row.cat in RANGES and _STEP.fullmatch(str(row.name)):
                steps.append((int(t0[at]), int(t1[at])))
                makers.add((int(row.pid or 0), int(row.tid or 0)))
        parts.append((t0, t1, thread, name, np.array(picked, dtype=np.int64) + first, operator))
        first += len(rows)
    if len(makers) != 1:
        raise ValueError("no thread of the trace made its steps")
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    order = np.lexsort((-columns[1], columns[0]))
    t0, t1, thread, name, row_number, operator = (column[order] for column in columns)
    pid, maker = makers.pop()
    return HostEvents(
        *(t0, t1, thread, name, row_number, operator.astype(np.bool_)),
        steps=np.array(sorted(steps), dtype=np.int64),
        step_thread=maker,
        pid=pid,
        shapes=shapes,
    )


def _kind(row: _Row) -> str:
    """What an event is, the same in every step; empty for what counts the loop."""
    name = str(row.name)
    if row.cat in CALLS:
        return name
    # PyTorch calls one thing an operator or a range, as shapes are recorded or not.
    return "" if counts_the_loop(name) else f"range {_NUMBER.sub('#', name)}"
