"""What CUPTI's range profiler counted of each kernel: `profiler_metrics` of PyTorch's profiler.

In that mode a trace has no row of a kernel with a time, but ranges that are spread evenly. Only
their order tells which launch each of them is of, as long as there are as many as launches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec
import numpy as np

from traceprobe.ingest.joins import Table
from traceprobe.ingest.kineto.event import Number
from traceprobe.ingest.kineto.values import floats
from traceprobe.ingest.untrusted_values import JSON_ERRORS, NAME_LENGTH, bounded_text, real
from traceprobe.model.codes import UNKNOWN, Call, Int64s
from traceprobe.model.events import KERNEL_COUNTERS

CATEGORY = "cuda_profiler_range"
UNNAMED = "__missing__"
MOST_METRICS, MOST_KERNELS, MOST_VALUES = 64, 100_000, 1_000_000
"""Kept of a file: each counter more takes a pass over a kernel, of which nobody waits for many."""
MOST = 1e30
"""A value; sums of so many stay numbers."""
_TS = attrgetter("ts")
_VALUES = msgspec.json.Decoder(dict[str, Any])


class CounterEvent(msgspec.Struct, gc=False):
    """One element of `traceEvents`, with all its arguments as they are."""

    ph: str = ""
    cat: str | None = None
    name: Number = ""
    pid: Number = None
    ts: Number = None
    args: msgspec.Raw = msgspec.Raw(b"{}")


class _Counted(NamedTuple):
    name: Number
    gpu: Number
    ts: Number
    values: dict[str, float]


def kernel_counters(
    chunks: Iterable[list[CounterEvent]],
    calls: Mapping[str, Any],
    operators: Table | None,
    names: list[str],
) -> dict[str, Any]:
    """Columns of KERNEL_COUNTERS; new names are put to the others.

    Args:
        chunks: all events of a file; of very many ranges and values the first are kept.
        calls: columns of HOST_CALLS, with the launches.
        operators: t0, t1, thread and name of each; None without any.
        names: of the trace.
    """
    # Without the event, which would keep the whole chunk that its arguments are a part of.
    found = (
        _Counted(event.name, event.pid, event.ts, dict(_counted(event.args)))
        for chunk in chunks
        for event in chunk
        if event.cat == CATEGORY and event.ph == "X"
    )
    ranges = list(_first(found))
    ranges = [ranges[n] for n in np.argsort(floats(ranges, _TS), kind="stable").tolist()]
    launching = _operators_of_launches(calls, operators, names) if ranges else np.empty(0, int)
    if len(launching) != len(ranges) or len({each.gpu for each in ranges}) > 1:
        launching = np.full(len(ranges), UNKNOWN)
    number = _Numbers(names)
    metrics = dict.fromkeys(name for each in ranges for name in each.values)
    kept = set(islice(metrics, MOST_METRICS))
    rows = [
        (place, _kernel(each.name, number), int(launching[place]), number[metric], value)
        for place, each in enumerate(ranges)
        for metric, value in each.values.items()
        if metric in kept
    ]
    columns = zip(*rows, strict=True) if rows else [[] for _ in KERNEL_COUNTERS]
    return {
        name: np.array(column, dtype=np.float64 if name == "value" else np.int64)
        for name, column in zip(KERNEL_COUNTERS, columns, strict=True)
    }


def _first(found: Iterable[_Counted]) -> Iterator[_Counted]:
    """As many as are kept."""
    values = 0
    for each in islice(found, MOST_KERNELS):
        values += len(each.values)
        if values > MOST_VALUES:
            return
        yield each


class _Numbers(dict[str, int]):
    """Numbers of names, those of new ones among them."""

    def __init__(self, names: list[str]) -> None:
        super().__init__()
        self._names = names

    def __missing__(self, name: str) -> int:
        self[name] = number = len(self._names)
        self._names.append(name)
        return number


def _kernel(said: Number, number: _Numbers) -> int:
    name = bounded_text(said, NAME_LENGTH)
    return UNKNOWN if name in ("", UNNAMED) else number[name]


def _counted(arguments: msgspec.Raw) -> Iterator[tuple[str, float]]:
    try:
        values = _VALUES.decode(arguments)
    except JSON_ERRORS:
        return
    for name, said in islice(values.items(), MOST_METRICS):
        value = real(said)
        if name and abs(value) <= MOST:
            yield bounded_text(name, NAME_LENGTH), value


def _operators_of_launches(
    calls: Mapping[str, Any], operators: Table | None, names: list[str]
) -> Int64s:
    """Name of the innermost operator around each launch of a kernel, in order of time."""
    kernel = [n for n, name in enumerate(names) if "LaunchKernel" in name]
    mine = (calls["call"] == Call.LAUNCH) & np.isin(calls["name"], kernel)
    rows = np.flatnonzero(mine)[np.argsort(calls["t0"][mine], kind="stable")]
    found = np.full(len(rows), UNKNOWN, dtype=np.int64)
    if operators is None:
        return found
    for thread in np.unique(calls["thread"][rows]).tolist():
        own = np.flatnonzero(operators["thread"] == thread)
        own = own[np.lexsort((-operators["t1"][own], operators["t0"][own]))]
        t0, t1 = operators["t0"][own].tolist(), operators["t1"][own].tolist()
        around: list[int] = []
        following = 0
        for place in np.flatnonzero(calls["thread"][rows] == thread).tolist():
            time = int(calls["t0"][rows[place]])
            while following < len(own) and t0[following] <= time:
                around.append(following)
                following += 1
            while around and t1[around[-1]] < time:
                around.pop()
            if around:
                found[place] = operators["name"][own[around[-1]]]
    return found
