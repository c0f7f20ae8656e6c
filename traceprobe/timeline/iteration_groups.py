"""Marks that count something smaller than the training loop, joined to whole iterations.

A profiler's step counts updates of the parameters, while one iteration of a GAN has three of them,
and one of reinforcement learning a rollout and several updates; a loader's batches may be
micro-batches of one update. The contents of the marked windows then repeat with a period.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
from msgspec.structs import replace

from traceprobe.model.accounting import BATCH_BYTES
from traceprobe.model.codes import UNKNOWN, Int64s, Kind
from traceprobe.model.numbering import numbered
from traceprobe.timeline.kernel_period import LAUNCHED, is_update, update_times
from traceprobe.timeline.repetitions import (
    Cycle,
    contents_of,
    find_cycle,
    first_place,
    plain_windows,
)
from traceprobe.timeline.step_markers import OPTIMIZER_STEP, StepMarker, find_step_marker

FEWEST = 6
"""Windows that show a cycle: of four, two pairs may be alike by chance."""


def find_iterations(
    ranges: pl.DataFrame,
    operators: pl.DataFrame,
    ops: pl.DataFrame,
    calls: pl.DataFrame,
    names: Sequence[str],
    step: str | None,
) -> StepMarker | None:
    """The iterations of one process, or None; arguments and errors as of `find_step_marker`."""
    marker = find_step_marker(ranges, operators, ops, calls, names, step)
    return None if marker is None else whole_iterations(marker, ops, ranges, names)


def whole_iterations(
    marker: StepMarker, ops: pl.DataFrame, ranges: pl.DataFrame, names: Sequence[str]
) -> StepMarker:
    """The marker, or one of every k-th of its marks where k windows are one iteration.

    Where some windows only do more than the others (an evaluation after every fifth step), each is
    an iteration, unless some lack what every iteration has: new input, or, the others, updates.

    Args:
        ops: GPU ops of the process. ranges: its host ranges.
    """
    count = marker.windows
    if count < FEWEST or marker.kind == "user":
        return marker
    launched = ops.select("bytes", *LAUNCHED).filter(pl.col("thread") != UNKNOWN)
    window = marker.iteration_at(launched["launch_t0"].to_numpy())
    kind = launched["kind"].to_numpy()
    kernel = kind == int(Kind.KERNEL)
    ids = launched["name"].to_numpy()
    distinct, place = numbered(ids[kernel])
    contents = contents_of(window[kernel], place.astype(np.int64), count)
    copies = (kind == int(Kind.H2D)) & (launched["bytes"].to_numpy() >= BATCH_BYTES)
    steps = [i for i in ranges["name"].unique().to_list() if OPTIMIZER_STEP.search(names[i])]
    if steps:
        updated = marker.iteration_at(ranges.filter(pl.col("name").is_in(steps))["t0"].to_numpy())
    else:
        updated = marker.iteration_at(update_times(launched, names))
    updates, inputs = _counts(updated, len(contents)), _counts(window[copies], len(contents))
    traits, updating = np.stack([updates, inputs > 0]), is_update(distinct, names)
    cycle = find_cycle(contents, traits, updating=updating)
    if cycle is None or cycle.length == 1:
        return marker
    first = _first_of_group(cycle, contents, updates, inputs)
    return marker if first is None else _joined(marker, cycle.length, first)


def _counts(windows: Int64s, count: int) -> Int64s:
    inside = windows[(windows >= 0) & (windows < count)]
    return np.bincount(inside, minlength=count)


def _first_of_group(cycle: Cycle, contents: Int64s, updates: Int64s, inputs: Int64s) -> int | None:
    """The first window that begins an iteration; None where each window is one."""
    example = [int(np.flatnonzero(cycle.labels == label)[0]) for label in cycle.typical]
    updates, inputs = updates[example], inputs[example]
    plain = plain_windows(cycle, contents)
    if plain is not None:
        place = int(np.argmax(plain))
        more_updates = bool((updates > updates[place]).any())
        some_input = bool((inputs > 0).any() and (inputs == 0).any())
        if not more_updates and not some_input:
            return None
    if inputs.any() and not inputs.all():  # an iteration begins with its input
        begins = (inputs > 0) & (np.roll(inputs, 1) == 0)
        return int(np.flatnonzero(begins)[0])
    most = np.flatnonzero(updates == updates.max())
    return (
        int(most[-1] + 1) % cycle.length
        if len(most) < cycle.length
        else first_place(cycle, contents)
    )


def _joined(marker: StepMarker, k: int, first: int) -> StepMarker:
    """Every k-th mark from the first on; iterations that are not whole at either end are lost."""
    begin = np.arange(first, marker.windows - k + 1, k)
    last = begin + k - 1
    return replace(
        marker,
        starts=marker.starts[begin],
        ends=marker.ends[last],
        labels=tuple(
            f"{marker.labels[a]} to {marker.labels[b]}"
            for a, b in zip(begin.tolist(), last.tolist(), strict=True)
        ),
        per_iteration=k,
    )
