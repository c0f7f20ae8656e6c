"""Where iterations begin and end on the host: the step marker.

In order: the user's pattern; ranges whose names differ only in a counter; equal ranges named like a
step; ends of `Optimizer.step#`, or of the backward passes that have them inside; starts of
`DataLoader.__next__`; the period of the sequence of kernels. The first kind that delimits at least
three windows wins, but where it marks micro-batches of updates; if none does, the first that
delimits one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Literal

import msgspec
import numpy as np
import polars as pl

from traceprobe.errors import UsageError
from traceprobe.model.codes import NOTES, UNKNOWN, Bools, Int64s, Ints, Kind, Role, Source
from traceprobe.timeline.intervals import EMPTY, Intervals, count_begun, union
from traceprobe.timeline.kernel_period import kernel_period
from traceprobe.timeline.name_patterns import NamePattern
from traceprobe.timeline.updates_in_backward import BackwardNodes

MarkerKind = Literal["user", "range", "optimizer", "dataloader", "kernels"]
NEVER = int(np.iinfo(np.int64).max)
"""An end that is not known; clocks may show any other time."""
ENOUGH = 3
"""Windows that a marker delimits at least, to be preferred to weaker kinds."""

_MOST_NUMBERS = 32
"""Numbers of a name that may be its counter."""
_HOLDS_WORK = 0.5
"""Launches inside the ranges of a counter, as a part of those inside the best one's."""
_MOST_TICKS = 1.5
"""Ticks of a counter per update of the parameters; what counts faster counts something else."""
_DIGITS = re.compile(r"\d+")
_STEP_WORD = re.compile(r"step|iter|batch(?!_?norm)", re.IGNORECASE)
_NO_STEP = re.compile(r"(op_id|seq) ?=|warm[-_ ]?up|micro[-_ ]?batch", re.IGNORECASE)
# Weaker kinds are seldom asked for: their expressions are compiled when they are.
_STEP_NAME = (
    r"(?i)^(\[pl\].*\]?run_training_(batch|step)|(train(ing|er)?|one|full|my)?[-_ .:]?"
    r"(step|iter|iteration|loop_iteration|batch))$"
)
OPTIMIZER_STEP = re.compile(r"^Optimizer\.step#")
"""Ranges that PyTorch writes around each update of the parameters."""
_PASS = r"(?i)(?<![a-z])(forward|fwd)(?![a-z])"
_LAYER = r"(?i)layer|transformer.?block"
"""Ranges of a program around a forward pass, and around a layer of it."""
_DATA_NEXT = r"^enumerate\(Data(Loader|Pipe)\)#.*|^\[pl\].*train_dataloader_next"


class StepMarker(msgspec.Struct, frozen=True):
    """Step boundaries of one process.

    Args:
        starts: ascending host times at which iterations begin.
        ends: host times at which they end: the next start, or earlier where a pause follows;
            NEVER for a last one without an end.
        labels: one name per start.
        thread: the step thread, UNKNOWN where the marker has none.
        inside: host time inside a step range, for markers whose ranges leave waits outside;
            None where the marker says nothing about that.
        confidence: how sure it is that these are the training steps, 0 to 1.
        per_iteration: marks that make one iteration.
    """

    kind: MarkerKind
    pattern: str
    starts: Int64s
    ends: Int64s
    labels: tuple[str, ...]
    thread: int
    inside: Intervals | None
    confidence: float
    per_iteration: int = 1

    @property
    def windows(self) -> int:
        """Iterations whose end is known."""
        return int((self.ends != NEVER).sum())

    def iteration_at(self, times: Int64s) -> Int64s:
        """Number of the iteration at each host time; UNKNOWN where there is none."""
        k = count_begun(self.starts, times) - 1
        inside = (k >= 0) & (times < self.ends[np.maximum(k, 0)])
        return np.where(inside, k, UNKNOWN).astype(np.int64)

    def count(self, times: pl.Series) -> Int64s:
        """How many of these host times lie in each iteration."""
        k = self.iteration_at(times.to_numpy())
        return np.bincount(k[k >= 0], minlength=len(self.starts))


