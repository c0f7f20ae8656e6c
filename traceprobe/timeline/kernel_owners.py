"""Owners of kernels that nothing encloses at their launch, by what the recording noted of them.

A replay of a CUDA graph is one call: its kernels are the nodes of the graph, in the order of their
capture, and a node is found by its name, the third kernel of a name being the third node of it.
Code that torch.compile made calls kernels and operators in an order that is noted too: the third
kernel of a name in one run of the code is its third call of that name. Where the numbers do not
fit, nothing is said but what all calls of the name have in common.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import msgspec
import numpy as np
import polars as pl

from traceprobe.model.codes import UNKNOWN, Int64s
from traceprobe.model.sidecar import KernelOwners
from traceprobe.model.taxonomy import Level
from traceprobe.timeline.graph_replays import GraphReplays
from traceprobe.timeline.host_paths import Paths
from traceprobe.timeline.noted_owners import NOBODY, NotedOwners, Owner, kernel_key, matched
from traceprobe.timeline.operators import innermost_rows, parents
from traceprobe.timeline.process_timeline import ProcessTimeline

COMPILED_CALL = re.compile(r"^## Call CompiledFxGraph (\S+) ##$")
"""The range around a run of compiled code, with what the code is called."""


class OwnedKernels(msgspec.Struct, frozen=True):
    """Paths above operations, with those that the recording knows of.

    Args:
        above: path of each operation. names: of the trace, and behind them those of the owners.
        replays, unfit: replays of graphs in the trace, and those that fit no graph that was noted.
    """

    above: Int64s
    names: Sequence[str]
    replays: int = 0
    unfit: int = 0


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
        found = NotedOwners.of(noted)
    except ValueError:
        return OwnedKernels(above, names)
    called = [kernel_key(name) for name in names]
    calls = _CompiledRuns.of(process, names, found.codes)
    thread, launch = ops["thread"].to_numpy(), ops["launch_t0"].to_numpy()
    run, code = calls.at(thread, launch)
    owner: dict[int, Owner] = {}
    replays = GraphReplays(found, called)
    replays.fit(process.calls, ops)
    for op, (_, graph, call) in replays.calls.items():
        known = found.owner(noted.graphs[graph].calls[call][1])
        if known != NOBODY:
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
    owner.update(matched(items, found))
    owner.update(_operators(process, ops, names, calls, found, wanted))
    owner.update(_operators_of_replays(replays, code, noted, found))
    return OwnedKernels(
        *_paths(owner, above, paths, names, found.texts), replays.count, replays.unfit
    )


class _CompiledRuns(msgspec.Struct, frozen=True):
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
        thread, t0, t1 = (rows[c].to_numpy() for c in columns[:3])
        return cls(thread, t0, t1, code)

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


def _operators(
    process: ProcessTimeline,
    ops: pl.DataFrame,
    names: Sequence[str],
    runs: _CompiledRuns,
    found: NotedOwners,
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
    owner = dict(matched(items, found))
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
    replays: GraphReplays, code: Int64s, noted: KernelOwners, found: NotedOwners
) -> Iterator[tuple[int, Owner]]:
    """The same in replays of graphs that compiled code was captured in."""
    members: dict[tuple[int, int, int], list[int]] = defaultdict(list)
    for op, place in replays.calls.items():
        if code[op] >= 0:
            members[place].append(op)
    items: list[tuple[int, int, str, int]] = []
    groups: list[list[int]] = []
    for (replay, graph, call), rows in sorted(members.items()):
        operator = found.owner(noted.graphs[graph].calls[call][1])[0]
        if operator >= 0:
            name = found.texts[operator]
            if (int(code[rows[0]]), name) in found.entries:
                items.append((-2 - replay, int(code[rows[0]]), name, len(groups)))
                groups.append(rows)
    for number, owner in matched(items, found):
        for op in groups[number]:
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
