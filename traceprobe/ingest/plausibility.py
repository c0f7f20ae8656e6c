"""GPU rows that contradict each other: the clock or the bookkeeping of the profiler was wrong.

What a device cannot have done is set aside or said, never believed in silence.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from traceprobe.formatting import counted, duration, significant
from traceprobe.ingest.untrusted_values import MOST_BYTES
from traceprobe.model.codes import UNKNOWN, Bools, Int64s, Ints, Kind
from traceprobe.model.numbering import row_order
from traceprobe.model.quality import Quality

LEAST_OVERRUN_NS = 1_000_000
OVERRUN_MEDIANS = 50
"""A kernel may overrun the next one of its stream by so many median kernels."""
LONGEST_NS = 30 * 86_400 * 1_000_000_000
"""No GPU op takes a month."""
OVERLAP_PART, OVERLAP_NS, OVERLAP_SHARE = 0.5, 10_000, 0.02
"""Kernels of one stream overlap by more than programmatic launches explain where the second begins
so early in the first, or ends in it, and they run together for so long; and where so large a share
of them does."""
_MOST_TOGETHER = 2.0**62
_STREAM = ("pid", "device", "stream")
_MICROSECOND_NS = 1_000
"""What times are whole multiples of where the profiler rounds them (PyTorch up to 2.3)."""
_FEW = 0.5
"""Share of the ops from which on it is not their shortness that they have no duration."""
_CLOCK_NS = 1_000
"""What rounding to whole microseconds may put a kernel before its launch."""


def plausible_sizes(sizes: Ints) -> Ints:
    """Bytes, UNKNOWN where nothing moves so many, alone or together: their sum is an int64."""
    sizes = np.where(sizes > MOST_BYTES, UNKNOWN, sizes)
    together = float(np.maximum(sizes, 0).sum(dtype=np.float64))
    return sizes if together < _MOST_TOGETHER else np.full_like(sizes, UNKNOWN)


def grid_number(blocks: np.typing.NDArray[np.float64]) -> Ints:
    """Blocks of kernels as int32; UNKNOWN where there are none, or more than any grid has."""
    known = (blocks > 0) & (blocks < np.iinfo(np.int32).max)
    return np.where(known, np.rint(np.where(known, blocks, 0)), UNKNOWN).astype(np.int32)


def drop_duplicates(gpu: dict[str, Any], quality: Quality) -> dict[str, Any]:
    """GPU ops, each once: a stream cannot run the same op twice at the same time.

    Rows are the same that agree in process, device, stream, times, name and correlation.
    """
    keys = ("pid", "device", "stream", "t0", "t1", "name", "correlation")
    order = _of_one_time(gpu["t0"])
    order = order[np.lexsort([gpu[c][order] for c in keys])]
    same = np.ones(max(len(order) - 1, 0), dtype=bool)
    for column in keys:
        same &= gpu[column][order][1:] == gpu[column][order][:-1]
    # Ops of no length say nothing of their own, and one at a time may stand for many.
    rows = order[1:][same]
    rows = rows[gpu["t1"][rows] > gpu["t0"][rows]]
    if not len(rows):
        return gpu
    quality.damaged(
        "duplicate-rows",
        len(rows),
        "GPU rows are in the file more than once; each was counted once.",
    )
    return {column: np.delete(values, rows) for column, values in gpu.items()}


def _of_one_time(t0: Ints) -> Int64s:
    """Rows that start when another one does, ascending."""
    order = np.argsort(t0, kind="stable")
    same = np.diff(t0[order]) == 0
    shared = np.zeros(len(order), dtype=np.bool_)
    shared[1:] |= same
    shared[:-1] |= same
    return np.sort(order[shared])


def warn_of_overlaps(gpu: dict[str, Any], quality: Quality) -> None:
    """Warn where kernels of one stream run at once for longer than heads and tails explain.

    Programmatic launches let the head of a kernel overlap the tail of the one before it, for which
    it waits: a short one may be all head, and ends after that. Graphs and collectives are not
    compared, see `drop_overruns`.
    """
    kernel = np.flatnonzero((gpu["kind"] == int(Kind.KERNEL)) & ~gpu["graph"])
    if len(kernel) < 2:
        return
    columns = {c: gpu[c][kernel] for c in (*_STREAM, "t0", "t1")}
    order = row_order([columns[c] for c in (*_STREAM, "t0")], [columns["t1"]])
    first, second = order[:-1], order[1:]
    same = np.ones(len(first), dtype=bool)
    for column in _STREAM:
        same &= columns[column][first] == columns[column][second]
    first_ends, second_ends = columns["t1"][first], columns["t1"][second]
    together = np.minimum(first_ends, second_ends) - columns["t0"][second]
    early = together > OVERLAP_PART * (first_ends - columns["t0"][first])
    over = same & (together > OVERLAP_NS) & (early | (second_ends < first_ends))
    count = int(np.count_nonzero(over))
    if count > OVERLAP_SHARE * len(kernel):
        quality.damaged(
            "overlapping-kernels",
            count,
            "kernels run while the one before them on their stream still does, which no stream "
            "allows: rows of several devices or runs may be mixed in this file.",
        )


def drop_overruns(gpu: dict[str, Any], quality: Quality) -> dict[str, Any]:
    """GPU ops without the kernels that run on long after the next one of their stream began.

    A stream runs one kernel after the other; the heads of some overlap the tails of others by
    microseconds. Graphs run branches side by side under one stream, and collectives are known to
    be noted under a stream that is not theirs, so neither is compared.
    """
    length = gpu["t1"] - gpu["t0"]
    kernel = (gpu["kind"] == int(Kind.KERNEL)) & ~gpu["graph"] & (length <= LONGEST_NS)
    rows = np.flatnonzero(length > LONGEST_NS)
    if kernel.any():
        limit = max(LEAST_OVERRUN_NS, OVERRUN_MEDIANS * float(np.median(length[kernel])))
        if length[kernel].max() > limit:
            kernel_rows = np.flatnonzero(kernel)
            over = _overruns({c: gpu[c][kernel_rows] for c in (*_STREAM, "t0", "t1")}, limit)
            rows = np.concatenate([rows, kernel_rows[over]])
    if not len(rows):
        return gpu
    taken = float(length[rows].astype(np.float64).sum()) / 1e6
    quality.damaged(
        "impossible-durations",
        len(rows),
        "kernels run on long after the next one of their stream began, "
        f"{significant(taken)} ms together: their ends are wrong, and no number includes them.",
    )
    return {column: np.delete(values, rows) for column, values in gpu.items()}


def _overruns(kernels: dict[str, Ints], limit: float) -> Bools:
    order = np.lexsort([kernels[c] for c in ("t1", "t0", *_STREAM)])
    same = np.ones(len(order) - 1, dtype=bool)
    for column in _STREAM:
        same &= kernels[column][order][1:] == kernels[column][order][:-1]
    found = np.zeros(len(order), dtype=bool)
    found[order[:-1]] = same & (kernels["t1"][order][:-1] - kernels["t0"][order][1:] > limit)
    return found


def warn_of_impossible_times(gpu: dict[str, Any], quality: Quality) -> None:
    """Warn of ops without a duration, and of such as start before they were launched."""
    length = gpu["t1"] - gpu["t0"]
    none = int(np.count_nonzero(length == 0))
    if 0 < none < _FEW * len(length) and not (length % _MICROSECOND_NS).any():
        quality.warn(
            "rounded-durations",
            f"{counted(none, 'GPU op')} of {len(length):,} took less than 1 µs, and this file "
            "keeps whole µs: they are counted, and less than "
            f"{duration(none * _MICROSECOND_NS)} of their work is missing.",
        )
    elif none:
        quality.damaged(
            "zero-durations",
            none,
            "GPU ops have no duration: their work is missing from busy time.",
        )
    early = np.where(gpu["linked"], gpu["launch_t0"] - gpu["t0"], 0)
    count = int(np.count_nonzero(early > _CLOCK_NS))
    if count:
        quality.damaged(
            "starts-before-launch",
            count,
            f"GPU ops start before their launch, by up to {early.max() / 1e3:.0f} µs: the "
            "clocks of host and GPU differ in this file, so the causes of idle time are doubtful.",
        )
