"""Owners of kernels that nothing encloses at their launch, by what the recording noted of them.

A replay of a CUDA graph is one call: its kernels are the nodes of the graph, in the order of their
capture, and a node is found by its name, the third kernel of a name being the third node of it.
Code that torch.compile made calls kernels and operators in an order that is noted too: the third
kernel of a name in one run of the code is its third call of that name. Where the numbers do not
fit, nothing is said but what all calls of the name have in common.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from traceprobe.model.events import UNKNOWN, Call, Int64s, Kind
from traceprobe.model.owner_limits import LONGEST_OWNER
from traceprobe.model.sidecar import KernelOwners
from traceprobe.model.taxonomy import Level
from traceprobe.timeline.host_paths import Paths
from traceprobe.timeline.operators import innermost_rows, parents
from traceprobe.timeline.process_timeline import ProcessTimeline

COMPILED_CALL = re.compile(r"^## Call CompiledFxGraph (\S+) ##$")
"""The range around a run of compiled code, with what the code is called."""
_OF_DRIVER = re.compile(r"mem(?:cpy|set)(?=\d\w*$)")
"""Kernels by which the driver copies and clears small pieces."""
_COPIES = {int(Kind.H2D), int(Kind.D2H), int(Kind.D2D)}
_MOST_TRIED = 20
"""Graphs that a replay is compared with, besides the one that it should be."""

Owner = tuple[int, int, tuple[int, ...]]
"""Operator, line and modules, each a place in the texts; UNKNOWN for none."""
_NOBODY: Owner = (UNKNOWN, UNKNOWN, ())


@dataclass(frozen=True)
class OwnedKernels:
    """Paths above operations, with those that the recording knows of.

    Args:
        above: path of each operation. names: of the trace, and behind them those of the owners.
        replays, unfit: replays of graphs in the trace, and those that fit no graph that was noted.
    """

    above: Int64s
    names: Sequence[str]
    replays: int = 0
    unfit: int = 0


@dataclass
class _Found:
    """What was noted, by what it is asked for.

    Args:
        entries: owners of the calls of a name, in order, by (code, name); of all code together by
            (UNKNOWN, name).
    """

    owners: list[Owner]
    nodes: list[list[tuple[str, int]]]
    replayed: list[int]
    texts: list[str]
    entries: dict[tuple[int, str], list[Owner]] = field(default_factory=dict)
    codes: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, noted: KernelOwners) -> _Found:
        """Raises IndexError or ValueError for places that are in no list."""
        texts = noted.texts
        owners = [(each[0], each[1], tuple(n for n in each[2:] if n >= 0)) for each in noted.owners]
        if any(max(o, line, *modules, 0) >= len(texts) > 0 for o, line, modules in owners):
            raise ValueError("texts")
        nodes = []
        for graph in noted.graphs:
            number = np.arange(len(graph.calls)).repeat([max(count, 0) for count, _ in graph.calls])
            if len(number) != len(graph.names):
                raise ValueError("nodes")
            named = zip(graph.names, number.tolist(), strict=True)
            nodes.append([(texts[name], call) for name, call in named if name >= 0])
        found = cls(owners, nodes, list(noted.replays), texts)
        for code, compiled in enumerate(noted.compiled):
            if compiled.key:
                found.codes.setdefault(compiled.key, code)
            for name, owner in compiled.calls:
                for place in (code, UNKNOWN):
                    known = found.owner(owner)
                    found.entries.setdefault((place, texts[name]), []).append(known)
        return found

    def owner(self, number: int) -> Owner:
        """An owner by its number."""
        return self.owners[number] if number >= 0 else _NOBODY


def owned_kernels(
    process: ProcessTimeline,
    ops: pl.DataFrame,
    above: Int64s,
    paths: Paths,
    names: Sequence[str],
    noted: KernelOwners,
) -> OwnedKernels:
    """Paths above the operations of a device, those of the recording where it knows them.

    Args:
        above: what encloses the launch of each, UNKNOWN for nothing.
        names: of the trace.
    """
    try:
        found = _Found.of(noted)
    except (IndexError, ValueError):
        return OwnedKernels(above, names)
    called = [_key(name) for name in names]
    calls = _CompiledRuns.of(process, names, found.codes)
    thread, launch = ops["thread"].to_numpy(), ops["launch_t0"].to_numpy()
    run, code = calls.at(thread, launch)
    owner: dict[int, Owner] = {}
    replays = _Replays(found, called, noted)
    replays.fit(process.calls, ops)
    for op, (replay, graph, call) in replays.calls.items():
        known = found.owner(noted.graphs[graph].calls[call][1])
        if known != _NOBODY:
            owner[op] = known
    # Kernels by their names, in each run of compiled code, or in each replay.
    group = np.where(run >= 0, run, UNKNOWN)
    for op, (replay, _, _) in replays.rows():
        group[op] = -2 - replay
    kernel = ops["name"].to_list()
    wanted = {name for _, name in found.entries}
    items = [
        (int(group[op]), int(code[op]), called[kernel[op]], op)
        for op in range(len(kernel))
        if group[op] != UNKNOWN and called[kernel[op]] in wanted
    ]
    owner.update(_matched(items, found))
    owner.update(_operators(process, ops, names, calls, found, wanted))
    owner.update(_operators_of_replays(replays, code, noted, found))
    return OwnedKernels(
        *_paths(owner, above, paths, names, found.texts), replays.count, replays.unfit
    )


def _key(name: str) -> str:
    """A kernel's name as the recording notes it: a long one as its digest."""
    if len(name) <= LONGEST_OWNER:
        return name
    return "#" + hashlib.blake2b(name.encode("utf-8", "replace"), digest_size=12).hexdigest()


