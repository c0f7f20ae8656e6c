"""Where the host was, as paths: ranges, modules, the line and operators that enclose an instant.

A path is a number; it stands for a step (a `Level` and a name) below another path. The line is the
innermost frame of the program's own code; it stands once in a path, just above the operators.
Autograd runs the backward pass on a thread of its own, where no module is called: what an operator
there does belongs to the modules and the line that its forward operator ran in, with which it
shares a sequence number; in a program without modules, to the user's ranges that it ran in.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

import msgspec
import numpy as np
import polars as pl

from traceprobe.model.codes import UNKNOWN, Bools, Int64s, Source
from traceprobe.model.step_names import counts_the_loop
from traceprobe.model.taxonomy import Level
from traceprobe.timeline.operators import innermost_rows, parents
from traceprobe.timeline.process_timeline import ProcessTimeline

_OPERATOR = re.compile(r"^(?:(?!cub::|thrust::)[a-z_]\w*::\w|\w+Backward\d*$)")
"""Ranges of NVTX that are called like operators: `aten::mul`, `flash_attn::forward`; not those of
libraries that operators use."""
_NUMBERED = re.compile(r"(.*[^\d])(\d{1,18})", re.DOTALL)
_MOST_NAME = 200
"""Characters of a name that are looked at for a number at their end."""
_NAMES = 1 << 31
_LEVELS = len(Level)


class Paths(msgspec.Struct):
    """All paths, by number.

    Args:
        parent: number of the path that each is one step below, UNKNOWN for the first step.
        level, name: the step: `Level`, and index into the names of the trace.
    """

    parent: list[int] = msgspec.field(default_factory=list)
    level: list[int] = msgspec.field(default_factory=list)
    name: list[int] = msgspec.field(default_factory=list)
    _numbers: dict[int, int] = msgspec.field(default_factory=dict)

    def copy(self) -> Paths:
        """The same paths; what is added to one is not added to the other."""
        return Paths([*self.parent], [*self.level], [*self.name], dict(self._numbers))

    def below(self, parent: Int64s, level: Int64s | Level, name: Int64s) -> Int64s:
        """The paths one step below others. `parent` and `name` are equally long."""
        steps, place = np.unique(
            ((parent + 1) * _LEVELS + level) * _NAMES + name, return_inverse=True
        )
        return np.array([self._number(step) for step in steps.tolist()], dtype=np.int64)[place]

    def below_known(self, parent: Int64s, level: Level, name: Int64s) -> Int64s:
        """The same, but the paths themselves where the name is UNKNOWN."""
        known, paths = np.flatnonzero(name != UNKNOWN), parent.copy()
        paths[known] = self.below(parent[known], level, name[known])
        return paths

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


class Nest(msgspec.Struct, frozen=True):
    """Intervals of one thread that nest: arrays equally long, sorted by start.

    Args:
        parent: row of what encloses each one, UNKNOWN for none. name: index into the names.
    """

    t0: Int64s
    t1: Int64s
    parent: Int64s
    name: Int64s

    @classmethod
    def of(cls, rows: pl.DataFrame) -> Nest:
        """Those of a frame with `t0`, `t1` and `name`."""
        rows = rows.sort("t0", -pl.col("t1"), maintain_order=True)
        t0, t1, name = (rows[c].to_numpy().astype(np.int64) for c in ("t0", "t1", "name"))
        return cls(t0, t1, parents(t0, t1), name)

    def at(self, instants: Int64s) -> Int64s:
        """Row of the innermost one at each instant, its end in it; UNKNOWN for none."""
        return innermost_rows(self.t0, self.t1, self.parent, instants)

    def just_after(self, instants: Int64s) -> Int64s:
        """The same, of what goes on after each instant."""
        return innermost_rows(2 * self.t0, 2 * self.t1, self.parent, 2 * instants + 1)


class HostNest(Nest, frozen=True):
    """Ranges, modules and operators of one thread, with the lines that it runs.

    Args:
        level: `Level`. path: its own. lines: frames of the program. paths: all of them.
    """

    level: Int64s
    path: Int64s
    lines: Nest
    paths: Paths

    def paths_at(self, instants: Int64s) -> Int64s:
        """Path at each instant, UNKNOWN for none."""
        return self._paths_of(self.at(instants), self.lines.at(instants))

    def paths_after(self, instants: Int64s) -> tuple[Int64s, Int64s]:
        """Path just after each instant, and `Level` of its last step; UNKNOWN for none."""
        row, line = self.just_after(instants), self.lines.just_after(instants)
        level = np.where(self._has_new(row, line), int(Level.LINE), _taken(self.level, row))
        return self._paths_of(row, line), level

    def below_lines(self, path: Int64s, instants: Int64s) -> Int64s:
        """Paths with the line that runs just after each instant below them."""
        line = _taken(self.lines.name, self.lines.just_after(instants))
        return self.paths.below_known(path, Level.LINE, line)

    def last_start(self, instants: Int64s) -> Int64s:
        """Latest start of a row at or before each instant; UNKNOWN for none."""
        return _taken(self.t0, np.searchsorted(self.t0, instants, "right") - 1)

    def edges(self) -> Int64s:
        """Instants at which the path may change."""
        return np.concatenate([self.t0, self.t1, self.lines.t0, self.lines.t1])

    def _paths_of(self, row: Int64s, line: Int64s) -> Int64s:
        new = np.where(self._has_new(row, line), _taken(self.lines.name, line), UNKNOWN)
        return self.paths.below_known(_taken(self.path, row), Level.LINE, new)

    def _has_new(self, row: Int64s, line: Int64s) -> Bools:
        """Where a line is not in the path of a row yet: those of operators have theirs."""
        return np.asarray((line >= 0) & (_taken(self.level, row) != Level.OPERATOR))


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
    owners = _owners_of_backward(process, parts, paths)
    operators = operators.with_columns(owner=owners)
    rows = pl.concat([ranges, modules, operators], how="diagonal").with_columns(
        pl.col("owner").fill_null(UNKNOWN)
    )
    return paths, _nests(rows, process.frames, threads, paths)


def _nests(
    rows: pl.DataFrame, frames: pl.DataFrame, threads: Iterable[int], paths: Paths
) -> dict[int, HostNest]:
    return {
        n: _nest(
            rows.filter(pl.col("thread") == n),
            Nest.of(frames.filter(pl.col("thread") == n)),
            paths,
        )
        for n in threads
    }


def _ranges(ranges: pl.DataFrame, names: Sequence[str]) -> pl.DataFrame:
    """Ranges of the program and of its frameworks, but those that count the loop.

    Who owns some time is the same in every iteration, so what has the number of the step that it is
    in (`copy batch 7` in `step 7`) is no owner either.
    """
    used = ranges["name"].unique().to_list()
    counted = [n for n in used if counts_the_loop(names[n])]
    counted += _counting_along(ranges, names, counted)
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


def _counting_along(
    ranges: pl.DataFrame, names: Sequence[str], counted: Sequence[int]
) -> list[int]:
    """Names that end in the number of the range around them that counts the loop, all of a kind."""
    told = [
        (n, match[1], int(match[2]))
        for n in ranges["name"].unique().to_list()
        if (match := _NUMBERED.fullmatch(names[n][-_MOST_NAME:]))
    ]
    if not counted or len(told) <= len(counted):
        return []
    numbers = pl.DataFrame(told, schema=["name", "kind", "number"], orient="row").with_columns(
        pl.col("name").cast(ranges.schema["name"])
    )
    found = ranges.join(numbers, on="name").sort("t0")
    inside = pl.col("name").is_in(counted)
    around = found.filter(inside).select("thread", "t0", until="t1", step="number")
    along = (pl.col("until") >= pl.col("t1")) & (pl.col("step") == pl.col("number"))
    kinds = (
        found.filter(~inside)
        .join_asof(around, on="t0", by="thread", check_sortedness=False)
        .group_by("kind")
        .agg(pl.col("name").unique(), along.fill_null(value=False).all().alias("along"))
        .filter(pl.col("along") & (pl.col("name").list.len() > 1))
    )
    return [name for group in kinds["name"].to_list() for name in group]


def _parts(process: ProcessTimeline, names: Sequence[str]) -> pl.DataFrame:
    """Ranges of the user that name no phase: parts of the program, as modules are."""
    marks = process.marks
    phases = pl.DataFrame({"thread": marks.thread, "t0": marks.t0, "t1": marks.t1})
    ranges = process.ranges.filter(pl.col("source") == int(Source.USER))
    found = _ranges(ranges.join(phases, on=phases.columns, how="anti"), names)
    return found.filter(pl.col("level") == int(Level.RANGE))


def _of_level(rows: pl.DataFrame, level: Level) -> pl.DataFrame:
    return rows.select(
        "thread", "t0", "t1", pl.lit(int(level), pl.Int64).alias("level"), pl.col("name").cast(int)
    )


def _nest(rows: pl.DataFrame, lines: Nest, paths: Paths) -> HostNest:
    """The nest of one thread, and the paths of its rows."""
    rows = rows.sort("t0", -pl.col("t1"), "level", maintain_order=True)
    t0, t1, level, name, owner = (
        rows[c].to_numpy() for c in ("t0", "t1", "level", "name", "owner")
    )
    parent = parents(t0, t1)
    path = np.full(len(t0), UNKNOWN, dtype=np.int64)
    line = _taken(lines.name, lines.at(t0))
    in_module = level == Level.MODULE
    for found in _by_depth(parent):
        above = parent[found]
        within = (above >= 0) & in_module[above]
        adopted = (owner[found] != UNKNOWN) & ~within
        in_module[found] |= within | adopted
        base = np.where(adopted, owner[found], _taken(path, above))
        # Above the first operator; that of a backward pass has the line of its forward one.
        outer = (level[found] == Level.OPERATOR) & (_taken(level, above) != Level.OPERATOR)
        called = np.where(outer & ~adopted, line[found], UNKNOWN)
        base = paths.below_known(base, Level.LINE, called)
        path[found] = paths.below(base, level[found], name[found])
    return HostNest(t0, t1, parent, name, level, path, lines, paths)


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


def _owners_of_backward(process: ProcessTimeline, parts: pl.DataFrame, paths: Paths) -> Int64s:
    """Path of the parts and the line that the forward operator of each one ran in.

    Args:
        parts: of the program: modules, or what stands for them.

    Returns:
        For each operator of the process; UNKNOWN for none.
    """
    operators = process.operators
    found = np.full(len(operators), UNKNOWN, dtype=np.int64)
    threads = {*parts["thread"].unique().to_list(), *process.frames["thread"].unique().to_list()}
    if not threads:
        return found
    rows = parts.with_columns(owner=pl.lit(UNKNOWN, pl.Int64))
    nests = _nests(rows, process.frames, sorted(threads), paths)
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
