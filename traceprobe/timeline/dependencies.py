"""Which operations of other streams an operation waits for, as the calls of the host say.

A stream that is told to wait for an event starts nothing that is launched later until what had been
launched to the event's stream before its record has ended. Where the trace says neither which
record a wait is for nor on which stream that was made, it is taken to be the last one that the same
thread made, on the stream that this thread had launched to last; an edge that the times contradict
is dropped.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from traceprobe.model.events import UNKNOWN, Bools, Int64s, StreamEvent

TOLERANCE_NS = 1_000
"""An operation that starts this much before the end of another did not wait for it."""


@dataclass(frozen=True)
class Dependencies:
    """Operations and what they need of other streams; both are rows of the operations.

    Args:
        recorded: whether the trace names the record of the event; else it is inferred.
        contradicted: operations that did not wait for what seemed to hold them up.
        lost: waits whose record is not in the trace.
    """

    op: Int64s
    needs: Int64s
    recorded: Bools
    contradicted: Int64s
    lost: int

    @property
    def all_recorded(self) -> bool:
        """Whether every wait of the trace is known for sure."""
        known = bool(self.recorded.all()) and len(self.op) > 0
        return known and not self.lost and not len(self.contradicted)


def dependencies(ops: pl.DataFrame, events: pl.DataFrame) -> Dependencies:
    """What the operations of a device wait for because of events.

    Args:
        ops: `GPU_OPS` in the order of their launches, of one device.
        events: `STREAM_EVENTS` of its process.
    """
    waits = events.filter(pl.col("kind") == int(StreamEvent.WAIT)).sort("t0")
    if not len(ops) or not len(waits):
        return _none()
    # A wait after the last launch holds up nothing that is here, and one before the first may be
    # for what is not.
    low, high = ops["launch_t0"][0], ops["launch_t0"][-1]
    waits = waits.filter(pl.col("t0").is_between(low, high))
    if not len(waits):
        return _none()
    records = events.filter(pl.col("kind") == int(StreamEvent.RECORD)).sort("t0")
    launches = _Launches(ops)
    record, named = recorded_of(waits, records)
    known = record != UNKNOWN
    at = np.maximum(record, 0)
    made = records["t0"].to_numpy()[at] if len(records) else np.zeros(len(at), np.int64)
    on = records["stream"].to_numpy()[at] if len(records) else np.full(len(at), UNKNOWN)
    thread = records["thread"].to_numpy()[at] if len(records) else np.full(len(at), UNKNOWN)
    guessed = on == UNKNOWN
    on = np.where(guessed, launches.last_stream(thread, made), on)
    stream = waits["stream"].to_numpy()
    unnamed = stream == UNKNOWN
    stream = np.where(
        unnamed, launches.next_stream(waits["thread"].to_numpy(), waits["t0"].to_numpy()), stream
    )
    needed = launches.last_on(on, made)
    waiting = launches.next_on(stream, waits["t0"].to_numpy())
    real = known & (waiting != UNKNOWN) & (needed != UNKNOWN) & (stream != on)
    t0, t1 = ops["t0"].to_numpy(), ops["t1"].to_numpy()
    fits = real.copy()
    fits[real] = (t0[waiting[real]] >= t1[needed[real]] - TOLERANCE_NS) & (
        needed[real] < waiting[real]
    )
    sure = named & ~guessed & ~unnamed
    pairs = pl.DataFrame({"op": waiting[fits], "needs": needed[fits], "sure": sure[fits]})
    pairs = pairs.group_by("op", "needs").agg(pl.col("sure").any()).sort("op", "needs")
    return Dependencies(
        pairs["op"].to_numpy(),
        pairs["needs"].to_numpy(),
        pairs["sure"].to_numpy(),
        waiting[real & ~fits],
        int((~known).sum()),
    )


def host_waits(ops: pl.DataFrame, events: pl.DataFrame) -> tuple[Int64s, Int64s]:
    """Calls in which the host waits for one stream or event, and what for.

    Args:
        ops, events: as `dependencies` takes them.

    Returns:
        (calls, rows): starts of the calls, ascending, and the operation that each waits for,
        UNKNOWN where nothing had been launched.
    """
    calls = events.filter(
        (pl.col("kind") == int(StreamEvent.HOST_WAIT))
        & ((pl.col("stream") != UNKNOWN) | (pl.col("event") != UNKNOWN))
    ).sort("t0")
    records = events.filter(pl.col("kind") == int(StreamEvent.RECORD)).sort("t0")
    if not len(calls) or not len(ops):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    launches = _Launches(ops)
    began, stream = calls["t0"].to_numpy(), calls["stream"].to_numpy()
    record, named = recorded_of(calls, records)
    by_event = named & (record != UNKNOWN) & (calls["event"].to_numpy() != UNKNOWN)
    if len(records):
        at = np.maximum(record, 0)
        made, on = records["t0"].to_numpy()[at], records["stream"].to_numpy()[at]
        thread = records["thread"].to_numpy()[at]
        on = np.where(on == UNKNOWN, launches.last_stream(thread, made), on)
        began_or_made = np.where(by_event, made, began)
        stream = np.where(by_event, on, stream)
    else:
        began_or_made = began
    row = np.where(stream == UNKNOWN, UNKNOWN, launches.last_on(stream, began_or_made))
    known = stream != UNKNOWN
    return began[known], row[known]


def recorded_of(waits: pl.DataFrame, records: pl.DataFrame) -> tuple[Int64s, Bools]:
    """The record that each wait is for, a row of `records`, UNKNOWN where none was found.

    Args:
        waits, records: `STREAM_EVENTS`, sorted by their starts.

    Returns:
        (records, named): whether the trace names it, or the event; else it is the last of the
        thread.
    """
    count = len(waits)
    found, named = np.full(count, UNKNOWN, dtype=np.int64), np.zeros(count, dtype=bool)
    if not len(records):
        return found, named
    numbered = records.with_row_index("at").with_columns(pl.col("at").cast(pl.Int64))
    rows = waits.with_row_index("wait").with_columns(pl.col("wait").cast(pl.Int64))
    told = rows.filter(pl.col("record") != UNKNOWN).join(
        numbered.filter(pl.col("correlation") != UNKNOWN).select("at", record="correlation"),
        on="record",
    )
    found[told["wait"].to_numpy()] = told["at"].to_numpy()
    named[told["wait"].to_numpy()] = True
    for by, sure in (("event", True), ("thread", False)):
        open_ = rows.filter(pl.Series(found == UNKNOWN) & (pl.col(by) != UNKNOWN))
        before = open_.sort("t0").join_asof(
            numbered.filter(pl.col(by) != UNKNOWN).select("at", "t0", by).sort("t0"),
            on="t0",
            by=by,
            strategy="backward",
            check_sortedness=False,
        )
        before = before.filter(pl.col("at").is_not_null())
        found[before["wait"].to_numpy()] = before["at"].to_numpy()
        named[before["wait"].to_numpy()] = sure
    return found, named


class _Launches:
    """Looks up operations by the time of their launch."""

    def __init__(self, ops: pl.DataFrame) -> None:
        rows = ops.select("launch_t0", "stream", "thread").with_columns(
            row=pl.int_range(pl.len(), dtype=pl.Int64)
        )
        self._rows = rows.sort("launch_t0", maintain_order=True)

    def last_on(self, stream: Int64s, until: Int64s) -> Int64s:
        """The last operation that was launched to a stream before an instant."""
        return self._nearest("stream", stream, until, "backward", "row")

    def next_on(self, stream: Int64s, since: Int64s) -> Int64s:
        """The first operation that was launched to a stream after an instant."""
        return self._nearest("stream", stream, since, "forward", "row")

    def last_stream(self, thread: Int64s, until: Int64s) -> Int64s:
        """The stream that a thread had launched to last before an instant."""
        return self._nearest("thread", thread, until, "backward", "stream")

    def next_stream(self, thread: Int64s, since: Int64s) -> Int64s:
        """The stream that a thread launched to first after an instant."""
        return self._nearest("thread", thread, since, "forward", "stream")

    def _nearest(
        self, by: str, key: Int64s, instants: Int64s, strategy: str, wanted: str
    ) -> Int64s:
        asked = pl.DataFrame({by: key, "launch_t0": instants}).with_row_index("asked")
        known = self._rows
        if strategy == "forward":  # of launches at one instant the first, not the last
            known = known.unique([by, "launch_t0"], keep="first", maintain_order=True)
        # Of equal keys a backward search finds the last.
        near = asked.sort("launch_t0").join_asof(
            known.select(by, "launch_t0", found=wanted).sort("launch_t0", maintain_order=True),
            on="launch_t0",
            by=by,
            strategy=strategy,  # type: ignore[arg-type]
            check_sortedness=False,
        )
        return near.sort("asked")["found"].fill_null(UNKNOWN).to_numpy()


def _none() -> Dependencies:
    nothing = np.zeros(0, np.int64)
    return Dependencies(nothing, nothing, np.zeros(0, bool), nothing, 0)
