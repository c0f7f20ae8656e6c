"""Random programs of spinning kernels: streams, events, host work and waits, ranks, by a seed.

Every iteration of a program does the same. A thread goes through its actions in their order; the
other thread, where there is one, has streams of its own. The main thread then joins all streams
into stream 0, so that the pace of that stream is the pace of the program.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import exp, log
from random import Random
from typing import Any

MOST_KERNEL_NS = 20e6
"""Of all kernels of a rank's iteration together, on all streams."""
MOST_WORK_NS = 9e6
"""Of all host work of a thread's iteration together."""
LEAST_NS, MOST_NS = 50e3, 3e6
SYNCS = ("sync-event", "sync-stream", "item")
COMMUNICATION = ("all-reduce", "send", "receive")
DEVICE = ("kernel", "item", *COMMUNICATION)
"""Actions that put an operation on a stream."""


@dataclass(frozen=True)
class Action:
    """One thing that a host thread does.

    - `kernel`: launches operation `number`, of `size` ns, on `stream`;
    - `record`, `wait`: event `number` is recorded on, or awaited by, `stream`;
    - `sync-event`, `sync-stream`: the host waits for event `number`, or for `stream`;
    - `item`: operation `number` copies a number from `stream` to the host, which waits for it;
    - `work`: the host itself is busy for `size` ns; `number` counts these for themselves;
    - `all-reduce`, `send`, `receive`: operation `number`, of `size` bytes, after what is on
      `stream`; `finish`: `stream` waits for communication `number`.
    """

    does: str
    number: int = 0
    stream: int = 0
    size: int = 0


@dataclass(frozen=True)
class Rank:
    """Actions of one iteration: of each thread, and then, after all threads, of the first."""

    threads: tuple[tuple[Action, ...], ...]
    tail: tuple[Action, ...]

    def actions(self) -> Iterator[Action]:
        """All actions, thread by thread."""
        for thread in self.threads:
            yield from thread
        yield from self.tail


@dataclass(frozen=True)
class Program:
    """What is run. `fresh`: each record makes an event of its own, as `wait_stream` does."""

    seed: int
    streams: int
    fresh: bool
    ranks: tuple[Rank, ...]

    @property
    def name(self) -> str:
        """As folders of recordings are called."""
        return f"p{self.seed}"


@dataclass(frozen=True)
class Intervention:
    """Kernel, or host work, `number` of a rank takes `delta_ns` longer."""

    rank: int
    does: str
    number: int
    delta_ns: int


def generate(seed: int, ranks: int = 1) -> Program:
    """A program, the same for the same arguments."""
    random = Random(f"{seed}/{ranks}")
    streams = random.randint(2, 5)
    threads = 2 if random.random() < 0.2 else 1
    fresh = random.random() < 0.5
    common = tuple(_message(random) for _ in range(random.randint(2, 6))) if ranks > 1 else ()
    each = [_Draft(random, streams, threads, common, rank).rank() for rank in range(ranks)]
    return Program(seed, streams, fresh, tuple(each))


def _message(random: Random) -> tuple[bool, int]:
    """Whether it goes to all ranks, and its size."""
    to_all = random.random() < 0.75
    return to_all, 2 ** random.randint(20 if to_all else 23, 26)


def _between(random: Random, low: float, high: float) -> int:
    return round(exp(random.uniform(log(low), log(high))))


