"""Where iterations begin on the host: the step marker.

In order: the user's pattern; ranges whose names differ only in a counter; ends of
`Optimizer.step#`; starts of `DataLoader.__next__`; bursts of optimizer kernels that recur. The
first kind that delimits at least three windows wins; if none does, the first that delimits one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
import polars as pl

from traceprobe.errors import UsageError
from traceprobe.model.events import UNKNOWN, Bools, Int64s, Ints, Kind, Source
from traceprobe.timeline.intervals import Intervals, union
from traceprobe.timeline.name_patterns import NamePattern

MarkerKind = Literal["user", "range", "optimizer", "dataloader", "kernels"]
ENOUGH = 4
"""Markers that delimit three windows."""

_MOST_NUMBERS = 32
"""Numbers of a name that may be its counter."""
_DIGITS = re.compile(r"\d+")
_STEP_WORD = re.compile(r"step|iter|batch", re.IGNORECASE)
_COUNTER_NOISE = re.compile(r"(op_id|seq) ?=")
_OPTIMIZER_STEP = re.compile(r"^Optimizer\.step#")
_DATA_NEXT = re.compile(r"^enumerate\(Data(Loader|Pipe)\)#.*|^\[pl\].*train_dataloader_next")
_OPTIMIZER_KERNEL = re.compile(
    r"multi_?tensor_?apply|fused_?adam|adam|\bsgd\b|lamb|optimizer", re.I
)


@dataclass(frozen=True)
class StepMarker:
    """Step boundaries of one process.

    Args:
        starts: ascending host times; iteration k is [starts[k], starts[k + 1]).
        labels: one name per start.
        thread: the step thread, UNKNOWN where the marker has none.
        inside: host time inside a step range, for markers whose ranges leave waits outside;
            None where the marker says nothing about that.
        confidence: how sure it is that these are the training steps, 0 to 1.
    """

    kind: MarkerKind
    pattern: str
    starts: Int64s
    labels: tuple[str, ...]
    thread: int
    inside: Intervals | None
    confidence: float


def find_step_marker(
    ranges: pl.DataFrame,
    ops: pl.DataFrame,
    names: Sequence[str],
    step: str | None,
) -> StepMarker | None:
    """The step marker of one process, or None.

    Args:
        ranges: host ranges of the process, sorted by start.
        ops: GPU ops of the process.
        step: the user's regular expression, which then is the only candidate.

    Raises:
        UsageError: the user's expression is invalid or matches fewer than two ranges.
    """
    named = _Ranges(ranges, names)
    if step is not None:
        return _by_user(named, step)
    weak: StepMarker | None = None
    for candidates in (_by_counter, _by_optimizer, _by_dataloader):
        for marker in candidates(named):
            if len(marker.starts) >= ENOUGH:
                return marker
            if len(marker.starts) >= 2:
                weak = weak or marker
    return weak or _by_kernels(ops, names)


class _Ranges:
    """User and framework ranges of a process as arrays, selectable by a predicate on the name."""

    def __init__(self, ranges: pl.DataFrame, names: Sequence[str]) -> None:
        not_profiler = ranges["source"].to_numpy() != int(Source.PROFILER)
        chosen: Bools | slice = slice(None) if not_profiler.all() else not_profiler
        self.t0, self.t1, self.name, self.thread, self.source = (
            ranges[c].to_numpy()[chosen] for c in ("t0", "t1", "name", "thread", "source")
        )
        self.names = names
        self.distinct = np.unique(self.name)

    def rows(self, predicate: Callable[[str], object]) -> Int64s:
        chosen = [int(i) for i in self.distinct if predicate(self.names[i])]
        return np.flatnonzero(np.isin(self.name, chosen))

    def marker(
        self, kind: MarkerKind, pattern: str, rows: Int64s, confidence: float, *, outside: bool
    ) -> StepMarker:
        threads, counts = np.unique(self.thread[rows], return_counts=True)
        return StepMarker(
            kind=kind,
            pattern=pattern,
            starts=self.t0[rows],
            labels=tuple(self.names[i] for i in self.name[rows]),
            thread=int(threads[np.argmax(counts)]),
            inside=union(self.t0[rows], self.t1[rows]) if outside else None,
            confidence=confidence,
        )


def _by_user(ranges: _Ranges, step: str) -> StepMarker:
    fitting = NamePattern(f"--step {step!r}", step).find([ranges.names[i] for i in ranges.distinct])
    rows = np.flatnonzero(np.isin(ranges.name, ranges.distinct[fitting]))
    if len(rows) < 2:
        raise UsageError(
            f"--step {step!r} matches {len(rows)} ranges, two or more are needed; "
            "`traceprobe inspect` lists the ranges of the file"
        )
    rows = rows[np.unique(ranges.t0[rows], return_index=True)[1]]
    has_length = bool((ranges.t1[rows] > ranges.t0[rows]).all())
    return ranges.marker("user", step, rows, 1.0, outside=has_length)


def _by_counter(ranges: _Ranges) -> Iterator[StepMarker]:
    """Ranges like `step 7`: one number counts up by one, all else stays. Longest in total first."""
    templates: dict[str, int] = {}
    of_name = np.full(len(ranges.distinct), UNKNOWN, dtype=np.int64)
    for place, i in enumerate(ranges.distinct.tolist()):
        name = ranges.names[i]
        if _STEP_WORD.search(name) and not _COUNTER_NOISE.search(name):
            of_name[place] = templates.setdefault(name_template(name), len(templates))
    of_row = of_name[np.searchsorted(ranges.distinct, ranges.name)]
    order = np.argsort(of_row, kind="stable")
    ends = np.searchsorted(of_row[order], np.arange(len(templates) + 1))
    candidates: list[tuple[int, int, StepMarker]] = []
    for (pattern, _), (first, last) in zip(templates.items(), pairwise(ends), strict=True):
        rows = order[first:last]
        if r"\d+" not in pattern or not _counts_up(ranges.name[rows], ranges.names):
            continue
        marks = bool((ranges.source[rows] == int(Source.MARK)).all())
        confidence = 0.95 if len(rows) > 1 else 0.5
        marker = ranges.marker("range", pattern, rows, confidence, outside=not marks)
        total = int((ranges.t1[rows] - ranges.t0[rows]).sum())
        candidates.append((-total, int(rows[0]), marker))
    yield from (marker for _, _, marker in sorted(candidates, key=lambda f: f[:2]))


def name_template(name: str) -> str:
    """A name with its numbers blotted out: what ranges of one kind have in common.

    It can be given to `--step` as it is, unless the name holds characters special to expressions.
    """
    return _DIGITS.sub(r"\\d+", name)


def _counts_up(rows: Ints, names: Sequence[str]) -> bool:
    """Whether a number in the names grows by one from range to range, with few restarts.

    Args:
        rows: number of the name of each range, all of one template with a number in it.
    """
    if len(rows) < 2:
        return True
    distinct, place = np.unique(rows, return_inverse=True)
    numbers = [[int(d[-18:]) for d in _DIGITS.findall(names[i])[:_MOST_NUMBERS]] for i in distinct]
    return any(bool((np.diff(column[place]) == 1).mean() >= 0.8) for column in np.array(numbers).T)


def _by_optimizer(ranges: _Ranges) -> Iterator[StepMarker]:
    """Iterations end where the optimizer does, however many backward passes come before it."""
    rows = ranges.rows(_OPTIMIZER_STEP.search)
    if len(rows):
        outer = rows[ranges.t1[rows] >= np.maximum.accumulate(ranges.t1[rows])]
        names, counts = np.unique(ranges.name[outer], return_counts=True)
        last = outer[ranges.name[outer] == names[np.argmax(counts)]]
        starts = ranges.t1[last]
        yield StepMarker(
            kind="optimizer",
            pattern=ranges.names[ranges.name[last[0]]],
            starts=starts,
            labels=tuple(f"after optimizer step {k}" for k in range(len(starts))),
            thread=int(ranges.thread[last[0]]),
            inside=None,
            confidence=0.85,
        )


def _by_dataloader(ranges: _Ranges) -> Iterator[StepMarker]:
    rows = ranges.rows(_DATA_NEXT.search)
    if len(rows):
        name = ranges.names[ranges.name[rows[0]]]
        yield ranges.marker("dataloader", name, rows, 0.7, outside=False)


def _by_kernels(ops: pl.DataFrame, names: Sequence[str]) -> StepMarker | None:
    """Iterations end with a burst of optimizer kernels, if bursts of the same make recur evenly."""
    kernels = ops.filter((pl.col("kind") == int(Kind.KERNEL)) & (pl.col("thread") != UNKNOWN))
    if not len(kernels):
        return None
    first = kernels["device"].min()
    kernels = kernels.filter(pl.col("device") == first).sort("launch_t0", maintain_order=True)
    name = kernels["name"].to_numpy()
    anchors = [int(i) for i in np.unique(name) if _OPTIMIZER_KERNEL.search(names[i])]
    at = np.flatnonzero(np.isin(name, anchors))
    if len(at) < ENOUGH:
        return None
    between = np.diff(at)
    last = np.concatenate([at[:-1][between > max(1, between.max() // 2)], at[-1:]])
    sizes = np.diff(last)
    if len(last) < ENOUGH or np.abs(sizes - np.median(sizes)).max() > 0.1 * np.median(sizes):
        return None
    launches, threads = kernels["launch_t1"].to_numpy(), kernels["thread"].to_numpy()
    return StepMarker(
        kind="kernels",
        pattern=names[name[last[0]]],
        starts=launches[last],
        labels=tuple(f"period {k}" for k in range(len(last))),
        thread=int(threads[last[0]]),
        inside=None,
        confidence=0.6,
    )