class _Replays:
    """Which operation is which node of which graph.

    Attributes:
        calls: operation to (number of the replay, graph, call in it).
        count, unfit: replays with operations, and those of no graph that was noted.
    """

    def __init__(self, found: _Found, called: list[str], noted: KernelOwners) -> None:
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
            waiting: dict[str, list[int]] = defaultdict(list)
            for key, call in self._found.nodes[graph]:
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
        if 0 <= likely < len(self._counts) and self._counts[likely] == count:
            return likely
        tried = self._by_size.get(len(keys), [])[:_MOST_TRIED]
        fitting = [graph for graph in tried if self._counts[graph] == count]
        return fitting[0] if len(fitting) == 1 else None


@dataclass(frozen=True)
class _CompiledRuns:
    """Runs of compiled code on the host: arrays equally long, sorted by thread and start."""

    thread: Int64s
    t0: Int64s
    t1: Int64s
    code: Int64s

    @classmethod
    def of(
        cls, process: ProcessTimeline, names: Sequence[str], codes: Mapping[str, int]
    ) -> _CompiledRuns:
        columns = ("thread", "t0", "t1", "name")
        parts = [
            rows.select(pl.col(c).cast(pl.Int64) for c in columns)
            for rows in (process.operators, process.ranges)
        ]
        rows = pl.concat(parts)
        matches = {n: COMPILED_CALL.match(names[n]) for n in rows["name"].unique().to_list()}
        known = {n: codes.get(match[1], UNKNOWN) for n, match in matches.items() if match}
        rows = rows.filter(pl.col("name").is_in(list(known))).sort("thread", "t0", -pl.col("t1"))
        code = np.array([known[n] for n in rows["name"].to_list()], dtype=np.int64)
        return cls(*(rows[c].to_numpy() for c in columns[:3]), code)

    def at(self, thread: Int64s, instants: Int64s) -> tuple[Int64s, Int64s]:
        """Number of the run that each instant is in, and its code; UNKNOWN for none."""
        run = np.full(len(instants), UNKNOWN, dtype=np.int64)
        for number in np.unique(self.thread).tolist():
            rows = np.flatnonzero(self.thread == number)
            t0, t1 = self.t0[rows], self.t1[rows]
            mine = np.flatnonzero(thread == number)
            at = innermost_rows(t0, t1, parents(t0, t1), instants[mine])
            run[mine] = np.where(at >= 0, rows[np.maximum(at, 0)], UNKNOWN)
        if not len(self.code):
            return run, run.copy()
        return run, np.where(run >= 0, self.code[np.maximum(run, 0)], UNKNOWN)


def _matched(
    items: Iterable[tuple[int, int, str, int]], found: _Found
) -> Iterator[tuple[int, Owner]]:
    """Owners of things that were called in order.

    Args:
        items: the run or replay that each was in, its code, its name, and what is passed on.
    """
    together: dict[tuple[int, int, str], list[int]] = defaultdict(list)
    for group, code, name, item in items:
        together[group, code, name].append(item)
    for (_, code, name), members in together.items():
        entries = found.entries.get((code, name)) or found.entries.get((UNKNOWN, name)) or []
        if not entries:
            continue
        if len(members) % len(entries):
            entries = [_common(entries)]
        for place, item in enumerate(members):
            owner = entries[place % len(entries)]
            if owner != _NOBODY:
                yield item, owner


def _common(entries: Sequence[Owner]) -> Owner:
    """What some owners have in common."""
    operators, lines = {each[0] for each in entries}, {each[1] for each in entries}
    modules: list[int] = []
    for steps in zip(*(each[2] for each in entries), strict=False):
        if len(set(steps)) > 1:
            break
        modules.append(steps[0])
    return (
        operators.pop() if len(operators) == 1 else UNKNOWN,
        lines.pop() if len(lines) == 1 else UNKNOWN,
        tuple(modules),
    )


