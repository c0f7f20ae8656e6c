"""What keeps the host from launching in the middle of training, to the record of the report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from traceprobe.model.accounting import SET_UP_NS
from traceprobe.model.codes import Int64s, Kind
from traceprobe.model.kernel_classes import kernel_class
from traceprobe.model.taxonomy import Phase
from traceprobe.records.host_stalls import (
    Compilations,
    CompiledFrame,
    CompiledRegions,
    DeviceAllocations,
    GarbageCollections,
)
from traceprobe.timeline import compiled_code
from traceprobe.timeline.cold_start import keeps_compiling
from traceprobe.timeline.device_timeline import DeviceTimeline
from traceprobe.timeline.intervals import Intervals, per_window, union
from traceprobe.timeline.spent import spent_by
from traceprobe.timeline.stalls import garbage_collections
from traceprobe.verdict.thresholds import FIXED

MAX_LINES = 3
MAX_FRAMES = 5
_PAIR = 2
_UNFUSED = ("other", "softmax")
_PASSES = (int(Phase.FORWARD), int(Phase.BACKWARD))


def host_stalls(
    account: DeviceTimeline,
    chosen: Int64s,
    inside: pl.DataFrame,
    stages: pl.DataFrame,
    memory: pl.DataFrame,
    set_up: pl.DataFrame,
    names: Sequence[str],
) -> dict[str, Any]:
    """Fields of `HostActivity`, those of which there is something.

    Args:
        chosen: indices of the windows that the summary covers. inside: the ops that start in them.
        stages: of compilation, as of `compilations`. memory: as of `memory_calls`.
        set_up: calls of set-up.
    """
    fields = {
        "device_allocations": _allocations(account, chosen, memory, set_up, names),
        "compilations": _compilations(account, chosen, stages, names),
        "compiled_regions": _regions(account, chosen, inside, names),
    }
    return {name: record for name, record in fields.items() if record is not None}


def collected(
    account: DeviceTimeline, chosen: Int64s, names: Sequence[str]
) -> GarbageCollections | None:
    """What the garbage collector does in the chosen windows; None where no range tells."""
    rows = garbage_collections(account.process, names)
    # A program may have a range of its own around one that collects.
    mine = _outermost(_in_windows(rows, account, chosen))
    if mine.is_empty():
        return None
    lengths = mine["t1"] - mine["t0"]
    return GarbageCollections(
        count=len(mine),
        iterations=len(np.unique(_iterations(mine, account))),
        host_ns=int(lengths.sum()),
        longest_ns=int(lengths.to_numpy().max()),
        cost_ns=min(_cost(account, chosen, _stretches(rows)), int(lengths.sum())),
        lines=_lines(mine, compiled_code.program_lines(mine, account.process, names)),
    )


def gives_back(found: pl.DataFrame, account: DeviceTimeline, chosen: Int64s) -> bool:
    """Whether memory is given back in most iterations, and takes long even when all is set up.

    Of two iterations both have to.

    Args:
        found: as of `memory_calls`.
    """
    back = _in_windows(found.filter("gives"), account, chosen)
    count = len(np.unique(_iterations(back, account)))
    if len(chosen) <= _PAIR:
        return count == _PAIR
    slow = _iterations(back.filter(pl.col("t1") - pl.col("t0") >= SET_UP_NS), account)
    middle = account.index[chosen][len(chosen) // 2] if len(account.index) else 0
    return count > FIXED.stalled * len(chosen) and bool((slow >= middle).any())


def _allocations(
    account: DeviceTimeline,
    chosen: Int64s,
    memory: pl.DataFrame,
    set_up: pl.DataFrame,
    names: Sequence[str],
) -> DeviceAllocations | None:
    found = memory.filter(~pl.col("t0").is_in(set_up["t0"].implode()))
    mine = _in_windows(found, account, chosen)
    if mine.is_empty():
        return None
    steps = max(int(account.used.sum()), 1)
    back = mine.filter("gives")
    given, process = back if len(back) else mine, account.process
    return DeviceAllocations(
        allocations_per_step=round((len(mine) - len(back)) / steps, 3),
        frees_per_step=round(len(back) / steps, 3),
        iterations=len(np.unique(_iterations(mine, account))),
        frees_iterations=len(np.unique(_iterations(back, account))),
        host_ns=int((mine["t1"] - mine["t0"]).sum()),
        cost_ns=_cost(account, chosen, _stretches(found)),
        for_room=round(int(back["for_room"].sum()) / len(back), 3) if len(back) else None,
        lines=_lines(given, compiled_code.program_lines(given, process, names)),
    )


def _compilations(
    account: DeviceTimeline, chosen: Int64s, stages: pl.DataFrame, names: Sequence[str]
) -> Compilations | None:
    compiling = _stretches(stages)
    if not keeps_compiling(compiling, account.edges, chosen):
        return None
    spent = per_window(compiling, account.edges)[chosen]
    process = account.process
    versions = _in_windows(compiled_code.compiled_versions(process, names), account, chosen)
    frames = (
        versions.group_by("frame")
        .agg(versions=pl.col("version").max() + 1)
        .sort("versions", "frame", descending=[True, False])
        .head(MAX_FRAMES)
    )
    outermost = _outermost(_in_windows(stages, account, chosen))
    return Compilations(
        iterations=int((spent > 0).sum()),
        host_ns=int(spent.sum()),
        cost_ns=_cost(account, chosen, compiling),
        frames=[CompiledFrame(**row) for row in frames.iter_rows(named=True)],
        lines=_lines(outermost, compiled_code.compiled_lines(outermost, process, names)),
    )


def _regions(
    account: DeviceTimeline, chosen: Int64s, inside: pl.DataFrame, names: Sequence[str]
) -> CompiledRegions | None:
    process = account.process
    regions, between = compiled_code.compiled_regions(process, names)
    mine = _in_windows(regions, account, chosen)
    if mine.is_empty():
        return None
    steps = max(int(account.used.sum()), 1)
    breaks = mine.filter("inner")
    broken = len(breaks) > 0
    kernels = _of_passes(account, inside, names)
    eager = kernels.filter("unfused", ~pl.col("compiled"))
    part = _part_of_breaks(account, kernels, names) if broken else 0.0
    return CompiledRegions(
        regions_per_step=round(len(mine) / steps, 3),
        breaks_per_step=round(len(breaks) / steps, 3),
        cost_ns=_cost(account, chosen, between) if broken else 0,
        eager_ns=int(part * int(eager["ns"].sum())),
        eager_kernels=round(part * len(eager) / steps, 3),
        launched_ns=int(kernels.filter("unfused", "compiled")["ns"].sum()),
        lines=_lines(
            breaks.with_columns(t1=pl.col("t0") + 1),
            compiled_code.program_lines(breaks, process, names),
        ),
    )


def _of_passes(account: DeviceTimeline, inside: pl.DataFrame, names: Sequence[str]) -> pl.DataFrame:
    """Kernels of forward and backward pass among some ops, with more columns.

    `ns`, `unfused`: its name is that of an element-wise kernel, a reduction or a copy, and
    `compiled`: a compiled graph launches it.
    """
    kernels = inside.filter(
        (pl.col("kind") == int(Kind.KERNEL)) & pl.col("phase").is_in(_PASSES)
    ).with_columns(ns=pl.col("t1") - pl.col("t0"))
    unfused = [i for i in kernels["name"].unique() if kernel_class(names[i]) in _UNFUSED]
    return kernels.with_columns(
        unfused=pl.col("name").is_in(unfused),
        compiled=pl.Series(compiled_code.launched_by_graphs(kernels, account.process, names)),
    )


def _part_of_breaks(account: DeviceTimeline, kernels: pl.DataFrame, names: Sequence[str]) -> float:
    """Which part of what no graph launches is a matter of the breaks.

    All of it, unless graphs launch less than half of the time of the kernels. Then it is the part
    that modules that are to be compiled launch of what is not compiled of the forward pass.

    Args:
        kernels: as of `_of_passes`.
    """
    eager = kernels.filter(~pl.col("compiled"))
    if 2 * int(eager["ns"].sum()) <= int(kernels["ns"].sum()):
        return 1.0
    forward = eager.filter(pl.col("phase") == int(Phase.FORWARD))
    to_be = pl.Series(compiled_code.launched_by_modules(forward, account.process, names))
    whole = int(forward["ns"].sum())
    return int(forward.filter(to_be)["ns"].sum()) / whole if whole else 0.0


def _in_windows(rows: pl.DataFrame, account: DeviceTimeline, chosen: Int64s) -> pl.DataFrame:
    """The rows of the host that belong to the chosen windows."""
    at = account.index[chosen] if len(account.index) else chosen
    return rows.filter(np.isin(_iterations(rows, account), at))


def _iterations(rows: pl.DataFrame, account: DeviceTimeline) -> Int64s:
    """The iteration in which each row of the host begins; without any the whole capture."""
    marker = account.process.marker
    if marker is None or not len(account.index):
        return np.zeros(len(rows), dtype=np.int64)
    return marker.iteration_at(rows["t0"].to_numpy())


def _stretches(rows: pl.DataFrame) -> Intervals:
    return union(rows["t0"].to_numpy(), rows["t1"].to_numpy())


def _outermost(stages: pl.DataFrame) -> pl.DataFrame:
    """Of stages that enclose each other on one thread, the first one."""
    ordered = stages.sort("thread", "t0", -pl.col("t1"))
    before = pl.col("t1").cum_max().shift(1, fill_value=-1).over("thread")
    return ordered.filter(pl.col("t0") >= before)


def _cost(account: DeviceTimeline, chosen: Int64s, delays: Intervals) -> int:
    return int(account.cost_of(delays)[chosen].sum())


def _lines(calls: pl.DataFrame, lines: Sequence[str | None]) -> dict[str, int]:
    """Lines of the program that make some calls, and how long those last, the longest first.

    Args:
        lines: of each call.
    """
    return spent_by(lines, (calls["t1"] - calls["t0"]).to_list(), MAX_LINES)
