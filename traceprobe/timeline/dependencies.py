"""Which operations of other streams an operation waits for, as the calls of the host say.

A stream that is told to wait for an event starts nothing that is launched later until what had been
launched to the event's stream before its record has ended, and what that stream itself had been
told to wait for by then. Where the trace says neither which record a wait is for nor on which
stream that was made, it is taken to be the last one that the same thread made, on the stream that
this thread had launched to last; an edge that the times contradict is dropped.
"""

from __future__ import annotations

from typing import Literal

import msgspec
import numpy as np
import polars as pl

from traceprobe.model.codes import UNKNOWN, Bools, Int64s, StreamEvent

TOLERANCE_NS = 1_000
"""An operation that starts this much before the end of another did not wait for it."""


class Dependencies(msgspec.Struct, frozen=True):
    """What operations need of other streams, and calls of the host of the device.

    Args:
        op, needs: operations and what they need, both as rows of the operations.
        recorded: whether the trace names the record of the event; else it is inferred.
        contradicted: operations that did not wait for what seemed to hold them up.
        lost: number of waits whose record is not in the trace. open: the operations that such waits
            hold up first, one for each; what they wait for is not told.
        calls, awaited: starts of the calls in which the host waits for one stream or event,
            ascending, and the operation that each waits for longest, UNKNOWN where nothing had
            been launched.
    """

    op: Int64s
    needs: Int64s
    recorded: Bools
    contradicted: Int64s
    lost: int
    open: Int64s
    calls: Int64s
    awaited: Int64s

    @property
    def all_recorded(self) -> bool:
        """Whether every wait of the trace is known for sure."""
        known = bool(self.recorded.all()) and len(self.op) > 0
        return known and not self.lost and not len(self.contradicted)


def dependencies(ops: pl.DataFrame, events: pl.DataFrame) -> Dependencies:
    """What the operations of a device wait for because of events, and what the host waits for.

    Args:
        ops: `GPU_OPS` in the order of their launches, of one device.
        events: `STREAM_EVENTS` of its process.
    """
    found = _Held(ops, events)
    pairs = pl.DataFrame(
        found.pairs, schema={"op": pl.Int64, "needs": pl.Int64, "sure": pl.Boolean}, orient="row"
    )
    op, needs = pairs["op"].to_numpy(), pairs["needs"].to_numpy()
    stream, t0, t1 = (ops[name].to_numpy() for name in ("stream", "t0", "t1"))
    other = stream[op] != stream[needs]
    fits = (t0[op] >= t1[needs] - TOLERANCE_NS) & (needs < op)
    edges = pairs.filter(pl.Series(other & fits, dtype=pl.Boolean))
    edges = edges.group_by("op", "needs").agg(pl.col("sure").any()).sort("op", "needs")
    awaited = [max(held, key=t1.__getitem__, default=UNKNOWN) for held in found.host.values()]
    return Dependencies(
        op=edges["op"].to_numpy(),
        needs=edges["needs"].to_numpy(),
        recorded=edges["sure"].to_numpy(),
        contradicted=np.unique(op[other & ~fits]),
        lost=found.lost,
        open=np.array(found.open, np.int64),
        calls=np.array(list(found.host), np.int64),
        awaited=np.array(awaited, np.int64),
    )


class _Held:
    """Goes through records and waits in their order, and keeps what each is for.

    An event stands for all that its stream has to do before: what was launched to it last, and what
    the stream was told to wait for since then.

    Args:
        ops, events: as `dependencies` takes them.

    Attributes:
        pairs: operation, what it waits for, and whether the trace says so.
        host: what is waited for in a call of the host, by its start.
        lost: number of waits without a record. open: the operations that follow such waits.
    """

    def __init__(self, ops: pl.DataFrame, events: pl.DataFrame) -> None:
        self.pairs: list[tuple[int, int, bool]] = []
        self.host: dict[int, list[int]] = {}
        self.lost = 0
        self.open: list[int] = []
        if not len(ops) or not len(events):
            return
        # What is before the first launch or after the last holds up nothing that is here.
        low, high = ops["launch_t0"][0], ops["launch_t0"][-1]
        rows = _resolved(ops, events.sort("t0"))
        self._launched, self._stream = ops["launch_t0"].to_list(), ops["stream"].to_list()
        self._pending: dict[int, dict[int, tuple[int, int, bool]]] = {}
        captured: dict[int, list[tuple[int, bool]]] = {}
        for kind, at, number, stream, sure, last, following, record, named in rows.filter(
            pl.col("t0").is_between(low, high)
        ).iter_rows():
            if kind == StreamEvent.RECORD:
                captured[number] = self._of_stream(stream, last, sure)
            elif kind == StreamEvent.HOST_WAIT:
                if record != UNKNOWN and named:
                    self.host[at] = [row for row, _ in captured.get(record, [])]
                elif stream != UNKNOWN:
                    self.host[at] = [row for row, _ in self._of_stream(stream, last, sure)]
            elif record == UNKNOWN:
                self.lost += 1
                if following != UNKNOWN:
                    self.open.append(following)
            else:
                waiting = self._pending.setdefault(stream, {})
                since = self._launched[last] if last != UNKNOWN else -1
                for row, known in captured.get(record, []):
                    told = known and sure and named
                    # An older event of a stream says nothing beside a newer one.
                    before, newest, _ = waiting.get(self._stream[row], (-1, -1, False))
                    if row >= newest or before <= since:
                        waiting[self._stream[row]] = (at, row, told)
                    if following != UNKNOWN:
                        self.pairs.append((following, row, told))

    def _of_stream(self, stream: int, last: int, sure: bool) -> list[tuple[int, bool]]:
        """What a stream has to do before it is done with all that it was told until now."""
        since = self._launched[last] if last != UNKNOWN else -1
        waiting = self._pending.get(stream, {}).values()
        held = [(row, known and sure) for at, row, known in waiting if at > since]
        return held if last == UNKNOWN else [(last, sure), *held]


