"""Short kernels that follow each other on a stream again and again: what could be one kernel.

A *run* is a stretch of kernels on one stream, launched by one thread in one phase of one step, that
are short and multiply no matrices; anything else on the stream ends it. A *sequence* is a series of
names inside runs. Its repetitions are counted from left to right and do not overlap. One that is
itself a repetition (abab) is none. The sequence that stands for the most launches, which is its
repetitions times its kernels but one, comes first; what it covers is taken out before the next.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
import numpy as np
import polars as pl
from numpy.typing import NDArray

from traceprobe.model.codes import Int64s, Kind
from traceprobe.model.kernel_classes import kernel_class
from traceprobe.timeline.device_timeline import DeviceTimeline
from traceprobe.timeline.intervals import Intervals, count_begun, measure_between
from traceprobe.timeline.rank_collectives import summary_windows

LONGEST = 24
"""Kernels of a sequence."""
MOST_NAMES = 5_000
"""Kernels of different runs that are looked at; equal runs are one."""
LEAST_SHARE = 0.01
"""Part of all launches that a sequence stands for at least."""
LEAST_PER_STEP = 2
Hashes = NDArray[np.uint64]
_BASE = np.uint64(0x9E3779B97F4A7C15)
"""Odd, so that hashes modulo 2^64 lose nothing: the golden ratio's bits."""


class FoundSequence(msgspec.Struct, frozen=True):
    """A sequence and its repetitions.

    Args:
        ops: rows of its kernels in the operations of the device: (repetitions, kernels).
        gap_ns: idle time of the device between them; `latency_ns` of it after a launch in time.
        launch_ns: from the first launch of a repetition to its last; all sums over repetitions.
    """

    ops: Int64s
    gap_ns: int
    latency_ns: int
    launch_ns: int


class _Runs(msgspec.Struct, frozen=True):
    """Runs of one name after the other; equal ones share a number.

    Args:
        row: place of each run's first kernel in the ordered rows. kind: which run it equals.
        first: a run of each kind. length: kernels of a run of each kind.
    """

    row: Int64s
    kind: Int64s
    first: Int64s
    length: Int64s


def frequent_sequences(
    account: DeviceTimeline, names: Sequence[str], short_ns: int, most: int
) -> list[FoundSequence]:
    """The sequences of the summary's steps that stand for the most launches, these first.

    Args:
        names: of the trace.
        short_ns: the longest kernel that counts as short. most: sequences that are wanted.
    """
    rows = _rows(account, names, short_ns)
    token = rows["name"].to_numpy().astype(np.int64)
    runs = _runs(rows, token)
    if not len(runs.row):
        return []
    steps = len(summary_windows(account))
    launches = max(int((rows["kind"] == int(Kind.KERNEL)).sum()), 1)
    text, kind, offset = _distinct(runs, token)
    weight = np.bincount(runs.kind)[kind]
    idle = account.idle, account.sets["idle_latency"]
    found = []
    for _ in range(most):
        best = _best(text, kind, weight, LEAST_PER_STEP * steps)
        if best is None or best[2] < LEAST_SHARE * launches:
            break
        at, length, _ = best
        found.append(_measured(rows, _repetitions(runs, kind[at], offset[at], length), *idle))
        taken = (at[:, None] + np.arange(length)).ravel()
        text[taken] = -1 - taken  # names that no other has
    return found


def _rows(account: DeviceTimeline, names: Sequence[str], short_ns: int) -> pl.DataFrame:
    """Operations of the summary by stream and start, with their row, window, and if they count."""
    ops = account.ops
    window = count_begun(account.edges, ops["t0"].to_numpy()) - 1
    used = ops["name"].unique().to_list()
    matrices = [number for number in used if kernel_class(names[number]).startswith("matmul")]
    counts = (
        (pl.col("kind") == int(Kind.KERNEL))
        & (pl.col("t1") - pl.col("t0") <= short_ns)
        & ~pl.col("name").is_in(matrices)
    )
    rows = (
        ops.select("stream", "kind", "name", "t0", "t1", "launch_t0", "thread", "phase")
        .with_columns(row=pl.int_range(pl.len()), window=window, counts=counts)
        .filter(np.isin(window, summary_windows(account)))
    )
    # They are by start already, and often of one stream, which numpy makes use of.
    return rows[np.argsort(rows["stream"].to_numpy(), kind="stable")]