def find_step_marker(
    ranges: pl.DataFrame,
    operators: pl.DataFrame,
    ops: pl.DataFrame,
    calls: pl.DataFrame,
    names: Sequence[str],
    step: str | None,
) -> StepMarker | None:
    """The step marker of one process, or None.

    Args:
        ranges: host ranges of the process, sorted by start.
        operators: its operators. ops: its GPU ops. calls: its host calls.
        step: the user's regular expression, which then is the only candidate.

    Raises:
        UsageError: the user's expression is invalid or matches fewer than two ranges.
    """
    named = _Ranges(ranges, names)
    if step is not None:
        return _by_user(named, step)
    launches = np.sort(
        ops.select("kind", "thread", "launch_t0")
        .filter((pl.col("kind") == int(Kind.KERNEL)) & (pl.col("thread") != UNKNOWN))["launch_t0"]
        .to_numpy()
    )
    weak: StepMarker | None = None
    by_optimizer = partial(_by_optimizer, operators, ops)
    for candidates in (_by_counter, _by_name, by_optimizer, _by_dataloader):
        for marker in candidates(named, launches):
            if weak is not None and _are_micro_batches(marker, weak, ops):
                return weak
            if marker.windows >= ENOUGH:
                return marker
            if marker.windows:
                weak = weak or marker
    return weak or _by_kernels(ops, calls, named)


