"""What a trace shows of `torch.compile`: when it compiles, and which code runs compiled.

PyTorch writes a range around each stage of a compilation, `… (dynamo_timed)`, newer versions
another one around all of them and what is done between and after them, `dynamo`, and beside a stage
one that names what is compiled, `…: compile_id=FRAME/VERSION`: Dynamo numbers the functions that it
compiles and, from 0, the versions that it has of each. Whenever it runs one of them, the range is
`Torch-Compiled Region: FRAME/VERSION`, and inside of that `CompiledFunction` or
`## Call CompiledFxGraph …` the graph itself. Nsight Systems records none of these. In our own
recordings by it a range is around each compilation, `torch.compile (dynamo_timed) at LINE`, with
the line of the program where that is known, and a mark before it that names what is compiled.

A region inside another is a graph break: where Dynamo cannot go on, the code that it has made so
far calls the rest of the function, which it compiles as a function of its own (`torch_dynamo_resume
_in_…`), or a function that it could not take into the graph. A graph without a break calls nothing
that Dynamo would look at. Regions beside each other are several functions, each compiled whole.

`torch.compile(model)` makes a module around the model, `OptimizedModule`. A break inside a loop
leaves all of its function uncompiled, which then has no region: what a call of that module runs
outside of graphs was to be compiled all the same. Our own recordings name it as the model that it
holds, so that a module seems to run right inside itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import polars as pl

from traceprobe.model.codes import UNKNOWN, Bools, Int64s
from traceprobe.model.events import rows_named
from traceprobe.timeline.intervals import EMPTY, Intervals, subtract, union
from traceprobe.timeline.operators import launching_rows, parents
from traceprobe.timeline.process_timeline import ProcessTimeline, is_compiling

_VERSION = re.compile(r"compile_id=(?:!\d+/)?(\d{1,9})/(\d{1,9})", re.ASCII)
_LINE = re.compile(r"\(dynamo_timed\) at (.+\(\d+\): .+)")
_REGION = "Torch-Compiled Region"
_MODULE = "OptimizedModule"
_LOOKUP = "TorchDynamo Cache Lookup"
GUARDS = 0.1
"""Part of what a compilation lasts that the checks of guards before it may take, at most: those of
thirty versions of a model took 2 to 4 % in Nsight's recordings on H200s."""
_GRAPH = re.compile(r"CompiledFunction(?:Backward)?$|## Call CompiledFxGraph ")


class Regions(NamedTuple):
    """Calls of compiled functions.

    Args:
        rows: `thread`, `t0`, `t1`, and `inner`: the call is made inside another.
        between: when the host is in one that is broken, and in none of its graphs.
    """

    rows: pl.DataFrame
    between: Intervals


def compilations(process: ProcessTimeline, names: Sequence[str]) -> pl.DataFrame:
    """Stages of compilations that a process is in: `thread`, `t0`, `t1`, `name`; no order.

    What was compiled runs next, and makes a call or begins an operator. Until then guards are
    written and code is loaded, of which no stage tells: a stage of a thread that trains lasts until
    then. It begins with the guards of the versions that do not fit, each of which is checked first:
    at the end of what the thread did before, or so much earlier as guards may take.
    """
    stages = _named(process, names, is_compiling)
    if stages.is_empty():
        return stages
    return stages.with_columns(
        t0=pl.Series(_with_guards(stages, process, names), dtype=pl.Int64),
        t1=pl.Series(_until_used(stages, process), dtype=pl.Int64),
    )


def _with_guards(stages: pl.DataFrame, process: ProcessTimeline, names: Sequence[str]) -> Int64s:
    """When the guards that fail before each stage of a thread that trains are first checked."""
    other = [
        rows_named(process.operators, names, lambda name: name != _LOOKUP),
        rows_named(process.ranges, names, lambda name: not _VERSION.search(name)),
        process.calls,
    ]
    t0 = stages["t0"].to_numpy()
    longest = ((stages["t1"].to_numpy() - t0) * GUARDS).astype(np.int64)
    found = t0.copy()
    for own, ended in _beside(stages, process, other, "t1"):
        place = np.searchsorted(ended, t0[own], "right") - 1
        before = np.where(place >= 0, ended[np.maximum(place, 0)], t0[own])
        found[own] = np.maximum(before, t0[own] - longest[own])
    return found


def _until_used(stages: pl.DataFrame, process: ProcessTimeline) -> Int64s:
    """When the thread of each stage next begins anything; its own end where it does not."""
    found = stages["t1"].to_numpy().copy()
    for own, begun in _beside(stages, process, (process.calls, process.operators), "t0"):
        place = np.searchsorted(begun, found[own])
        used = place < len(begun)
        found[own[used]] = begun[place[used]]
    return found


def _beside(
    stages: pl.DataFrame, process: ProcessTimeline, rows: Sequence[pl.DataFrame], column: str
) -> Iterator[tuple[Int64s, Int64s]]:
    """For each thread that trains, its stages, and when anything of some rows begins or ends on it.

    Args:
        column: `t0` or `t1`, of which the times are, ascending.
    """
    times = pl.concat(each.select("thread", column) for each in rows)
    thread = stages["thread"].to_numpy()
    for each in set(np.unique(thread).tolist()) & process.training_threads:
        own = times.filter(pl.col("thread") == each)[column].to_numpy()
        yield np.flatnonzero(thread == each), np.sort(own)