def _runs(rows: pl.DataFrame, token: Int64s) -> _Runs:
    counts = rows["counts"].to_numpy()
    same = np.ones(max(len(rows) - 1, 0), dtype=bool)
    for column in ("stream", "window", "phase", "thread"):
        values = rows[column].to_numpy()
        same &= values[1:] == values[:-1]
    joined = np.concatenate([[False], counts[1:] & counts[:-1] & same])
    first = np.flatnonzero(counts & ~joined)
    last = np.flatnonzero(counts & ~np.append(joined[1:], False))
    several = last > first
    first, length = first[several], (last - first + 1)[several]
    until = _prefixes(token)
    keys = np.stack([_hashes(until, first, length), length.astype(np.uint64)])
    _, example, kind = np.unique(keys, axis=1, return_index=True, return_inverse=True)
    return _Runs(first, kind.ravel(), first[example], length[example])


def _prefixes(token: Int64s) -> Hashes:
    """Sums of names times powers of the base, before each place: hashes of all stretches.

    A stretch has the difference of two of them, which `_hashes` moves to one power.
    """
    mixed = (token.astype(np.uint64) + np.uint64(1)) * np.uint64(0xD6E8FEB86659FD93)
    return np.concatenate([np.zeros(1, np.uint64), np.cumsum(mixed * _powers(len(token)))])


def _powers(count: int) -> Hashes:
    factors = np.full(count, _BASE, dtype=np.uint64)
    factors[:1] = 1
    return np.cumprod(factors)


def _hashes(until: Hashes, start: Int64s, length: Int64s | int) -> Hashes:
    """Hash of each stretch, modulo 2^64."""
    powers = _powers(len(until))
    found: Hashes = (until[start + length] - until[start]) * powers[len(until) - 1 - start]
    return found


def _distinct(runs: _Runs, token: Int64s) -> tuple[Int64s, Int64s, Int64s]:
    """Names of one run of each kind, those of the most kernels first, up to `MOST_NAMES`.

    Returns:
        (text, kind, offset): names, with one that no other has behind each run; the kind of the
        run that each is of, and its place there.
    """
    order = np.argsort(-np.bincount(runs.kind) * runs.length, kind="stable")
    order = order[np.cumsum(runs.length[order]) <= max(MOST_NAMES, int(runs.length[order[0]]))]
    length = runs.length[order] + 1
    kind = np.repeat(order, length)
    offset = np.arange(len(kind)) - np.repeat(np.cumsum(length) - length, length)
    behind = offset == runs.length[kind]
    place = runs.first[kind] + np.where(behind, 0, offset)
    return np.where(behind, -1 - np.arange(len(kind)), token[place]), kind, offset


def _best(text: Int64s, kind: Int64s, weight: Int64s, least: int) -> tuple[Int64s, int, int] | None:
    """The sequence that stands for the most launches: its places in `text`, its length, launches.

    Args:
        weight: how many runs there are of the kind that each name is in.
        least: repetitions that there must be.
    """
    until, ends = _prefixes(text), _ends(text)
    candidates: list[Int64s] = []
    grams: dict[int, tuple[Int64s, Int64s]] = {}
    for length in range(2, LONGEST + 1):
        start = np.flatnonzero(ends >= length)
        if len(start) < least / max(int(weight.max()), 1):
            break
        hashed = _hashes(until, start, length)
        order = np.argsort(hashed, kind="stable")
        start, hashed = start[order], hashed[order]
        begins = np.flatnonzero(np.concatenate([[True], hashed[1:] != hashed[:-1]]))
        most = _at_most(start, begins, kind, weight, length)
        enough = np.flatnonzero(most >= least)
        grams[length] = start, np.append(begins, len(start))
        candidates.append(np.stack([-most[enough] * (length - 1), enough * 0 + length, enough]))
    if not candidates:
        return None
    found = np.concatenate(candidates, axis=1)
    best: tuple[Int64s, int, int] | None = None
    for column in np.lexsort(found[::-1]).tolist():
        bound, length, gram = found[:, column].tolist()
        if best is not None and best[2] >= -bound:
            break
        start, begins = grams[length]
        places = _apart(start[begins[gram] : begins[gram + 1]], text, length)
        count = int(weight[places].sum())
        if count >= least and (best is None or count * (length - 1) > best[2]):
            best = places, length, count * (length - 1)
    return best


