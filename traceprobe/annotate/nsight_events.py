"""An Nsight Systems export as events of a Chrome trace: one track a stream and a thread.

Viewers drop slices of a track that overlap without one enclosing the other; such rows, as kernels
of one stream that begin before the one ahead has ended, get a second track.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from typing import Any

import msgspec
import numpy as np
import polars as pl

from traceprobe.annotate.chrome_events import EVENTS, Clock, encode
from traceprobe.annotate.counters import Counter
from traceprobe.annotate.pids import Pid, Pids
from traceprobe.model.codes import NOTES, UNKNOWN, Int64s, Kind
from traceprobe.model.events import Trace

_CATEGORIES = {
    Kind.KERNEL: "kernel",
    Kind.COMM: "kernel",
    Kind.H2D: "gpu_memcpy",
    Kind.D2H: "gpu_memcpy",
    Kind.D2D: "gpu_memcpy",
    Kind.MEMSET: "gpu_memset",
}
_MOST_LANES = 64
"""Tracks of one thread or stream; no program nests as badly."""
_BATCH = 10_000
_NEXT_LANE = 100_000_000
"""Between the numbers of the tracks of a thread."""
_NONE = pl.lit(UNKNOWN, pl.Int64).alias("correlation")

_HOST = (
    ("user_annotation", "host_ranges", ~pl.col("source").is_in(NOTES)),
    ("overhead", "host_ranges", pl.col("source").is_in(NOTES)),
    ("cpu_op", "host_operators", pl.lit(value=True)),
    ("cuda_runtime", "host_calls", pl.lit(value=True)),
)
"""Category, table and rows of what threads do."""


def lanes(t0: Int64s, t1: Int64s) -> Int64s:
    """A track for each row so that rows of one track are apart or enclose each other.

    Args:
        t0, t1: ascending by start, of equal starts the longest first.
    """
    found = np.zeros(len(t0), dtype=np.int64)
    if (t0[1:] >= np.maximum.accumulate(t1)[:-1]).all():
        return found
    open_until: list[list[int]] = [[]]
    for row, (start, end) in enumerate(zip(t0.tolist(), t1.tolist(), strict=True)):
        for lane, ends in enumerate(open_until):
            while ends and ends[-1] <= start:
                ends.pop()
            if not ends or end <= ends[-1] or lane == _MOST_LANES - 1:
                break
        else:
            lane, ends = len(open_until), []
            open_until.append(ends)
        ends.append(end)
        found[row] = lane
    return found


class NsightCopy(msgspec.Struct):
    """Writes an input as events: `chunks()` yields them, and counts on the way.

    Args:
        shift_ns: added to times, which count from the beginning of the capture.
        label: what the names of the processes end with.
    """

    trace: Trace
    taken: Pids
    shift_ns: int
    label: str
    events: int = 0

    def chunks(self) -> Iterator[bytes]:
        """Events as JSON with commas between them, some at a time."""
        latest = [f["t1"].max() for f in (self.trace.gpu_ops, self.trace.host_calls) if len(f)]
        clock = Clock.of(self.shift_ns, max(int(t) for t in latest if isinstance(t, int)))
        events = chain(self._host(clock), self._devices(clock))
        while batch := list(islice(events, _BATCH)):
            yield b",\n".join(batch)

    def opening(self) -> bytes:
        """What the file begins with."""
        return b'{"displayTimeUnit": "ns",\n' + EVENTS

    def closing(self) -> bytes:
        """What ends it."""
        return b"\n]}\n"

    def counters(self, device: int, base_ns: int) -> list[Counter]:
        """Nothing: all of its counters are among those of the device."""
        return []

    def note(self) -> dict[str, Any]:
        """What is written about it."""
        return {"events": self.events, "shift_ns": self.shift_ns}

    def _host(self, clock: Clock) -> Iterator[bytes]:
        rows = pl.concat(
            [
                getattr(self.trace, table)
                .filter(chosen)
                .select(
                    *("pid", "thread", "t0", "t1", "name"),
                    pl.col("correlation") if table == "host_calls" else _NONE,
                    category=pl.lit(category),
                )
                for category, table, chosen in _HOST
            ]
        ).sort("pid", "thread", "t0", "t1", descending=[False, False, False, True])
        pids: dict[int, Pid] = {}
        for (pid, thread), part in rows.partition_by(
            "pid", "thread", as_dict=True, maintain_order=True
        ).items():
            if pid not in pids:
                pids[pid] = self.taken.claim(pid)
                yield self._named(pids[pid], None, f"process {pid}{self.label}")
            name = self.trace.thread_names.get((pid, thread)) or f"thread {thread}"
            yield from self._tracks(pids[pid], int(thread), name, part, clock)

    def _devices(self, clock: Clock) -> Iterator[bytes]:
        kinds = {int(kind): category for kind, category in _CATEGORIES.items()}
        rows = self.trace.gpu_ops.with_columns(
            category=pl.col("kind").cast(pl.Int64).replace_strict(kinds, return_dtype=pl.String),
            bytes=pl.col("bytes").replace(UNKNOWN, None),
        )
        columns = ("stream", "t0", "t1", "name", "correlation", "category", "bytes")
        for device in self.trace.devices:
            here = (pl.col("pid") == device.pid) & (pl.col("device") == device.index)
            of_device = rows.filter(here).select(columns)
            of_device = of_device.sort("stream", "t0", "t1", descending=[False, False, True])
            pid = self.taken.free()
            title = f"GPU {device.index} {device.name or ''}".strip()
            yield self._named(pid, None, f"{title}{self.label}")
            streams = of_device.partition_by("stream", as_dict=True, maintain_order=True)
            for (stream,), part in streams.items():
                yield from self._tracks(pid, int(stream), f"stream {stream}", part, clock)

    def _tracks(
        self, pid: Pid, thread: int, name: str, rows: pl.DataFrame, clock: Clock
    ) -> Iterator[bytes]:
        lane = lanes(rows["t0"].to_numpy(), rows["t1"].to_numpy())
        for number in np.unique(lane).tolist():
            more = f" ({number + 1})" if number else ""
            yield self._named(pid, thread + number * _NEXT_LANE, f"{name}{more}")
        columns = [c for c in ("correlation", "bytes") if c in rows.columns]
        names = self.trace.names
        fields = rows.select("t0", "t1", "name", "category", *columns).iter_rows()
        for at, (t0, t1, number, category, *values) in zip(lane.tolist(), fields, strict=True):
            arguments = {
                k: v for k, v in zip(columns, values, strict=True) if v not in (None, UNKNOWN)
            }
            self.events += 1
            yield encode(
                {
                    "ph": "X",
                    "cat": category,
                    "name": names[number],
                    "pid": pid,
                    "tid": thread + at * _NEXT_LANE,
                    "ts": clock.stamp(t0),
                    "dur": clock.length(t1 - t0),
                    "args": arguments,
                }
            )

    @staticmethod
    def _named(pid: Pid, thread: int | None, name: str) -> bytes:
        place = {"pid": pid} if thread is None else {"pid": pid, "tid": thread}
        what = "process_name" if thread is None else "thread_name"
        return encode({"ph": "M", "name": what, **place, "args": {"name": name}})
