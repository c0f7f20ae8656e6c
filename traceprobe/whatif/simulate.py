"""Plays the rows of a replay: who waits for whom, and when everything ends.

The rules, for the rows of one rank in launch order, over and over:

- The host goes on once the row that it awaits has ended, once its batch is there, and after the
  time that it needs itself.
- A row starts once its stream is free, its first launch is made and what it needs has ended.
- It ends after its operations have run, and not before the last of them, launched last, could.
- A collective starts on all ranks when the last of them is ready, and lasts as long on all.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace

from traceprobe.errors import ImpossibleChange
from traceprobe.records.replay import Replay

CYCLES = 3
"""Times that the iterations are played; the last counts, when the beginning is forgotten."""


@dataclass(frozen=True)
class Row:
    """See `Replay`; times are ns.

    Args:
        needs: distances to rows that must end before. joins: whether all ranks take part.
    """

    iteration: int
    kind: str
    stream: int
    first: float
    host: float
    busy: float
    lag: float
    tail: float
    data: float
    awaits: int
    needs: tuple[int, ...]
    size: int
    joins: bool

    def emptied(self) -> Row:
        """The row in its place, without any work of host or GPU."""
        return replace(self, first=0.0, host=0.0, busy=0.0, lag=0.0, tail=0.0, size=-1, joins=False)


@dataclass(frozen=True)
class Part:
    """What one rank plays.

    Args:
        latency: from a launch to its start on an idle device, ns.
        period: time that the loader needs for a batch, ns; None where it is never late.
    """

    rows: Sequence[Row]
    iterations: int
    latency: float
    period: float | None


def part_of(replay: Replay) -> Part:
    """The rows of a rank; its loader is never late.

    Raises:
        ImpossibleChange: somebody changed the columns.
    """
    try:
        rows = _rows(replay)
    except (ValueError, IndexError) as error:
        raise ImpossibleChange(
            f"the replay in the report is damaged ({error}); analyze the trace again"
        ) from error
    return Part(rows, replay.iterations, replay.latency_ns, None)


def _rows(replay: Replay) -> list[Row]:
    if not 0 < replay.iterations == 1 + max(map(int, replay.iteration.split())):
        raise ValueError("the number of iterations")
    columns = zip(
        *(
            map(int, column.split())
            for column in (
                replay.iteration,
                replay.kind,
                replay.stream,
                replay.first_host_ns,
                replay.host_ns,
                replay.duration_ns,
                replay.lag_ns,
                replay.tail_ns,
                replay.data_wait_ns,
                replay.awaits,
                replay.needs,
                replay.bytes,
            )
        ),
        strict=True,
    )
    return [
        Row(
            iteration=iteration,
            kind=replay.kinds[kind],
            stream=stream,
            first=first,
            host=host,
            busy=busy,
            lag=lag,
            tail=tail,
            data=data,
            awaits=awaits,
            needs=(needs,) if needs else (),
            size=size,
            joins=replay.kinds[kind] == "communication",
        )
        for iteration, kind, stream, first, host, busy, lag, tail, data, awaits, needs, size in (
            columns
        )
    ]


def play(parts: Sequence[Part], *, balanced: bool = False) -> float:
    """Step of the slowest rank, ns; ranks that wait for each other are equally fast.

    Ranks that do not make equally many collectives play for themselves.

    Args:
        balanced: the mean of the ranks instead, as if their work had been shared out evenly.
    """
    counts = {sum(row.joins for row in part.rows) for part in parts}
    together = [list(parts)] if len(counts) == 1 else [[part] for part in parts]
    steps = [step for group in together for step in _together(group)]
    return sum(steps) / len(steps) if balanced else max(steps)


def _together(parts: Sequence[Part]) -> list[float]:
    players = [_player(part) for part in parts]
    starts: list[float | None] = [None] * len(parts)
    while True:
        ready, steps = [], []
        for player, start in zip(players, starts, strict=True):
            try:
                ready.append(player.send(start))
            except StopIteration as end:
                steps.append(end.value)
        if not ready:
            return steps
        starts = [max(ready)] * len(parts)


def _player(part: Part) -> Generator[float, float | None, float]:
    """Yields when it is ready for a collective, takes when that starts, returns the mean step."""
    ends: list[float] = []
    free: dict[int, float] = {}
    host = batch_ready = 0.0
    done: list[float] = []
    for _ in range(CYCLES):
        fetched = -1
        for row in part.rows:
            if 0 < row.awaits <= len(ends):
                host = max(host, ends[-row.awaits])
            if row.data:
                if part.period is None:
                    host += row.data
                elif row.iteration != fetched:
                    fetched = row.iteration
                    batch_ready += part.period
                    host = max(host, batch_ready)
            launched = host + row.first
            host += row.host
            start = max(free.get(row.stream, 0.0), launched + part.latency)
            for distance in row.needs:
                if distance <= len(ends):
                    start = max(start, ends[-distance])
            if row.joins:
                told = yield start
                start = start if told is None else told
            end = max(start + row.busy + row.lag, host + part.latency + row.tail)
            ends.append(end)
            free[row.stream] = end
        done.append(max(free.values()))
    return (done[-1] - done[-2]) / part.iterations
