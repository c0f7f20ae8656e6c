"""What is left when communication, the host's time or a loader's work gets less.

Kernels beside a collective are slower than alone, and DDP copies gradients into its buckets and
back: both go with it. A CUDA graph takes the host's time away, but not the gap between one kernel
and the next. More workers of a loader share what one does, but not all of it. How much is known
from the trace or from measurements (`traceprobe.model.contention`), and never exactly.
"""

from __future__ import annotations

import msgspec
import numpy as np
from msgspec.structs import replace

from traceprobe.model.contention import GRAPH_GAP_NS, LOADER_SERIAL
from traceprobe.replay.tasks import Tasks

WAITING = 0.5
"""Of what a collective costs others while it transfers, the part that it costs them while it waits:
it keeps its multiprocessors and moves no memory. Chosen: of twelve recordings of late ranks in
slowbench 0 to 1 fits best, 0.6 in the middle."""


class Leftovers(msgspec.Struct, frozen=True):
    """What is assumed of it.

    Args:
        spared: of what communication costs others, the part that they are spared without it.
        gap: between operations of a graph, ns.
        serial: of a worker's time for a batch, the part that more workers do not shorten.
    """

    spared: float = 1.0
    gap: float = GRAPH_GAP_NS
    serial: float = LOADER_SERIAL


LIKELY = Leftovers()
LITTLE = Leftovers(spared=1.25, gap=600.0, serial=0.0)
MUCH = Leftovers(spared=0.75, gap=1000.0, serial=0.2)
"""About the ends of what was measured; see docs/validation/contention.md."""


def without_communication(tasks: Tasks, left: Leftovers) -> Tasks:
    """The tasks without collectives and what there is only for them, others as fast as alone."""
    which = tasks.of(("communication",))
    rest = tasks.emptied(which).without_needs(which)
    alone, alone_host = (
        np.clip(1 - left.spared * (1 - share), 0.0, 1.0) for share in (rest.alone, rest.alone_host)
    )
    return replace(
        rest.scaled(alone).hosted(alone_host),
        alone=np.ones(len(rest)),
        alone_host=np.ones(len(rest)),
    )


def without_waiting(tasks: Tasks, waited: float, left: Leftovers) -> Tasks:
    """The tasks beside collectives in which no rank waits for another: as much less time.

    Args:
        waited: as of `RankSchedule`.
    """
    slowed = 1 - tasks.alone
    spared = left.spared * WAITING * waited * slowed
    return replace(tasks.scaled(1 - spared), alone=1 - (slowed - spared) / (1 - spared))


def without_host(tasks: Tasks, left: Leftovers) -> Tasks:
    """The tasks without host time, as operations of a graph: not without time between them."""
    nothing = np.zeros(len(tasks))
    return replace(
        tasks,
        first_host=nothing,
        host=nothing,
        pause=nothing,
        stall=nothing,
        lag=np.maximum(tasks.lag, left.gap * tasks.ops),
    )


def period_of_more(period: float, factor: float, workers: int, left: Leftovers) -> float:
    """Time for a batch with `factor` times as many workers; below 1, with a slower loader.

    Args:
        period: with `workers`.
    """

    def each(count: float) -> float:
        return left.serial + (1 - left.serial) / count

    return period / factor if factor < 1 else period * each(workers * factor) / each(workers)
