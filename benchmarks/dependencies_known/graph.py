"""What depends on what in a program, by construction, and when everything ends by that."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

from benchmarks.dependencies_known.program import (
    COMMUNICATION,
    DEVICE,
    Action,
    Intervention,
    Program,
)

Operation = tuple[int, int, int]
"""Rank, iteration, and number of an operation."""
Stream = int | str
"""Of a program, or one of NCCL's: `all` for all ranks, `pair` for two."""
Same = Mapping[Stream, Stream]
"""Streams that were another one: torch has 32 of them in turn, for programs and NCCL alike."""


@dataclass(frozen=True)
class Costs:
    """What an H200 and its host need beside what the program asks for, ns; about."""

    launch: float = 3_000
    event: float = 2_000
    message: float = 50_000
    barrier: float = 20_000
    latency: float = 3_000
    """From a launch to its start on an idle stream."""
    gap: float = 1_000
    """Between operations of a stream."""
    across: float = 2_000
    """From the end of an operation to the start of what waits for it on another stream."""
    woken: float = 8_000
    """From the end of what the host waits for to its going on."""
    copy: float = 2_000
    """A number to the host."""
    per_byte: float = 1 / 200


@dataclass(frozen=True)
class Edge:
    """`op` needs the end of `needs`: by an `event`, or because the `host` waited."""

    needs: Operation
    op: Operation
    source: str


@dataclass(frozen=True)
class Done:
    """An action of a thread in an iteration, between two nodes of the host."""

    rank: int
    iteration: int
    thread: int
    action: Action
    begin: int
    end: int


@dataclass
class Graph:
    """Nodes in lists: the end of each is that of the latest before it, and its own time.

    Args:
        ops, works: nodes of operations and of host work. launches: of launches of operations.
        marks: of each iteration, the node after which its stream 0 has joined all others.
        edges: those between streams and by host. done: what the host did, thread by thread.
    """

    own: list[float] = field(default_factory=list)
    before: list[list[tuple[int, float]]] = field(default_factory=list)
    ops: dict[Operation, int] = field(default_factory=dict)
    works: dict[Operation, int] = field(default_factory=dict)
    launches: dict[Operation, int] = field(default_factory=dict)
    marks: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    edges: list[Edge] = field(default_factory=list)
    done: list[Done] = field(default_factory=list)

    def node(self, own: float, before: Sequence[tuple[int, float]]) -> int:
        """Add one."""
        self.own.append(own)
        self.before.append(list(before))
        return len(self.own) - 1

    def order(self) -> list[int]:
        """Every node after those before it."""
        after: list[list[int]] = [[] for _ in self.own]
        open_ones = [len(before) for before in self.before]
        for node, before in enumerate(self.before):
            for other, _ in before:
                after[other].append(node)
        ready = [node for node, count in enumerate(open_ones) if not count]
        heapify(ready)
        found = []
        while ready:
            node = heappop(ready)
            found.append(node)
            for other in after[node]:
                open_ones[other] -= 1
                if not open_ones[other]:
                    heappush(ready, other)
        assert len(found) == len(self.own), "the program waits for itself"
        return found

    def ends(self, longer: Mapping[int, float] | None = None) -> list[float]:
        """When every node ends; some take `longer`, ns."""
        more, found = longer or {}, [0.0] * len(self.own)
        for node in self.order():
            begin = max((found[other] + cost for other, cost in self.before[node]), default=0.0)
            found[node] = begin + self.own[node] + more.get(node, 0.0)
        return found

    def step(self, longer: Mapping[int, float] | None = None) -> float:
        """Mean step of the slowest rank once it is steady, ns."""
        ends = self.ends(longer)
        steps = []
        for marks in self.marks.values():
            half = len(marks) // 2
            steps.append((ends[marks[-1]] - ends[marks[half - 1]]) / (len(marks) - half))
        return max(steps)

    def longer(self, change: Intervention) -> dict[int, float]:
        """Nodes that take longer by an intervention."""
        nodes = self.works if change.does == "work" else self.ops
        return {
            node: float(change.delta_ns)
            for (rank, _, number), node in nodes.items()
            if (rank, number) == (change.rank, change.number)
        }

    def ancestors(self) -> list[int]:
        """For each node, a set of bits: the nodes that have ended when it ends."""
        found = [0] * len(self.own)
        for node in self.order():
            for other, _ in self.before[node]:
                found[node] |= found[other] | 1 << other
        return found


def build(program: Program, iterations: int, same: Sequence[Same] = ()) -> Graph:
    """The graph of so many iterations of a program.

    Args:
        same: of each rank, streams that were another one.
    """
    graph = Graph()
    shared: dict[int, int] = {}
    for rank in range(len(program.ranks)):
        _Builder(graph, program, rank, same[rank] if same else {}, shared).play(iterations)
    return graph


