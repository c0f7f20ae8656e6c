"""Where the host was, as paths: ranges, calls of modules and operators that enclose an instant.

A path is a number; it stands for a step (a `Level` and a name) below another path. Autograd runs
the backward pass on a thread of its own, where no module is called: what an operator there does
belongs to the modules that its forward operator ran in, with which it shares a sequence number; in
a program without modules, to the parts that its user's ranges make of it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from traceprobe.model.events import UNKNOWN, Int64s, Source
from traceprobe.model.step_names import counts_the_loop
from traceprobe.model.taxonomy import Level
from traceprobe.timeline.operators import innermost_rows, parents
from traceprobe.timeline.process_timeline import ProcessTimeline

_OPERATOR = re.compile(r"^(?:(?!cub::|thrust::)[a-z_]\w*::\w|\w+Backward\d*$)")
"""Ranges of NVTX that are called like operators: `aten::mul`, `flash_attn::forward`; not those of
libraries that operators use."""
_NAMES = 1 << 31
_LEVELS = len(Level)


@dataclass
class Paths:
    """All paths, by number.

    Args:
        parent: number of the path that each is one step below, UNKNOWN for the first step.
        level, name: the step: `Level`, and index into the names of the trace.
    """

    parent: list[int] = field(default_factory=list)
    level: list[int] = field(default_factory=list)
    name: list[int] = field(default_factory=list)
    _numbers: dict[int, int] = field(default_factory=dict)

    def below(self, parent: Int64s, level: Int64s | Level, name: Int64s) -> Int64s:
        """The paths one step below others. `parent` and `name` are equally long."""
        steps, place = np.unique(
            ((parent + 1) * _LEVELS + level) * _NAMES + name, return_inverse=True
        )
        return np.array([self._number(step) for step in steps.tolist()], dtype=np.int64)[place]

    def nothing(self) -> int:
        """The path of what the trace has no owner for."""
        none = np.zeros(1, dtype=np.int64)
        return int(self.below(none + UNKNOWN, Level.UNKNOWN, none)[0])

    def _number(self, step: int) -> int:
        known = self._numbers.get(step)
        if known is None:
            above, name = divmod(step, _NAMES)
            parent, level = divmod(above, _LEVELS)
            known = self._numbers[step] = len(self.parent)
            self.parent.append(parent - 1)
            self.level.append(level)
            self.name.append(name)
        return known


@dataclass(frozen=True)
class HostNest:
    """What encloses what on one thread: arrays equally long, sorted by start.

    Args:
        parent: row of what encloses each one, UNKNOWN for none. level: `Level`. path: its own.
    """

    t0: Int64s
    t1: Int64s
    parent: Int64s
    level: Int64s
    path: Int64s

    def at(self, instants: Int64s) -> Int64s:
        """Row of the innermost one at each instant, its end in it; UNKNOWN for none."""
        return innermost_rows(self.t0, self.t1, self.parent, instants)

    def between(self, starts: Int64s) -> Int64s:
        """The same just after each instant."""
        return innermost_rows(2 * self.t0, 2 * self.t1, self.parent, 2 * starts + 1)

    def paths_at(self, instants: Int64s) -> Int64s:
        """Path at each instant, UNKNOWN for none."""
        return _taken(self.path, self.at(instants))


def host_nests(
    process: ProcessTimeline, names: Sequence[str], threads: Sequence[int]
) -> tuple[Paths, dict[int, HostNest]]:
    """The paths of a process, and what is nested on each of some threads.

    Args:
        names: of the trace.
    """
    paths = Paths()
    ranges = _ranges(process.ranges, names)
    modules = _of_level(process.modules, Level.MODULE)
    operators = _of_level(process.operators, Level.OPERATOR)
    parts = modules if len(modules) else _parts(process, names)
    owners = _modules_of_backward(process.operators, parts, paths)
    operators = operators.with_columns(owner=owners)
    rows = pl.concat([ranges, modules, operators], how="diagonal").with_columns(
        pl.col("owner").fill_null(UNKNOWN)
    )
    return paths, {n: _nest(rows.filter(pl.col("thread") == n), paths) for n in threads}


def _ranges(ranges: pl.DataFrame, names: Sequence[str]) -> pl.DataFrame:
    """Ranges of the program and of its frameworks, but those that count the loop.

    Who owns some time is the same in every iteration.
    """
    used = ranges["name"].unique().to_list()
    counted = [n for n in used if counts_the_loop(names[n])]
    operators = [n for n in used if _OPERATOR.match(names[n])]
    wanted = ranges.filter(
        pl.col("source").is_in([int(Source.USER), int(Source.FRAMEWORK)])
        & ~pl.col("name").is_in(counted)
    )
    level = (
        pl.when(pl.col("name").is_in(operators))
        .then(int(Level.OPERATOR))
        .otherwise(int(Level.RANGE))
    )
    return wanted.select(
        "thread", "t0", "t1", level=level.cast(pl.Int64), name=pl.col("name").cast(pl.Int64)
    )


def _parts(process: ProcessTimeline, names: Sequence[str]) -> pl.DataFrame:
    """Ranges of the user that name no phase: parts of the program, as modules are."""
    marks = process.marks
    phases = pl.DataFrame({"thread": marks.thread, "t0": marks.t0, "t1": marks.t1})
    ranges = process.ranges.filter(pl.col("source") == int(Source.USER))
    return _ranges(ranges.join(phases, on=phases.columns, how="anti"), names)


def _of_level(rows: pl.DataFrame, level: Level) -> pl.DataFrame:
    return rows.select(
        "thread", "t0", "t1", pl.lit(int(level), pl.Int64).alias("level"), pl.col("name").cast(int)
    )


def _nest(rows: pl.DataFrame, paths: Paths) -> HostNest:
    """The nest of one thread, and the paths of its rows."""
    rows = rows.sort("t0", -pl.col("t1"), "level", maintain_order=True)
    t0, t1, level, name, owner = (
        rows[c].to_numpy() for c in ("t0", "t1", "level", "name", "owner")
    )
    parent = parents(t0, t1)
    path = np.full(len(t0), UNKNOWN, dtype=np.int64)
    in_module = level == Level.MODULE
    for found in _by_depth(parent):
        above = parent[found]
        within = (above >= 0) & in_module[above]
        adopted = (owner[found] != UNKNOWN) & ~within
        in_module[found] |= within | adopted
        base = np.where(adopted, owner[found], _taken(path, above))
        path[found] = paths.below(base, level[found], name[found])
    return HostNest(t0, t1, parent, level, path)


def _by_depth(parent: Int64s) -> list[Int64s]:
    """Rows by how many others enclose them."""
    depth = np.zeros(len(parent), dtype=np.int64)
    above = parent
    while (above >= 0).any():
        depth += above >= 0
        above = _taken(parent, above)
    order = np.argsort(depth, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(depth[order])) + 1) if len(order) else []


def _taken(values: Int64s, rows: Int64s) -> Int64s:
    """Values of rows, UNKNOWN for those of no row."""
    if not len(values):
        return np.full(len(rows), UNKNOWN, dtype=np.int64)
    return np.where(rows >= 0, values[np.maximum(rows, 0)], UNKNOWN)


def _modules_of_backward(operators: pl.DataFrame, modules: pl.DataFrame, paths: Paths) -> Int64s:
    """Path of the modules, or ranges, that the forward operator of each one ran in, or UNKNOWN."""
    found = np.full(len(operators), UNKNOWN, dtype=np.int64)
    if not len(modules):
        return found
    nests = {
        int(thread): _nest(rows.with_columns(owner=pl.lit(UNKNOWN, pl.Int64)), paths)
        for (thread,), rows in modules.partition_by("thread", as_dict=True).items()
    }
    numbered = operators.with_row_index("row").filter(pl.col("sequence") != UNKNOWN)
    columns = ("row", "sequence", "thread", "t0")
    forward = numbered.filter(pl.col("forward_thread") <= 0).select(columns).sort("t0")
    backward = numbered.filter(pl.col("forward_thread") > 0).sort("t0")
    for rows in backward.partition_by("forward_thread"):
        joined = _joined(rows.select(columns), forward, nests)
        for thread, nest in nests.items():
            mine = joined.filter(pl.col("thread_right") == thread)
            path = nest.paths_at(mine["forward_t0"].to_numpy())
            found[mine["row"].to_numpy()] = path
    return found


def _joined(
    backward: pl.DataFrame, forward: pl.DataFrame, threads: Mapping[int, HostNest]
) -> pl.DataFrame:
    """Backward operators with the last forward one before them that has their sequence number.

    Autograd numbers operators in each thread, and threads in a way of its own: theirs is the one
    whose operators fit most of them.
    """
    candidates = [
        backward.join_asof(
            forward.filter(pl.col("thread") == thread).with_columns(forward_t0=pl.col("t0")),
            on="t0",
            by="sequence",
            strategy="backward",
            check_sortedness=False,
        ).drop_nulls("forward_t0")
        for thread in sorted(threads)
    ]
    return max(candidates, key=len)
