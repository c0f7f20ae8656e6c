"""Which operation is which node of a CUDA graph, by the names of nodes that a recording noted."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable

import polars as pl

from traceprobe.model.codes import UNKNOWN, Call, Kind
from traceprobe.timeline.noted_owners import NotedOwners

_OF_DRIVER = re.compile(r"mem(?:cpy|set)(?=\d\w*$)")
"""Kernels by which the driver copies and clears small pieces."""
_UNTOLD = ""
"""Name of a node whose kernel the driver did not name."""
_COPIES = {int(Kind.H2D), int(Kind.D2H), int(Kind.D2D)}
_MOST_TRIED = 20
"""Graphs that a replay is compared with, besides the one that it should be."""


class GraphReplays:
    """Which operation is which node of which graph.

    Attributes:
        calls: operation to (number of the replay, graph, call in it).
        count, unfit: replays with operations, and those of no graph that was noted.
    """

    def __init__(self, found: NotedOwners, called: list[str]) -> None:
        self.calls: dict[int, tuple[int, int, int]] = {}
        self.count = self.unfit = 0
        self._found = found
        self._called = called
        self._rows: dict[int, tuple[int, int, int]] = {}
        self._counts = [Counter(name for name, _ in nodes) for nodes in found.nodes]
        self._by_size: dict[int, list[int]] = defaultdict(list)
        for graph, nodes in enumerate(found.nodes):
            self._by_size[len(nodes)].append(graph)

    def rows(self) -> Iterable[tuple[int, tuple[int, int, int]]]:
        """Operations of all replays, of unknown graphs too: (number of the replay, …)."""
        return self._rows.items()

    def fit(self, calls: pl.DataFrame, ops: pl.DataFrame) -> None:
        """Fit all replays."""
        launches = calls.filter(
            (pl.col("call") == int(Call.GRAPH_LAUNCH)) & (pl.col("correlation") != UNKNOWN)
        ).sort("t0")
        numbers = {c: k for k, c in enumerate(launches["correlation"].to_list())}
        replayed = self._found.replayed
        behind = len(replayed) - len(numbers)
        members: dict[int, list[int]] = defaultdict(list)
        for op, correlation in enumerate(ops["correlation"].to_list()):
            if correlation in numbers:
                members[numbers[correlation]].append(op)
        name, kind = ops["name"].to_list(), ops["kind"].to_list()
        for replay, rows in sorted(members.items()):
            self.count += 1
            keys = [self._name(name[op], kind[op]) for op in rows]
            place = behind + replay
            likely = replayed[place] if 0 <= place < len(replayed) else UNKNOWN
            graph = self._graph(likely, keys)
            self._rows.update((op, (replay, UNKNOWN, UNKNOWN)) for op in rows)
            if graph is None:
                self.unfit += 1
                continue
            nodes = self._found.nodes[graph]
            if _UNTOLD in self._counts[graph]:  # their order is all that is known
                keys = [key for key, _ in nodes]
            waiting: dict[str, list[int]] = defaultdict(list)
            for key, call in nodes:
                waiting[key].append(call)
            used: Counter[str] = Counter()
            for op, key in zip(rows, keys, strict=True):
                self.calls[op] = replay, graph, waiting[key][used[key]]
                used[key] += 1

    def _name(self, name: int, kind: int) -> str:
        if kind in _COPIES:
            return "memcpy"
        if kind == int(Kind.MEMSET):
            return "memset"
        by_driver = _OF_DRIVER.match(self._called[name])
        return by_driver[0] if by_driver else self._called[name]

    def _graph(self, likely: int, keys: list[str]) -> int | None:
        """The graph whose nodes these are: the likely one, else the only one with such nodes."""
        count = Counter(keys)
        if 0 <= likely < len(self._counts) and self._fits(likely, count, len(keys)):
            return likely
        tried = self._by_size.get(len(keys), [])[:_MOST_TRIED]
        fitting = [graph for graph in tried if self._fits(graph, count, len(keys))]
        return fitting[0] if len(fitting) == 1 else None

    def _fits(self, graph: int, count: Counter[str], size: int) -> bool:
        nodes = self._counts[graph]
        return nodes == count or (_UNTOLD in nodes and len(self._found.nodes[graph]) == size)
