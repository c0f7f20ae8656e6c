"""The tables of the ranks of a report, each with the number of the rank in its first column."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from traceprobe.model.taxonomy import BUSY, PARTITION, SHARE_CLASSES
from traceprobe.records.frames.columns import Columns, Frame, columns_of, known, values_of
from traceprobe.records.gpu_metrics import Utilisations
from traceprobe.records.operator_calls import OperatorCalls
from traceprobe.records.owners import By, owners
from traceprobe.records.rank import DeviceInfo, Gap, Iteration, Rank
from traceprobe.records.summary import (
    CollectiveGroup,
    Communication,
    HostToDevice,
    KernelShare,
    StepTimes,
)

if TYPE_CHECKING:
    import polars as pl

_BY_CLASS = ("partition_ns", "busy_ns")
_SUMMARY: Columns = {
    "iterations_used": "int",
    "window_ns": "int",
    "coverage": "float",
    "attributed_share": "float",
    "collectives_per_step": "float",
}
_HOST: Columns = {
    "launches_per_step": "float",
    "kernels_per_step": "float",
    "mean_kernel_us": "float",
    "launch_to_start_us_p50": "float",
    "syncs_per_step": "float",
}
_PARTS: Mapping[str, type[StepTimes | Communication | HostToDevice]] = {
    "step_ms": StepTimes,
    "communication": Communication,
    "h2d": HostToDevice,
}
"""Of a summary, those whose fields are columns, with their name before them."""
_TREE: Columns = {
    **dict.fromkeys(("node", "parent"), "int"),
    **dict.fromkeys(("level", "name", "class", "range", "module", "line", "operator"), "str"),
    **dict.fromkeys(("kernel", "call"), "str"),
    **dict.fromkeys(("ns", "total_ns"), "int"),
    **dict.fromkeys(("ms_per_step", "share"), "float"),
    "count": "int",
}
_OWNED: Columns = {
    "within": "str",
    **dict.fromkeys(("busy_ns", "communication_ns", "idle_ns", "own_ns"), "int"),
    **dict.fromkeys(("operations", "calls"), "int"),
}
"""Of `owners`, behind the owner."""


def _ranked(columns: Columns, rows: Callable[[Rank], Iterable[Iterable[object]]]) -> Frame:
    """A table with the rows of every rank."""

    def all_rows(report: Any) -> Iterator[list[object]]:
        for rank in report.ranks:
            for row in rows(rank):
                yield [rank.rank, *row]

    return Frame({"rank": "int", **columns}, all_rows)


def _rank(rank: Rank) -> Iterator[list[object]]:
    summary = rank.summary
    parts: list[object] = []
    for name, kind in _PARTS.items():
        part = getattr(summary, name)
        parts += [None] * len(columns_of(kind)) if part is None else values_of(part)
    yield [
        *(rank.pid, rank.input, *values_of(rank.device), rank.iteration_count),
        *(getattr(summary, name) for name in _SUMMARY),
        *(getattr(summary.host, name) for name in _HOST),
        *parts,
    ]


def _iterations(rank: Rank) -> Iterator[list[object]]:
    for iteration in rank.iterations:
        start, end = iteration.start_ns, iteration.end_ns
        partition, busy = iteration.partition_ns or {}, iteration.busy_ns or {}
        yield [
            *values_of(iteration, _BY_CLASS),
            None if start is None or end is None else end - start,
            *map(partition.get, PARTITION),
            *map(busy.get, BUSY),
        ]


def _partition(rank: Rank) -> Iterator[list[object]]:
    summary = rank.summary
    for group, classes in SHARE_CLASSES.items():
        for name in classes:
            ns = summary.partition_ns.get(name)
            parts = [summary.steps * 1e6, max(summary.window_ns, 1)]
            each = [None if ns is None else ns / part for part in parts]
            yield [name, group, ns, summary.busy_ns.get(name), *each]


def _kernel_classes(rank: Rank) -> Iterator[list[object]]:
    for name, ns in (rank.summary.kernel_ns or {}).items():
        yield [name, ns, ns / rank.summary.steps / 1e6]


def _gpu_metrics(rank: Rank) -> Iterator[list[object]]:
    metrics = known(rank.summary.gpu_metrics)
    if metrics is None:
        return
    yield [None, None, *_counters(metrics.step)]
    for phase in metrics.phases:
        yield [phase.phase, None, *_counters(phase)]
    for iteration in metrics.iterations:
        yield [None, iteration.index, *_counters(iteration)]


def _kernel_counters(rank: Rank) -> Iterator[list[object]]:
    counters = known(rank.summary.kernel_counters)
    if counters is None:
        return
    for each in counters.kernels:
        for metric, value in zip(counters.metrics, each.values, strict=True):
            yield [each.kernel, each.operator, each.count, metric, value]


def _counters(of: Utilisations) -> list[object]:
    return [getattr(of, name) for name in columns_of(Utilisations)]


def _calls(rank: Rank) -> Iterator[list[object]]:
    yield from map(list, (known(rank.summary.host.blocking_calls) or {}).items())


def _tree(rank: Rank) -> Iterable[tuple[object, ...]]:
    tree = _tree_of(rank)
    return () if tree is None else tree.select(*_TREE).iter_rows()


def _owners(by: By) -> Frame:
    """Who owns the time of each rank, at a level of its tree."""

    def rows(rank: Rank) -> Iterator[list[object]]:
        tree = _tree_of(rank)
        for row in [] if tree is None else owners(tree, by).rows(named=True):
            step_ns = (row["busy_ns"] + row["idle_ns"]) / rank.summary.steps
            yield [row["owner"], *(row[name] for name in _OWNED), step_ns / 1e6]

    return _ranked({by: "str", **_OWNED, "ms_per_step": "float"}, rows)


def _tree_of(rank: Rank) -> pl.DataFrame | None:
    tree, summary = known(rank.tree), rank.summary
    return None if tree is None else tree.frame(summary.window_ns, summary.steps)


FRAMES: Mapping[str, Frame] = {
    "ranks": _ranked(
        {
            **dict.fromkeys(("pid", "input"), "int"),
            **columns_of(DeviceInfo, prefix="device_"),
            "iterations": "int",
            **_SUMMARY,
            **_HOST,
            **{
                column: type_
                for name, kind in _PARTS.items()
                for column, type_ in columns_of(kind, prefix=f"{name}_").items()
            },
        },
        _rank,
    ),
    "iterations": _ranked(
        {
            **columns_of(Iteration, _BY_CLASS),
            "window_ns": "int",
            **{f"{name}_ns": "int" for name in PARTITION},
            **{f"busy_{name}_ns": "int" for name in BUSY},
        },
        _iterations,
    ),
    "partition": _ranked(
        {
            **dict.fromkeys(("class", "counts_as"), "str"),
            **dict.fromkeys(("ns", "busy_ns"), "int"),
            **dict.fromkeys(("ms_per_step", "share"), "float"),
        },
        _partition,
    ),
    "gaps": _ranked(
        {**columns_of(Gap), "ns": "int"},
        lambda rank: ([*values_of(gap), gap.end_ns - gap.start_ns] for gap in rank.gaps),
    ),
    "kernels": _ranked(
        columns_of(KernelShare), lambda rank: map(values_of, rank.summary.top_kernels)
    ),
    "kernel_classes": _ranked(
        {"class": "str", "ns": "int", "ms_per_step": "float"}, _kernel_classes
    ),
    "gpu_metrics": _ranked(
        {"phase": "str", "iteration": "int", **columns_of(Utilisations)}, _gpu_metrics
    ),
    "kernel_counters": _ranked(
        {"kernel": "str", "operator": "str", "count": "int", "metric": "str", "value": "float"},
        _kernel_counters,
    ),
    "modules": _owners("module"),
    "lines": _owners("line"),
    "operators": _owners("operator"),
    "operator_calls": _ranked(
        columns_of(OperatorCalls),
        lambda rank: map(values_of, known(rank.summary.operators) or ()),
    ),
    "tree": _ranked(_TREE, _tree),
    "collectives": _ranked(
        columns_of(CollectiveGroup), lambda rank: map(values_of, rank.summary.collectives)
    ),
    "blocking_calls": _ranked({"call": "str", "per_step": "float"}, _calls),
}
"""By name."""
