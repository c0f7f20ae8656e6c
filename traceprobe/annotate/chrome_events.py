"""Events of a Chrome trace as JSON, and their times as viewers read them exactly.

Format: "Trace Event Format" of the Chromium project; times are decimals of µs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
import polars as pl

from traceprobe.annotate.pids import Pid
from traceprobe.model.annotation import ADDED

_EXACT_US = 2**53 // 1000
"""Viewers multiply µs by 1000 as doubles, which are exact up to here: 104 days."""
_PLACE = ("t0", "t1", "name")
EVENTS = b'"traceEvents": [\n'
"""How the list of events begins."""
encode = msgspec.json.Encoder().encode


class Clock(msgspec.Struct, frozen=True):
    """From a trace's clock to the time stamps of the file that is written.

    Args:
        shift_ns: what is added to a time. whole: time stamps are whole µs, because viewers could
            not tell the decimals of such large numbers; two that touch would overlap.
    """

    shift_ns: int
    whole: bool

    @classmethod
    def of(cls, shift_ns: int, latest_ns: int) -> Clock:
        """The clock of a file whose last time is `latest_ns` on the trace's clock."""
        return cls(shift_ns, (latest_ns + shift_ns) // 1000 > _EXACT_US)

    def stamp(self, ns: int) -> msgspec.Raw:
        """A time as µs."""
        return self.length(ns + self.shift_ns)

    def length(self, ns: int) -> msgspec.Raw:
        """A duration as µs."""
        if self.whole:
            return msgspec.Raw(b"%d" % (ns // 1000))
        sign, size = (b"-", -ns) if ns < 0 else (b"", ns)
        return msgspec.Raw(b"%b%d.%03d" % (sign, size // 1000, size % 1000))

    def slices(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Slices as this clock can tell them; those that it cannot are left out."""
        if not self.whole:
            return rows
        floor = [(pl.col(c) + self.shift_ns) // 1000 * 1000 - self.shift_ns for c in ("t0", "t1")]
        return rows.with_columns(floor).filter(pl.col("t1") > pl.col("t0"))


def metadata(pid: Pid, tid: int | None, what: str, **arguments: Any) -> bytes:
    """An event that describes a process or, with `tid`, a thread."""
    place = {"pid": pid} if tid is None else {"pid": pid, "tid": tid}
    return encode({"ph": "M", "cat": ADDED, "name": what, **place, "args": arguments})


def slices(pid: int, tid: int, rows: pl.DataFrame, clock: Clock) -> Iterator[bytes]:
    """Slices of a track: `t0`, `t1`, `name`; other columns are arguments, where they are not null.

    Args:
        rows: as `clock.slices` leaves them.
    """
    columns = [name for name in rows.columns if name not in _PLACE]
    for t0, t1, name, *values in rows.select(*_PLACE, *columns).iter_rows():
        arguments = {k: v for k, v in zip(columns, values, strict=True) if v is not None}
        yield encode(
            {
                "ph": "X",
                "cat": ADDED,
                "name": name,
                "pid": pid,
                "tid": tid,
                "ts": clock.stamp(t0),
                "dur": clock.length(t1 - t0),
                "args": arguments,
            }
        )


def instant(
    pid: int, tid: int, at: int, name: str, arguments: Mapping[str, Any], clock: Clock
) -> bytes:
    """Something at one time of a track."""
    return encode(
        {
            "ph": "i",
            "s": "t",
            "cat": ADDED,
            "name": name,
            "pid": pid,
            "tid": tid,
            "ts": clock.stamp(at),
            "args": {k: v for k, v in arguments.items() if v is not None},
        }
    )


def counter(
    pid: int, name: str, unit: str, samples: Iterable[tuple[int, float]], clock: Clock
) -> Iterator[bytes]:
    """Values of a counter, each from its time on."""
    for at, value in samples:
        yield encode(
            {
                "ph": "C",
                "cat": ADDED,
                "name": name,
                "pid": pid,
                "ts": clock.stamp(at),
                "args": {unit: value},
            }
        )
