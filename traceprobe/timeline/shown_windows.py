"""Which windows of a device a person should see: a usual one, the slowest, a long one."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from traceprobe.model.codes import UNKNOWN
from traceprobe.model.taxonomy import WindowKind
from traceprobe.timeline.device_timeline import DeviceTimeline
from traceprobe.timeline.long_iterations import LongIterations
from traceprobe.timeline.rank_collectives import summary_windows

TYPICAL = 3
"""Usual windows that a device offers, so that ranks find an iteration that is usual on all."""
MOST_OPS = 200_000
"""Operations of all windows of a device together."""
LONGEST_NS = 1 << 47
"""A window of more than a day and a half has a damaged time stamp, and is not shown."""


class ShownWindow(NamedTuple):
    """A part of the account and what it stands for; ns on the trace's clock.

    Args:
        iteration: number of its marker; None where there are no iterations.
    """

    why: WindowKind
    iteration: int | None
    t0: int
    t1: int


def shown_windows(account: DeviceTimeline, long: LongIterations | None) -> list[ShownWindow]:
    """Windows worth a look, most telling first, as many as `MOST_OPS` allows.

    A typical window is one whose length is nearest to the median of the regular ones, of which it
    takes three. Of a capture without iterations it is the whole, or its beginning with `MOST_OPS`
    operations.
    """
    starts = account.ops["t0"].to_numpy()
    if not len(account.index):
        low, high = int(account.edges[0]), int(account.edges[-1])
        inside = starts[np.searchsorted(starts, low) :]
        cut = int(inside[MOST_OPS]) if len(inside) > MOST_OPS else high
        end = min(cut, high) if cut > low else high
        return [ShownWindow("capture", None, low, end)] if end - low <= LONGEST_NS else []
    covered = summary_windows(account)
    if not len(covered):
        covered = np.arange(len(account.index))
    odd = covered[:0] if long is None else long.windows
    regular = np.setdiff1d(covered, odd)
    length = np.diff(account.edges)
    order = regular[np.argsort(length[regular], kind="stable")].tolist()
    middle = (len(order) - 1) // 2
    usual = sorted(range(len(order)), key=lambda place: abs(place - middle))[:TYPICAL]
    chosen: list[tuple[WindowKind, int]]
    spare: list[tuple[WindowKind, int]] = []
    if len(order) > 2:
        chosen = [("typical", order[usual[0]]), ("slowest", order[-1])]
        spare = [("typical", order[place]) for place in usual[1:] if order[place] != order[-1]]
    elif len(order) == 2:
        chosen = [("slowest", order[1]), ("fastest", order[0])]
    else:
        chosen = [("only", window) for window in order]
    if len(odd):
        chosen.append(("long", int(odd[np.argmax(length[odd])])))
    found: list[ShownWindow] = []
    left = MOST_OPS
    for why, window in chosen + spare:
        low, high = int(account.edges[window]), int(account.edges[window + 1])
        if high - low > LONGEST_NS:
            continue
        left -= int(np.searchsorted(starts, high) - np.searchsorted(starts, low))
        if found and left < 0:
            break
        number = int(account.index[window])
        found.append(ShownWindow(why, None if number == UNKNOWN else number, low, high))
    return found