def compiled_lines(
    stages: pl.DataFrame, process: ProcessTimeline, names: Sequence[str]
) -> list[str | None]:
    """The line of the program in which each stage begins: that of its name, else `program_lines`.

    Args:
        stages: as of `compilations`.
    """
    noted = (_LINE.search(names[name]) for name in stages["name"].to_list())
    recorded = program_lines(stages, process, names)
    return [line if own is None else own[1] for own, line in zip(noted, recorded, strict=True)]


def compiled_versions(process: ProcessTimeline, names: Sequence[str]) -> pl.DataFrame:
    """What is compiled when: `t0`, `frame` and `version`, several rows of each."""
    noted = _named(process, names, lambda name: _VERSION.search(name) is not None)
    found = [_VERSION.search(names[i]) for i in noted["name"].to_list()]
    numbers = [(int(each[1]), int(each[2])) for each in found if each is not None]
    return noted.select("t0").with_columns(
        frame=pl.Series([frame for frame, _ in numbers], dtype=pl.Int64),
        version=pl.Series([version for _, version in numbers], dtype=pl.Int64),
    )


def compiled_regions(process: ProcessTimeline, names: Sequence[str]) -> Regions:
    """Calls of compiled functions, and which of them run inside another."""
    found = _named(process, names, lambda name: name.startswith(_REGION)).drop("name")
    found, above = _nested(found)
    inner = above != UNKNOWN
    broken = np.zeros(len(found), dtype=np.bool_)
    broken[above[inner]] = True
    t0, t1 = found["t0"].to_numpy(), found["t1"].to_numpy()
    between = EMPTY
    if broken.any():
        graphs = _graphs(process, names)
        inside = union(graphs["t0"].to_numpy(), graphs["t1"].to_numpy())
        between = subtract(union(t0[broken], t1[broken]), inside)
    return Regions(found.with_columns(inner=pl.Series(inner, dtype=pl.Boolean)), between)


def launched_by_graphs(ops: pl.DataFrame, process: ProcessTimeline, names: Sequence[str]) -> Bools:
    """Which operations of the device compiled graphs have launched."""
    launched: Bools = launching_rows(ops, _graphs(process, names)) != UNKNOWN
    return launched


def launched_by_modules(ops: pl.DataFrame, process: ProcessTimeline, names: Sequence[str]) -> Bools:
    """Which operations of the device were launched in calls of modules that are to be compiled."""
    launched: Bools = launching_rows(ops, _compiled_modules(process, names)) != UNKNOWN
    return launched


def _compiled_modules(process: ProcessTimeline, names: Sequence[str]) -> pl.DataFrame:
    """Calls of modules that `torch.compile` made: `thread`, `t0`, `t1`."""
    modules, above = _nested(process.modules.select("thread", "t0", "t1", "name"))
    name, inner = modules["name"].to_numpy(), np.flatnonzero(above != UNKNOWN)
    wraps = np.zeros(len(modules), dtype=np.bool_)
    around = above[inner]
    wraps[around[name[inner] == name[around]]] = True
    called = modules.filter(pl.Series(wraps, dtype=pl.Boolean))
    return pl.concat([called, rows_named(modules, names, lambda text: _MODULE in text)])


def _nested(rows: pl.DataFrame) -> tuple[pl.DataFrame, Int64s]:
    """Rows in the order of `parents`, and which one is right around each; UNKNOWN where none is.

    Args:
        rows: with `thread`, `t0`, `t1`.
    """
    rows = rows.sort("thread", "t0", -pl.col("t1"), maintain_order=True)
    thread, t0, t1 = (rows[column].to_numpy() for column in ("thread", "t0", "t1"))
    above = np.full(len(rows), UNKNOWN, dtype=np.int64)
    for each in np.unique(thread).tolist():
        own = np.flatnonzero(thread == each)
        around = parents(t0[own], t1[own])
        inner = around != UNKNOWN
        above[own[inner]] = own[around[inner]]
    return rows, above


def program_lines(
    calls: pl.DataFrame, process: ProcessTimeline, names: Sequence[str]
) -> list[str | None]:
    """The innermost frame of the program at the start of each call; None where none is recorded.

    Args:
        calls: with `thread` and `t0`.
    """
    rows = launching_rows(calls.select("thread", launch_t0="t0"), process.frames)
    name = process.frames["name"].to_numpy()
    return [None if row == UNKNOWN else names[name[row]] for row in rows.tolist()]


def _graphs(process: ProcessTimeline, names: Sequence[str]) -> pl.DataFrame:
    """When compiled graphs run."""
    return _named(process, names, lambda name: _GRAPH.match(name) is not None)


def _named(
    process: ProcessTimeline, names: Sequence[str], wanted: Callable[[str], bool]
) -> pl.DataFrame:
    """Ranges and operators by their names: PyTorch's versions write one or the other."""
    columns = ("thread", "t0", "t1", "name")
    both = (process.ranges.select(columns), process.operators.select(columns))
    return pl.concat([rows_named(rows, names, wanted) for rows in both])