class _Ranges:
    """User and framework ranges of a process as arrays, selectable by a predicate on the name."""

    def __init__(self, ranges: pl.DataFrame, names: Sequence[str]) -> None:
        of_program = ~np.isin(ranges["source"].to_numpy(), NOTES)
        chosen: Bools | slice = slice(None) if of_program.all() else of_program
        self.t0, self.t1, self.name, self.thread, self.source = (
            ranges[c].to_numpy()[chosen] for c in ("t0", "t1", "name", "thread", "source")
        )
        self.names = names
        self.distinct = np.unique(self.name)

    def rows(self, predicate: Callable[[str], object]) -> Int64s:
        chosen = [int(i) for i in self.distinct if predicate(self.names[i])]
        return np.flatnonzero(np.isin(self.name, chosen))

    def marker(
        self,
        kind: MarkerKind,
        pattern: str,
        rows: Int64s,
        confidence: float,
        *,
        outside: bool,
        pauses: Bools | None = None,
    ) -> StepMarker:
        """A marker of which each range begins an iteration.

        Args:
            outside: whether the ranges leave waits outside.
            pauses: which ranges are followed by a pause that belongs to no iteration.
        """
        t0, t1 = self.t0[rows], self.t1[rows]
        ends = np.append(t0[1:], NEVER)
        if outside and t1[-1] > t0[-1]:
            ends[-1] = t1[-1]
        if pauses is not None:
            ends[:-1] = np.where(pauses, np.minimum(np.maximum(t1[:-1], t0[:-1]), t0[1:]), t0[1:])
        threads, counts = np.unique(self.thread[rows], return_counts=True)
        return StepMarker(
            kind=kind,
            pattern=pattern,
            starts=t0,
            ends=ends,
            labels=tuple(self.names[i] for i in self.name[rows]),
            thread=int(threads[np.argmax(counts)]),
            inside=union(t0, t1) if outside else None,
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


def _by_counter(ranges: _Ranges, launches: Int64s) -> Iterator[StepMarker]:
    """Ranges like `step 7`: one number counts up, all else stays. Longest in total first.

    A counter that ticks more often than the parameters are updated counts something else (layers,
    micro-batches), as does one that starts again and again without that telling how often; nor is
    it a step in whose ranges little is launched (`load batch 7` beside `train batch 7`).
    """
    templates: dict[str, int] = {}
    of_name = np.full(len(ranges.distinct), UNKNOWN, dtype=np.int64)
    for place, i in enumerate(ranges.distinct.tolist()):
        name = ranges.names[i]
        if _STEP_WORD.search(name) and not _NO_STEP.search(name):
            of_name[place] = templates.setdefault(name_template(name), len(templates))
    of_row = of_name[np.searchsorted(ranges.distinct, ranges.name)]
    order = np.argsort(of_row, kind="stable")
    ends = np.searchsorted(of_row[order], np.arange(len(templates) + 1))
    updates = ranges.t0[ranges.rows(OPTIMIZER_STEP.search)]
    found: list[tuple[int, int, int, StepMarker]] = []
    for pattern, (low, high) in zip(templates, pairwise(ends.tolist()), strict=True):
        rows = order[low:high]
        numbers = _counter(ranges.name[rows], ranges.names)
        if r"\d+" not in pattern or numbers is None:
            continue
        t0, t1 = ranges.t0[rows], ranges.t1[rows]
        between = int(((updates >= t0[0]) & (updates < max(t1[-1], t0[-1]))).sum())
        restarts = int((np.diff(numbers) < 0).sum())
        if len(rows) > _MOST_TICKS * between if between > 1 else restarts > 1:
            continue
        marks = bool((ranges.source[rows] == int(Source.MARK)).all())
        marker = ranges.marker(
            "range",
            pattern,
            rows,
            0.95 if len(rows) > 1 else 0.5,
            outside=not marks,
            pauses=None if marks else _jumps(numbers),
        )
        inside = marker.inside or EMPTY
        held = np.searchsorted(launches, inside.t1) - np.searchsorted(launches, inside.t0)
        found.append((-int((t1 - t0).sum()), int(rows[0]), int(held.sum()), marker))
    most = max((held for _, _, held, _ in found), default=0)
    for _, _, inner, marker in sorted(found, key=lambda f: f[:2]):
        if marker.inside is None or inner >= _HOLDS_WORK * most:
            yield marker


def _by_name(ranges: _Ranges, launches: Int64s) -> Iterator[StepMarker]:
    """Equal ranges named like a step, of one thread, one after the other."""
    for i in ranges.distinct.tolist():
        if not re.match(_STEP_NAME, ranges.names[i]):
            continue
        rows = np.flatnonzero(ranges.name == i)
        t0, t1 = ranges.t0[rows], ranges.t1[rows]
        apart = bool((t0[1:] >= t1[:-1]).all()) and len(np.unique(ranges.thread[rows])) == 1
        held = np.searchsorted(launches, t1) - np.searchsorted(launches, t0)
        if apart and len(rows) > 1 and (held > 0).all():
            yield ranges.marker("range", ranges.names[i], rows, 0.9, outside=True)


def name_template(name: str) -> str:
    """A name with its numbers blotted out: what ranges of one kind have in common.

    It can be given to `--step` as it is, unless the name holds characters special to expressions.
    """
    return _DIGITS.sub(r"\\d+", name)


def _counter(rows: Ints, names: Sequence[str]) -> Int64s | None:
    """The number in the names that grows from range to range, mostly by the same; None if none.

    Args:
        rows: number of the name of each range, all of one template.
    """
    distinct, place = np.unique(rows, return_inverse=True)
    numbers = [[int(d[-18:]) for d in _DIGITS.findall(names[i])[:_MOST_NUMBERS]] for i in distinct]
    columns = np.array(numbers, dtype=np.int64).reshape(len(distinct), -1).T
    if not len(columns):
        return None
    if len(rows) < 2:
        return np.asarray(columns[0][place])
    for column in columns:
        steps = np.diff(column[place])
        up = steps[steps > 0]
        if len(up) >= 0.8 * len(steps) and (up == np.median(up)).mean() >= 0.5:
            return np.asarray(column[place])
    return None


def _jumps(numbers: Int64s) -> Bools:
    """Which numbers are followed by one further on than the next: the profiler had paused."""
    steps = np.diff(numbers)
    usual = np.median(steps[steps > 0]) if (steps > 0).any() else 1
    return np.asarray(steps > usual, dtype=np.bool_)


def _by_optimizer(
    operators: pl.DataFrame, ops: pl.DataFrame, ranges: _Ranges, launches: Int64s
) -> Iterator[StepMarker]:
    """Iterations end where the optimizer does, however many backward passes come before it.

    Where all updates are made inside of backward passes, iterations end where those do.
    """
    rows = ranges.rows(OPTIMIZER_STEP.search)
    if not len(rows):
        return
    outer = rows[ranges.t1[rows] >= np.maximum.accumulate(ranges.t1[rows])]
    nodes = BackwardNodes(operators, ops, ranges.names)
    nested = nodes.cover(ranges.thread[outer], ranges.t0[outer])
    if nested.all():
        passes = nodes.updating_passes(ranges.thread[outer], ranges.t0[outer])
        if passes is None:
            return
        name, starts, thread = ranges.name[outer[0]], passes.ends, passes.thread
    else:
        outer = outer[~nested]
        names, counts = np.unique(ranges.name[outer], return_counts=True)
        name = names[np.argmax(counts)]
        last = outer[ranges.name[outer] == name]
        starts, thread = ranges.t1[last], int(ranges.thread[last[0]])
    yield StepMarker(
        kind="optimizer",
        pattern=ranges.names[name],
        starts=starts,
        ends=np.append(starts[1:], NEVER),
        labels=tuple(f"after optimizer step {k}" for k in range(len(starts))),
        thread=thread,
        inside=None,
        confidence=0.85,
    )


def _by_dataloader(ranges: _Ranges, launches: Int64s) -> Iterator[StepMarker]:
    """Batches that are taken one after the other, before anything is computed, begin one iteration.

    Trainers take all micro-batches of an update at once.
    """
    rows = ranges.rows(partial(re.search, _DATA_NEXT))
    if len(rows):
        before = np.searchsorted(launches, [ranges.t1[rows[:-1]], ranges.t0[rows[1:]]])
        computed = np.append(True, before[1] > before[0])
        rows = rows[computed] if len(launches) else rows
        name = ranges.names[ranges.name[rows[0]]]
        yield ranges.marker("dataloader", name, rows, 0.7, outside=False)


def _are_micro_batches(marker: StepMarker, updates: StepMarker, ops: pl.DataFrame) -> bool:
    """Whether marks are of micro-batches: as many with a backward pass between any two updates.

    Then updates mark the iterations, few as they are. Two updates have one iteration between them,
    and the micro-batches beside it tell more than it does.

    Args:
        ops: of the process.
    """
    if updates.kind != "optimizer" or updates.windows < 2:
        return False
    launched = (pl.col("role") == int(Role.BACKWARD)) & (pl.col("thread") != UNKNOWN)
    backward = ops.select("role", "thread", "launch_t0").filter(launched)["launch_t0"]
    passes = marker.starts[marker.count(backward) > 0]
    each = np.unique(np.diff(np.searchsorted(passes, updates.starts)))
    return len(each) == 1 and int(each[0]) > 1


def _by_kernels(ops: pl.DataFrame, calls: pl.DataFrame, ranges: _Ranges) -> StepMarker | None:
    """Repetitions of the sequence of kernels, unless ranges tell that they are those of layers."""
    period = kernel_period(ops, calls, ranges.names)
    if period is None or _are_layers(ranges, period.starts):
        return None
    return StepMarker(
        kind="kernels",
        pattern=period.anchor,
        starts=period.starts,
        ends=np.append(period.starts[1:], period.end),
        labels=tuple(f"period {k}" for k in range(len(period.starts))),
        thread=period.thread,
        inside=None,
        confidence=0.6,
    )


def _are_layers(ranges: _Ranges, starts: Int64s) -> bool:
    """Whether repetitions are parts of one forward pass: a step holds whole ones.

    Either a range of a forward pass holds several, or each holds one range of a layer, of which the
    number counts up: in a step are all layers.
    """
    passes = ranges.rows(partial(re.search, _PASS))
    first, last = (np.searchsorted(starts, t[passes]) for t in (ranges.t0, ranges.t1))
    if (last - first >= ENOUGH).any():
        return True
    layers: dict[str, list[int]] = {}
    for row in ranges.rows(partial(re.search, _LAYER)).tolist():
        layers.setdefault(name_template(ranges.names[ranges.name[row]]), []).append(row)
    for rows in map(np.array, layers.values()):
        window = np.searchsorted(starts, ranges.t0[rows], "right")
        alone = len(np.unique(window)) == len(rows) >= ENOUGH
        if alone and (numbers := _counter(ranges.name[rows], ranges.names)) is not None:
            return bool((np.diff(numbers) > 0).all())
    return False