class _Draft:
    """An iteration of one rank while it is being drawn."""

    def __init__(
        self,
        random: Random,
        streams: int,
        threads: int,
        messages: tuple[tuple[bool, int], ...],
        rank: int,
    ) -> None:
        self.random, self.streams, self.messages, self.rank_number = random, streams, messages, rank
        self.kernels = random.randint(10, 60)
        self.longest = random.choice((600e3, 1.5e6, MOST_NS))
        self.edges = random.uniform(0.1, 0.5)
        self.adjacent = random.choice((1.0, 1.0, 0.6, 0.2))
        self.syncs = random.choice((0.0, 0.03, 0.06, 0.12))
        self.works = random.choice((0.05, 0.15, 0.35))
        self.forks = random.random() < 0.7
        self.operations = self.events = self.work = 0
        last = max(1, streams - random.randint(1, 2)) if threads == 2 else streams
        self.parts = [list(range(last)), list(range(last, streams))][:threads]

    def rank(self) -> Rank:
        """Everything that the rank does."""
        bodies = [self._body(part, first=not i) for i, part in enumerate(self.parts)]
        tail: list[Action] = []
        joined = self._event()
        for stream in range(1, self.streams):
            event = self._event()
            tail += [Action("record", event, stream), Action("wait", event, 0)]
        tail.append(Action("record", joined, 0))
        if self.forks:
            for part, body in zip(self.parts, bodies, strict=True):
                body[:0] = [Action("wait", joined, stream) for stream in part if stream]
        return _limited(Rank(tuple(map(tuple, bodies)), tuple(tail)))

    def _event(self) -> int:
        self.events += 1
        return self.events - 1

    def _operation(self) -> int:
        self.operations += 1
        return self.operations - 1

    def _body(self, streams: list[int], *, first: bool) -> list[Action]:
        """Of a thread with streams of its own; only the first communicates."""
        random, found = self.random, list[Action]()
        count = max(5, round(self.kernels * len(streams) / self.streams))
        messages = sorted(random.randrange(count) for _ in self.messages) if first else []
        recorded: list[tuple[int, int]] = []
        later: list[tuple[int, int]] = []
        open_messages: list[int] = []
        stream = streams[0]
        for index in range(count):
            if random.random() < self.works:
                found.append(Action("work", self.work, 0, _between(random, 100e3, 2e6)))
                self.work += 1
            if random.random() < 0.4:
                stream = random.choice(streams)
            if len(streams) > 1 and random.random() < self.edges:
                found += self._edge(stream, streams, recorded, later)
            found.append(self._kernel(stream))
            for event, of in [pair for pair in later if pair[1] == stream]:
                found.append(Action("record", event, of))
                later.remove((event, of))
            if random.random() < 0.15 and len(streams) > 1:
                recorded.append((self._event(), stream))
                found.append(Action("record", recorded[-1][0], stream))
            for number in [n for n, at in enumerate(messages) if at == index]:
                open_messages.append(self._operation())
                found.append(self._communication(number, open_messages[-1], stream))
            if open_messages and random.random() < 0.4:
                found.append(Action("finish", open_messages.pop(0), random.choice(streams)))
            if random.random() < self.syncs:
                found.append(self._sync(streams, recorded))
        found += [Action("finish", number, streams[0]) for number in open_messages]
        return found + [Action("record", event, of) for event, of in later]

    def _kernel(self, stream: int) -> Action:
        size = _between(self.random, LEAST_NS, self.longest)
        return Action("kernel", self._operation(), stream, size)

    def _communication(self, number: int, operation: int, stream: int) -> Action:
        to_all, size = self.messages[number]
        pair = ("send", "receive") if number % 2 else ("receive", "send")
        does = "all-reduce" if to_all else pair[self.rank_number]
        return Action(does, operation, stream, size)

    def _edge(
        self,
        stream: int,
        streams: list[int],
        recorded: list[tuple[int, int]],
        later: list[tuple[int, int]],
    ) -> list[Action]:
        """`stream` waits for another: for what is on it now, was once, or was an iteration ago."""
        random = self.random
        other = random.choice([s for s in streams if s != stream])
        if random.random() < self.adjacent:
            event = self._event()
            return [Action("record", event, other), Action("wait", event, stream)]
        older = [event for event, of in recorded if of != stream]
        if older and random.random() < 0.8:
            return [Action("wait", random.choice(older), stream)]
        later.append((self._event(), other))
        return [Action("wait", later[-1][0], stream)]

    def _sync(self, streams: list[int], recorded: list[tuple[int, int]]) -> Action:
        does = self.random.choice(SYNCS)
        stream = self.random.choice(streams)
        if does == "sync-event" and recorded:
            return Action(does, self.random.choice(recorded)[0])
        if does == "item":
            return Action(does, self._operation(), stream)
        return Action("sync-stream", 0, stream)


def _limited(rank: Rank) -> Rank:
    """Kernels and work made shorter where an iteration would take too long."""
    kernels = sum(a.size for a in rank.actions() if a.does == "kernel")
    works = [sum(a.size for a in thread if a.does == "work") for thread in rank.threads]
    factor = {
        "kernel": min(1.0, MOST_KERNEL_NS / kernels),
        "work": min(1.0, MOST_WORK_NS / max(*works, 1)),
    }

    def shorter(action: Action) -> Action:
        if action.does not in factor:
            return action
        size = max(round(action.size * factor[action.does]), round(LEAST_NS))
        return Action(action.does, action.number, action.stream, size)

    threads = tuple(tuple(map(shorter, thread)) for thread in rank.threads)
    return Rank(threads, rank.tail)


def encoded(program: Program) -> dict[str, Any]:
    """As JSON has it."""

    def actions(each: tuple[Action, ...]) -> list[list[Any]]:
        return [[a.does, a.number, a.stream, a.size] for a in each]

    return {
        "seed": program.seed,
        "streams": program.streams,
        "fresh": program.fresh,
        "ranks": [
            {"threads": [actions(thread) for thread in rank.threads], "tail": actions(rank.tail)}
            for rank in program.ranks
        ],
    }


def decoded(found: dict[str, Any]) -> Program:
    """The program that was encoded."""

    def actions(each: list[list[Any]]) -> tuple[Action, ...]:
        return tuple(Action(*one) for one in each)

    ranks = tuple(
        Rank(tuple(actions(thread) for thread in rank["threads"]), actions(rank["tail"]))
        for rank in found["ranks"]
    )
    return Program(found["seed"], found["streams"], found["fresh"], ranks)