class _Builder:
    """Plays the actions of a rank into a graph."""

    def __init__(
        self,
        graph: Graph,
        program: Program,
        rank: int,
        same: Same,
        shared: dict[int, int],
    ) -> None:
        self.graph, self.number, self.same, self.shared = graph, rank, same, shared
        self.costs = Costs()
        self.rank = program.ranks[rank]
        self.last: dict[Stream, int] = {}
        """By stream, its last operation."""
        self.waits: dict[Stream, list[int]] = defaultdict(list)
        """By stream, operations that its next one waits for."""
        self.events: dict[int, list[int]] = {}
        self.operation_of: dict[int, Operation] = {}
        self.stream_of: dict[int, Stream] = {}
        self.host = [graph.node(0.0, []) for _ in self.rank.threads]
        self.awaited: list[list[int]] = [[] for _ in self.rank.threads]
        """By thread, operations that its next launch comes after."""
        self.open: dict[int, int] = {}
        self.messages = 0

    def play(self, iterations: int) -> None:
        """Everything, so many times."""
        for iteration in range(iterations):
            for thread, actions in enumerate(self.rank.threads):
                for action in actions:
                    self._act(iteration, thread, action)
            self._barrier()
            for action in self.rank.tail:
                self._act(iteration, 0, action)
            before = [(node, 0.0) for node in self._captured(self._real(0))]
            mark = self.graph.node(0.0, [*before, (self.host[0], self.costs.latency)])
            self.graph.marks[self.number].append(mark)
            self._barrier()

    def _barrier(self) -> None:
        if len(self.host) > 1:
            before = [(node, 0.0) for node in self.host]
            self.host = [self.graph.node(self.costs.barrier, before)] * len(self.host)

    def _real(self, stream: Stream) -> Stream:
        return self.same.get(stream, stream)

    def _captured(self, stream: Stream) -> list[int]:
        """What an event that is recorded on a stream now comes after."""
        last = [self.last[stream]] if stream in self.last else []
        return self._latest([*last, *self.waits[stream]])

    def _latest(self, nodes: list[int]) -> list[int]:
        """Of each stream, the last of these operations, which comes after the others."""
        return list({self.stream_of[node]: node for node in sorted(nodes)}.values())

    def _act(self, iteration: int, thread: int, action: Action) -> None:
        begin = self.host[thread]
        self._do(iteration, thread, action)
        done = Done(self.number, iteration, thread, action, begin, self.host[thread])
        self.graph.done.append(done)

    def _do(self, iteration: int, thread: int, action: Action) -> None:
        does, stream, costs = action.does, self._real(action.stream), self.costs
        if does == "work":
            self._host(thread, float(action.size))
            self.graph.works[self.number, iteration, action.number] = self.host[thread]
        elif does == "record":
            self._host(thread, costs.event)
            self.events[action.number] = self._captured(stream)
        elif does == "wait":
            self._host(thread, costs.event)
            self._wait(stream, self.events.get(action.number, []))
        elif does == "finish":
            self._host(thread, costs.event)
            self._wait(stream, [self.open[action.number]])
        elif does == "sync-event":
            self._sync(thread, self.events.get(action.number, []))
        elif does == "sync-stream":
            self._sync(thread, self._captured(stream))
        elif does in DEVICE:
            self._launch(iteration, thread, action)

    def _wait(self, stream: Stream, targets: list[int]) -> None:
        others = [node for node in targets if self.stream_of[node] != stream]
        self.waits[stream] = self._latest(self.waits[stream] + others)

    def _host(self, thread: int, cost: float, before: Sequence[tuple[int, float]] = ()) -> None:
        self.host[thread] = self.graph.node(cost, [(self.host[thread], 0.0), *before])

    def _sync(self, thread: int, targets: list[int]) -> None:
        self._host(thread, self.costs.event, [(node, self.costs.woken) for node in targets])
        self.awaited[thread] += targets

    def _launch(self, iteration: int, thread: int, action: Action) -> None:
        costs, operation = self.costs, (self.number, iteration, action.number)
        message = action.does in COMMUNICATION
        self._host(thread, costs.message if message else costs.launch)
        stream = self._real(action.stream)
        needs = list(self.waits[stream])
        if message:
            before_it = self._captured(stream)
            stream = self._real("all" if action.does == "all-reduce" else "pair")
            needs = [node for node in before_it if self.stream_of[node] != stream]
            needs = self._latest(needs + self.waits[stream])
        self.waits[stream] = []
        before = [(self.host[thread], costs.latency)]
        before += [(node, costs.across) for node in needs]
        if stream in self.last:
            before.append((self.last[stream], costs.gap))
        own = {"kernel": float(action.size), "item": costs.copy}
        node = self.graph.node(own.get(action.does, action.size * costs.per_byte), before)
        if message:
            self._together(node, sends=action.does == "send")
            self.open[action.number] = node
        self.last[stream] = node
        self.graph.ops[operation] = node
        self.graph.launches[operation] = self.host[thread]
        self.operation_of[node], self.stream_of[node] = operation, stream
        for source, targets in (("event", needs), ("host", self.awaited[thread])):
            for target in self._latest(targets):
                self.graph.edges.append(Edge(self.operation_of[target], operation, source))
        self.awaited[thread] = []
        if action.does == "item":
            self._sync(thread, [node])

    def _together(self, node: int, *, sends: bool) -> None:
        """A message starts on all ranks when the last of them is ready; but NCCL buffers a send."""
        start = self.shared.setdefault(self.messages, len(self.graph.own))
        self.messages += 1
        if start == len(self.graph.own):
            self.graph.node(0.0, [])
        self.graph.before[start] += self.graph.before[node]
        if not sends:
            self.graph.before[node] = [(start, 0.0)]
