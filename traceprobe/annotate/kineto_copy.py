"""The events of a Kineto trace: byte for byte as they are, or moved beside those of other ranks."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from decimal import Decimal
from operator import attrgetter
from pathlib import Path
from typing import Any

import msgspec
import polars as pl
from msgspec import Raw

from traceprobe.annotate.chrome_events import EVENTS, metadata
from traceprobe.annotate.counters import MOST_SAMPLES, Counter
from traceprobe.annotate.pids import Pid, Pids
from traceprobe.errors import DamagedInput
from traceprobe.ingest.detect_format import detect_format
from traceprobe.ingest.kineto.categories import MEMORY
from traceprobe.ingest.kineto.chunks import BlockReader, EventSplitter, read_ahead
from traceprobe.ingest.kineto.decode import garbage_collection_paused
from traceprobe.ingest.kineto.envelope import property_texts
from traceprobe.ingest.kineto.event import Number
from traceprobe.ingest.kineto.repair import salvage
from traceprobe.ingest.kineto.values import floats, integers, nanoseconds, times_or_zero
from traceprobe.ingest.limits import Limits
from traceprobe.ingest.untrusted_values import JSON_ERRORS, bounded_text
from traceprobe.model.annotation import ADDED
from traceprobe.model.codes import UNKNOWN

_ARROWS = ("s", "t", "f", "b", "n", "e")
"""Phases of events that find each other by their `id`, whatever their process is."""
_CUDA = 1
"""`Device Type` of memory on a GPU."""
_LARGEST_ID = 1 << 40
_MOST_DIGITS = 20
"""Of a time in µs; a longer one is none, and takes long to write."""


class _Args(msgspec.Struct, gc=False):
    name: Any = None
    allocated: Number = msgspec.field(default=UNKNOWN, name="Total Allocated")
    device_type: Number = msgspec.field(default=UNKNOWN, name="Device Type")
    device: Number = msgspec.field(default=UNKNOWN, name="Device Id")


class _Row(msgspec.Struct, gc=False):
    """The few fields that are looked at on the way."""

    ph: Any = ""
    cat: Any = None
    name: Any = ""
    pid: Number = None
    ts: Number = None
    args: _Args | None = None


_rows = msgspec.json.Decoder(list[_Row]).decode
_row = msgspec.json.Decoder(_Row).decode
_texts = msgspec.json.Decoder(list[Raw]).decode
_fields = msgspec.json.Decoder(list[dict[str, Raw]]).decode
_object = msgspec.json.Decoder(dict[str, Raw]).decode
_CATEGORY, _PID = attrgetter("cat"), attrgetter("pid")


class Moves(msgspec.Struct, frozen=True):
    """What is changed in the events of one input of several.

    Args:
        shift_ns: added to time stamps. id_shift: added to the ids by which arrows find their ends.
        label: what the names of processes end with in events that are added before theirs, for
            viewers keep the first name.
    """

    shift_ns: int
    id_shift: int
    label: str


class KinetoCopy(msgspec.Struct):
    """Reads an input once more: `chunks()` yields its events, and counts on the way.

    Args:
        sha256: of the input as it was analysed.
        moves: None leaves every event as it is.
        repaired, lost: damaged events, as in the quality of a report.
        digest: of the events as they stand in the input, one after the other with commas between.
        pids: number or name of each process, and what it became.
        memory: (ns on the file's own clock, bytes) by device.
    """

    source: Path
    sha256: str
    limits: Limits
    taken: Pids
    moves: Moves | None = None
    events: int = 0
    repaired: int = 0
    lost: int = 0
    digest: Any = msgspec.field(default_factory=hashlib.sha256)
    pids: dict[Pid, Pid] = msgspec.field(default_factory=dict)
    memory: dict[int, list[pl.DataFrame]] = msgspec.field(default_factory=dict)
    is_list: bool = False
    tail: dict[str, bytes] = msgspec.field(default_factory=dict)

    def chunks(self) -> Iterator[bytes]:
        """Events as JSON with commas between them, some at a time; what was added once is not.

        Raises:
            DamagedInput: the file was changed since it was analysed.
        """
        reader, split = self._reader(), EventSplitter()
        with garbage_collection_paused():
            for chunk in split.chunks(read_ahead(reader.blocks())):
                if text := self._copied(chunk):
                    yield text
        if reader.digest.hexdigest() != self.sha256:
            raise DamagedInput(
                f"{self.source.name}: was changed while it was read; annotate it again when it is "
                "complete"
            )
        self.tail = property_texts(b"{" + split.tail.strip().removeprefix(b","))

    def opening(self) -> bytes:
        """What the file begins with: a list like the input, or an object with its properties."""
        split = EventSplitter()
        next(split.chunks(self._reader().blocks()), None)
        self.is_list = split.bare_list and self.moves is None
        if self.is_list:
            return b"[\n"
        before = split.head.strip().removeprefix(b"\xef\xbb\xbf").rstrip(b", \t\r\n")
        head = {} if split.bare_list else property_texts(before + b"}")
        return b"{" + b"".join(_member(*each) + b",\n" for each in head.items()) + EVENTS

    def closing(self) -> bytes:
        """What ends it."""
        if self.is_list:
            return b"\n]\n"
        return b"\n]" + b"".join(b",\n" + _member(*each) for each in self.tail.items()) + b"}\n"

    def counters(self, device: int, base_ns: int) -> list[Counter]:
        """The memory of a GPU, where the profiler was asked for it.

        Args:
            base_ns: what the file's time stamps leave out of the trace's clock.
        """
        if device not in self.memory:
            return []
        noted = pl.concat(self.memory[device]).sort("time_ns", maintain_order=True)
        noted = noted.with_columns(pl.col("time_ns") + base_ns).unique(
            "time_ns", keep="last", maintain_order=True
        )
        return [Counter("memory allocated", "bytes", noted).thinned(MOST_SAMPLES)]

    def note(self) -> dict[str, Any]:
        """What is written about it: how many events of the input are there, and how to check that.

        `events_sha256` is of the events as they stand in the input, with commas between them.
        """
        found: dict[str, Any] = {
            "events": self.events,
            "events_sha256": self.digest.hexdigest(),
            "events_repaired": self.repaired,
            "events_lost": self.lost,
        }
        if self.moves is not None:
            changed = {str(pid): new for pid, new in self.pids.items() if new != pid}
            found |= {
                "shift_ns": self.moves.shift_ns,
                "id_shift": self.moves.id_shift,
                "pids": changed,
            }
        return found

    def _reader(self) -> BlockReader:
        gzipped = detect_format(self.source).gzipped
        return BlockReader(self.source, gzipped, lambda done, total: None, self.limits)

    def _copied(self, chunk: bytes) -> bytes:
        whole = b"[" + chunk.rstrip(b", \t\r\n") + b"]"
        try:
            rows, texts = _rows(whole), _texts(whole)
        except JSON_ERRORS:
            saved = salvage(chunk, _readable)
            self.repaired += saved.repaired
            self.lost += saved.lost
            rows, texts = [row for row, _ in saved.events], [Raw(text) for _, text in saved.events]
            whole = b"[" + b",\n".join(texts) + b"]"
        if ADDED in set(map(_CATEGORY, rows)):
            kept = [n for n, row in enumerate(rows) if row.cat != ADDED]
            rows, texts = [rows[n] for n in kept], [texts[n] for n in kept]
            whole = b"[" + b",\n".join(texts) + b"]"
        if not rows:
            return b""
        self.digest.update((b"," if self.events else b"") + b",".join(texts))
        self.events += len(rows)
        names = self._look_at(rows)
        copied = whole[1:-1] if self.moves is None else self._moved(whole, self.moves)
        return b",\n".join([*names, copied])

    def _look_at(self, rows: Sequence[_Row]) -> list[bytes]:
        """Take from events what has to be known of all; returns names of processes to be added."""
        for pid in set(map(_PID, rows)).difference(self.pids):
            if isinstance(pid, (int, str)):
                self.pids[pid] = self.taken.claim(pid)
        names = (
            []
            if self.moves is None
            else [
                metadata(self.pids[row.pid], None, "process_name", name=f"{said}{self.moves.label}")
                for row in rows
                if row.ph == "M" and row.name == "process_name" and isinstance(row.pid, (int, str))
                if (said := bounded_text(row.args.name if row.args else ""))
            ]
        )
        noted = [row for row in rows if row.cat in MEMORY and row.args is not None]
        if noted:
            self._remember(noted)
        return names

    def _remember(self, noted: Sequence[_Row]) -> None:
        """What the profiler noted of memory on GPUs."""
        args = [row.args for row in noted]
        columns = {
            "device": integers(args, attrgetter("device")),
            "type": integers(args, attrgetter("device_type")),
            "time_ns": nanoseconds(times_or_zero(floats(noted, attrgetter("ts")))),
            "value": integers(args, attrgetter("allocated")),
        }
        on_gpu = pl.DataFrame(columns).filter((pl.col("type") == _CUDA) & (pl.col("value") >= 0))
        for (device,), found in on_gpu.partition_by("device", as_dict=True).items():
            self.memory.setdefault(int(device), []).append(found.select("time_ns", "value"))

    def _moved(self, whole: bytes, moves: Moves) -> bytes:
        """The events with times, processes and ids of arrows that fit beside other inputs."""
        renamed = {
            msgspec.json.encode(pid): Raw(msgspec.json.encode(new))
            for pid, new in self.pids.items()
        }
        shift = Decimal(moves.shift_ns) / 1000
        try:
            events = _fields(whole)
        except UnicodeDecodeError:  # names of fields are read here, and nowhere else
            events = _fields(whole.decode("utf-8", "replace").encode())
        for event in events:
            if (pid := event.get("pid")) is not None:
                event["pid"] = renamed.get(bytes(pid), pid)
            if shift and (time := event.get("ts")) is not None:
                event["ts"] = _later(time, shift)
            if "id" in event and _phase(event) in _ARROWS:
                event["id"] = _renumbered(event["id"], moves.id_shift)
        return msgspec.json.encode(events)[1:-1]


def _member(key: str, value: bytes) -> bytes:
    return msgspec.json.encode(key) + b": " + value


def _readable(text: bytes) -> tuple[_Row, bytes]:
    """An event, whatever its fields are, and its text."""
    _object(text)
    try:
        return _row(text), text
    except JSON_ERRORS:
        return _Row(), text


def _phase(event: dict[str, Raw]) -> str:
    return bytes(event.get("ph", Raw(b""))).strip(b'"').decode("ascii", "replace")


def _later(time: Raw, shift: Decimal) -> Raw:
    """A time stamp in µs plus a shift, exactly; what is no number stays."""
    try:
        found = Decimal(bytes(time).strip(b'"').decode()) + shift
    except (ArithmeticError, UnicodeDecodeError):
        return time
    usable = found.is_finite() and found.adjusted() < _MOST_DIGITS
    return Raw(format(found, "f").encode()) if usable else time


def _renumbered(number: Raw, shift: int) -> Raw:
    text = bytes(number).strip(b'"')
    if not text.isdigit() or len(text) > len(str(_LARGEST_ID)):
        return number
    return Raw(b"%d" % (int(text) + shift))
