"""What CUPTI's range profiler counted of each kernel: `profiler_metrics` of PyTorch's profiler.

In that mode a trace has no row of a kernel with a time, but ranges that are spread evenly. Only
their order tells which launch each of them is of, as long as there are as many as launches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

import msgspec
import numpy as np

from traceprobe.ingest.joins import Table
from traceprobe.ingest.kineto.event import Number
from traceprobe.ingest.kineto.values import floats
from traceprobe.ingest.untrusted_values import JSON_ERRORS, NAME_LENGTH, bounded_text
from traceprobe.model.events import KERNEL_COUNTERS, UNKNOWN, Call, Int64s

CATEGORY = "cuda_profiler_range"
UNNAMED = "__missing__"
MOST_METRICS = 64
"""Counters of a kernel: more take more passes over it than anybody waits for."""
MOST_KERNELS, MOST_VALUES = 100_000, 1_000_000
"""Kept of a file: minutes of a training that runs a hundred times slower for it."""
_VALUES = msgspec.json.Decoder(dict[str, Any])


class CounterEvent(msgspec.Struct, gc=False):
    """One element of `traceEvents`, with all its arguments as they are."""

    ph: str = ""
    cat: str | None = None
    name: Number = ""
    ts: Number = None
    args: msgspec.Raw = msgspec.Raw(b"{}")


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
    all_ranges = (e for chunk in chunks for e in chunk if e.cat == CATEGORY and e.ph == "X")
    ranges = list(islice(all_ranges, MOST_KERNELS))
    order = np.argsort(floats(ranges, lambda event: event.ts), kind="stable")
    launching = _operators_of_launches(calls, operators, names)
    if len(launching) != len(ranges):
        launching = np.full(len(ranges), UNKNOWN)
    number = _Numbers(names)
    all_rows = (
        (place, kernel, int(launching[place]), number[metric], value)
        for place, row in enumerate(order.tolist())
        for kernel in [_kernel(ranges[row], number)]
        for metric, value in _counted(ranges[row].args)
    )
    rows = list(islice(all_rows, MOST_VALUES))
    columns = zip(*rows, strict=True) if rows else [[] for _ in KERNEL_COUNTERS]
    return {
        name: np.array(column, dtype=np.float64 if name == "value" else np.int64)
        for name, column in zip(KERNEL_COUNTERS, columns, strict=True)
    }


class _Numbers(dict[str, int]):
    """Numbers of names, those of new ones among them."""

    def __init__(self, names: list[str]) -> None:
        super().__init__()
        self._names = names

    def __missing__(self, name: str) -> int:
        self[name] = number = len(self._names)
        self._names.append(name)
        return number


def _kernel(event: CounterEvent, number: _Numbers) -> int:
    name = bounded_text(event.name, NAME_LENGTH)
    return UNKNOWN if name in ("", UNNAMED) else number[name]


def _counted(arguments: msgspec.Raw) -> Iterator[tuple[str, float]]:
    try:
        values = _VALUES.decode(arguments)
    except JSON_ERRORS:
        return
    for name, value in list(values.items())[:MOST_METRICS]:
        if isinstance(value, int | float) and np.isfinite(np.float64(value)) and name:
            yield bounded_text(name, NAME_LENGTH), float(value)


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