def _ends(text: Int64s) -> Int64s:
    """How far each name is from the next one that stands for no kernel; the last one is such."""
    ends = np.flatnonzero(text < 0)
    place = np.arange(len(text))
    return ends[np.searchsorted(ends, place)] - place


def _at_most(start: Int64s, begins: Int64s, kind: Int64s, weight: Int64s, length: int) -> Int64s:
    """Upper bound of the repetitions of each series: within a run they are `length` apart.

    Args:
        start: places, by series, ascending in each. begins: where a series begins in them.
    """
    run = kind[start]
    parts = np.concatenate([[True], run[1:] != run[:-1]])
    parts[begins] = True
    first = np.flatnonzero(parts)
    last = np.append(first[1:], len(start)) - 1
    count = np.minimum(last - first + 1, (start[last] - start[first]) // length + 1)
    series = np.searchsorted(begins, first, "right") - 1
    sums = np.zeros(len(begins), dtype=np.int64)
    np.add.at(sums, series, count * weight[start[first]])
    return sums


def _apart(places: Int64s, text: Int64s, length: int) -> Int64s:
    """Of the places of a series those from left to right that do not overlap; none of a repetition.

    Args:
        places: with equal hashes; names that differ from the first's are left out.
    """
    series = text[places[0] : places[0] + length]
    names = series.tolist()
    if any(names[n:] == names[:-n] for n in range(1, length // 2 + 1)):
        return places[:0]
    places = places[(text[places[:, None] + np.arange(length)] == series).all(axis=1)]
    kept, free = [], -1
    for place in places.tolist():  # of different runs only, which are few
        if place >= free:
            kept.append(place)
            free = place + length
    return np.array(kept, dtype=np.int64)


def _repetitions(runs: _Runs, kind: Int64s, offset: Int64s, length: int) -> Int64s:
    """Places, in the ordered rows, of a sequence in all runs of some kinds.

    Returns:
        (repetitions, kernels).
    """
    order = np.argsort(runs.kind, kind="stable")
    low, high = (np.searchsorted(runs.kind[order], kind, side) for side in ("left", "right"))
    each = high - low
    member = np.arange(each.sum()) - np.repeat(np.cumsum(each) - each, each) + np.repeat(low, each)
    start = runs.row[order[member]] + np.repeat(offset, each)
    return np.sort(start)[:, None] + np.arange(length)


def _measured(
    rows: pl.DataFrame, places: Int64s, idle: Intervals, late_start: Intervals
) -> FoundSequence:
    t0, t1, launch, row = (rows[c].to_numpy() for c in ("t0", "t1", "launch_t0", "row"))
    end = np.maximum.accumulate(t1[places], axis=1)[:, :-1].ravel()
    start = np.maximum(t0[places][:, 1:].ravel(), end)
    gap, latency = (int(measure_between(each, end, start).sum()) for each in (idle, late_start))
    called = launch[places]
    launching = np.where((called >= 0).all(axis=1), called[:, -1] - called[:, 0], 0)
    return FoundSequence(row[places], gap, latency, int(np.maximum(launching, 0).sum()))


def most_frequent(values: Int64s) -> int:
    """The value that is there most often; of several the smallest."""
    found, counts = np.unique(values, return_counts=True)
    return int(found[np.argmax(counts)])


def each_column(found: FoundSequence, values: Int64s) -> Iterator[int]:
    """The most frequent value of an operation at each place of a sequence."""
    return (most_frequent(values[column]) for column in found.ops.T)
