"""Iterations that do more than the others: an evaluation, a checkpoint, a recompilation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from traceprobe.formatting import duration, significant
from traceprobe.model.accounting import LONE_WAIT, LONG_ITERATION, MOST_LONG, SKIPPED_AS_LONG
from traceprobe.model.events import Int64s
from traceprobe.timeline.device_timeline import DeviceTimeline


@dataclass(frozen=True)
class LongIterations:
    """The long ones among the used iterations of a device.

    Args:
        windows: their numbers, ascending.
        every: distance between them, where it is always the same; None for one alone.
        extra: class of the partition to ns that they have more of it, together, than as many
            regular ones; what they have less of is left out.
        extra_ns: their length beyond that of as many regular ones.
        once: whether this happened once: in one iteration, or in two that follow each other.
    """

    windows: Int64s
    every: int | None
    extra: Mapping[str, int]
    extra_ns: int
    once: bool


def long_iterations(account: DeviceTimeline) -> LongIterations | None:
    """The long iterations of a device; None where there are none, or so many that they are usual.

    Waiting for data does not make an iteration long: loaders deliver in bursts, and that is their
    pace. Only a single wait that is many times as long as an iteration happened once.
    """
    used = np.flatnonzero(account.used)
    if len(used) < MOST_LONG + 1:
        return None
    length = np.diff(account.edges)[used]
    working = length - account.exclusive["idle_data_wait"][used]
    long = working > LONG_ITERATION * np.median(working)
    if not long.any():
        long = length > LONE_WAIT * np.median(length)
        if long.sum() != 1:
            return None
    if not 0 < long.sum() * MOST_LONG <= len(used):
        return None
    windows, rest = used[long], used[~long]
    extra_ns = round(float(length[long].sum() - long.sum() * length[~long].mean()))
    if extra_ns <= 0:  # they work more, and wait so much less
        return None
    numbers = account.index[windows]
    apart = np.unique(np.diff(numbers))
    more = {
        name: round(float(ns[windows].sum() - len(windows) * ns[rest].mean()))
        for name, ns in account.exclusive.items()
    }
    return LongIterations(
        windows=windows,
        every=int(apart[0]) if len(apart) == 1 and apart[0] > 1 else None,
        extra={name: ns for name, ns in more.items() if ns > 0},
        extra_ns=extra_ns,
        once=len(windows) == 1 or (len(windows) == 2 and bool(apart[0] == 1)),
    )


def without(account: DeviceTimeline, long: LongIterations) -> DeviceTimeline:
    """The account of the regular iterations alone."""
    used, reasons = account.used.copy(), list(account.reasons)
    used[long.windows] = False
    median = float(np.median(np.diff(account.edges)[used])) / 1e6
    for k, ns in zip(
        account.index[long.windows].tolist(),
        np.diff(account.edges)[long.windows].tolist(),
        strict=True,
    ):
        reasons[k] = f"{SKIPPED_AS_LONG}: {duration(ns)}, the others {significant(median)} ms"
    return replace(account, used=used, reasons=reasons)