def _resolved(ops: pl.DataFrame, events: pl.DataFrame) -> pl.DataFrame:
    """Events with the streams and records that they are of, as far as these can be told.

    Returns:
        `kind`, `t0`, `number` (of a record, a row of the records), `stream`, `sure` (whether the
        trace names it), `last` (operation that was launched to it before) and `following` (first
        one after), `record` and `named` (as `recorded_of` has them).
    """
    launches = _Launches(ops)
    kind, at, thread = (events[name].to_numpy() for name in ("kind", "t0", "thread"))
    stream = events["stream"].to_numpy()
    is_record, is_wait = kind == int(StreamEvent.RECORD), kind == int(StreamEvent.WAIT)
    sure = stream != UNKNOWN
    stream = np.where(is_record & ~sure, launches.last_stream(thread, at), stream)
    stream = np.where(is_wait & ~sure, launches.next_stream(thread, at), stream)
    record, named = recorded_of(events, events.filter(pl.Series(is_record)))
    return events.select("kind", "t0").with_columns(
        number=pl.Series(np.cumsum(is_record) - 1, dtype=pl.Int64),
        stream=pl.Series(stream, dtype=pl.Int64),
        sure=pl.Series(sure, dtype=pl.Boolean),
        last=pl.Series(launches.last_on(stream, at), dtype=pl.Int64),
        following=pl.Series(launches.next_on(stream, at), dtype=pl.Int64),
        record=pl.Series(record, dtype=pl.Int64),
        named=pl.Series(named, dtype=pl.Boolean),
    )


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
    if not count or not len(records):
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
        launch = ops["launch_t0"].to_numpy()
        order = np.argsort(launch, kind="stable")
        self._rows = order
        self._launch = launch[order]
        self._stream, self._thread = (ops[c].to_numpy()[order] for c in ("stream", "thread"))

    def last_on(self, stream: Int64s, until: Int64s) -> Int64s:
        """The last operation that was launched to a stream before an instant."""
        return self._nearest(self._stream, stream, until, self._rows, "last")

    def next_on(self, stream: Int64s, since: Int64s) -> Int64s:
        """The first operation that was launched to a stream after an instant."""
        return self._nearest(self._stream, stream, since, self._rows, "first")

    def last_stream(self, thread: Int64s, until: Int64s) -> Int64s:
        """The stream that a thread had launched to last before an instant."""
        return self._nearest(self._thread, thread, until, self._stream, "last")

    def next_stream(self, thread: Int64s, since: Int64s) -> Int64s:
        """The stream that a thread launched to first after an instant."""
        return self._nearest(self._thread, thread, since, self._stream, "first")

    def _nearest(
        self,
        keys: Int64s,
        asked: Int64s,
        instants: Int64s,
        wanted: Int64s,
        which: Literal["first", "last"],
    ) -> Int64s:
        """What is wanted of the last launch with a key at or before each instant, or the first."""
        found = np.full(len(asked), UNKNOWN, dtype=np.int64)
        for key in np.unique(asked).tolist():
            rows, mine = np.flatnonzero(keys == key), np.flatnonzero(asked == key)
            launch = self._launch[rows]
            if which == "last":
                at = np.searchsorted(launch, instants[mine], "right") - 1
            else:
                at = np.searchsorted(launch, instants[mine], "left")
            known = (at >= 0) & (at < len(rows))
            found[mine[known]] = wanted[rows[at[known]]]
        return found