def _operators(
    process: ProcessTimeline,
    ops: pl.DataFrame,
    names: Sequence[str],
    runs: _CompiledRuns,
    found: _Found,
    wanted: set[str],
) -> Iterator[tuple[int, Owner]]:
    """Owners of what operators launch that compiled code calls."""
    used = [n for n in process.operators["name"].unique().to_list() if names[n] in wanted]
    rows = process.operators.filter(pl.col("name").is_in(used) & ~pl.col("name").is_null())
    rows = rows.sort("thread", "t0", -pl.col("t1"))
    thread, t0, t1, name = (rows[c].to_numpy() for c in ("thread", "t0", "t1", "name"))
    if not len(rows):
        return
    run, code = runs.at(thread, t0)
    items = [
        (int(run[row]), int(code[row]), names[int(name[row])], row)
        for row in range(len(rows))
        if run[row] >= 0 and not names[int(name[row])].startswith(("triton_", "cpp_"))
    ]
    owner = dict(_matched(items, found))
    op_thread, launch = ops["thread"].to_numpy(), ops["launch_t0"].to_numpy()
    for number in np.unique(thread).tolist():
        here = np.array(
            [row for row in np.flatnonzero(thread == number).tolist() if row in owner],
            dtype=np.int64,
        )
        if not len(here):
            continue
        mine = np.flatnonzero(op_thread == number)
        at = innermost_rows(t0[here], t1[here], parents(t0[here], t1[here]), launch[mine])
        for op, row in zip(mine.tolist(), at.tolist(), strict=True):
            if row >= 0:
                yield op, owner[int(here[row])]


def _operators_of_replays(
    replays: _Replays, code: Int64s, noted: KernelOwners, found: _Found
) -> Iterator[tuple[int, Owner]]:
    """The same in replays of graphs that compiled code was captured in."""
    members: dict[tuple[int, int, int], list[int]] = defaultdict(list)
    for op, place in replays.calls.items():
        if code[op] >= 0:
            members[place].append(op)
    items, groups = [], []
    for (replay, graph, call), rows in sorted(members.items()):
        operator = found.owner(noted.graphs[graph].calls[call][1])[0]
        if operator >= 0:
            name = found.texts[operator]
            if (int(code[rows[0]]), name) in found.entries:
                items.append((-2 - replay, int(code[rows[0]]), name, len(groups)))
                groups.append(rows)
    for place, owner in _matched(items, found):
        for op in groups[place]:
            yield op, owner


def _paths(
    owner: Mapping[int, Owner],
    above: Int64s,
    paths: Paths,
    names: Sequence[str],
    texts: Sequence[str],
) -> tuple[Int64s, list[str]]:
    """The paths of operations with owners: ranges and modules around the launch, then the owner."""
    named = list(names)
    numbers: dict[str, int] = {}
    for number, name in enumerate(names):
        numbers.setdefault(name, number)

    def number_of(text: int) -> int:
        if texts[text] not in numbers:
            numbers[texts[text]] = len(named)
            named.append(texts[text])
        return numbers[texts[text]]

    def step(parent: int, level: Level, name: int) -> int:
        return int(paths.below(np.array([parent]), level, np.array([name]))[0])

    def path_of(base: int, of: Owner) -> int:
        operator, line, modules = of
        kept = [
            (level, name)
            for level, name in _steps(base, paths)
            if level in (Level.RANGE, Level.MODULE) or (level == Level.LINE and line < 0)
            if not COMPILED_CALL.match(named[name])
        ]
        around = {name for level, name in kept if level == Level.MODULE}
        inner = [n for n in map(number_of, modules) if n not in around]
        kept[_below_modules(kept) : _below_modules(kept)] = [(Level.MODULE, n) for n in inner]
        if line >= 0:
            kept.append((Level.LINE, number_of(line)))
        if operator >= 0:
            kept.append((Level.OPERATOR, number_of(operator)))
        at = UNKNOWN
        for level, name in kept:
            at = step(at, Level(level), name)
        return at

    found = above.copy()
    known: dict[tuple[int, Owner], int] = {}
    for op, of in owner.items():
        key = int(above[op]), of
        if key not in known:
            known[key] = path_of(*key)
        found[op] = known[key]
    return found, named


def _below_modules(steps: Sequence[tuple[int, int]]) -> int:
    """Place below the last module or range among some steps."""
    return len(steps) - (1 if steps and steps[-1][0] == Level.LINE else 0)


def _steps(path: int, paths: Paths) -> list[tuple[int, int]]:
    """Level and name of each step to a path."""
    found = []
    while path >= 0:
        found.append((paths.level[path], paths.name[path]))
        path = paths.parent[path]
    return found[::-1]
