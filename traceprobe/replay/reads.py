"""What the host does only to read values from the device: `.item()`, `print(tensor)`, `nonzero`.

A read is a short copy to the host that the host waits for. It empties the queue of launches, so the
device idles until the host is ahead again, and each read costs the host its call. Reads that follow
one another closely, as in a loop of `.item()` or in what prints a tensor, are one act of the
program: what the host does between them is for the next of them. So are short kernels that it
launches there from the backward pass to the update: they compute what is read. Without the act both
go, but for the launches of other kernels between, which may be wanted for something else, and for
long pauses, which are for nothing that is read.
"""

from __future__ import annotations

import msgspec
import numpy as np
from msgspec.structs import replace

from traceprobe.replay.tasks import Bools, Floats, Tasks

CALL_NS = 10_000
"""What the host takes for a launch, or for the call of a copy that it need not wait for: in the
recordings of `sample_traces` 7 to 40 µs, under a profiler."""
VALUE_NS = 20_000
"""A copy that takes longer moves more than a few values."""
CLOSE_OPS = 16
"""Operations between two reads of one act, at most. Printing a tensor has up to 9 (measured)."""
PREPARING = "backward"
"""Phase in which kernels between two reads are for what is read. A forward pass may be several
that are read in turns, as a policy's is that acts after each of them; and an optimizer may read a
value of each parameter that it updates."""


class Reads(msgspec.Struct, frozen=True):
    """The reads among some tasks.

    Args:
        copies: their copies, of tasks. awaiting: tasks before which the host waits for one.
        preparing: kernels that compute what is read. host: the host's time for each task without
            the reads, ns.
    """

    copies: Bools
    awaiting: Bools
    preparing: Bools
    host: Floats


def find_reads(tasks: Tasks) -> Reads:
    """The reads, and what the host would need without them."""
    count = len(tasks)
    waits = np.flatnonzero(tasks.awaits > 0)
    awaited = (waits - tasks.awaits[waits]) % max(count, 1)
    short = tasks.of(("d2h",)) & (tasks.duration <= VALUE_NS * tasks.ops)
    read = short[awaited]
    copies, awaiting = np.zeros(count, bool), np.zeros(count, bool)
    copies[awaited[read]] = awaiting[waits[read]] = True
    host = np.where(copies, np.maximum(tasks.host - CALL_NS * tasks.ops, 0.0), tasks.host)
    between = _between(tasks, copies)
    preparing = between & tasks.tiny & tasks.of((PREPARING,))
    launches = np.where(copies | preparing, 0, CALL_NS * tasks.ops)
    launching = np.minimum(tasks.host, launches + tasks.held_up)
    return Reads(copies, awaiting, preparing, np.where(between, launching, host))


def without_reads(tasks: Tasks) -> Tasks:
    """The tasks without reads; the host waits for none of them, and is spared what they cost it."""
    reads = find_reads(tasks)
    gone = reads.copies | reads.preparing
    rest = tasks.emptied(gone).without_needs(gone)
    return replace(
        rest,
        awaits=np.where(reads.awaiting, 0, tasks.awaits),
        host=reads.host,
        pause=np.minimum(tasks.pause, reads.host),
        stall=np.minimum(tasks.stall, np.maximum(reads.host - tasks.pause, 0.0)),
        first_host=np.minimum(tasks.first_host, reads.host),
    )


def _between(tasks: Tasks, copies: Bools) -> Bools:
    """Tasks after a read, up to the next one on the same line of the host, where that is close."""
    found = np.zeros(len(tasks), bool)
    for line in np.unique(tasks.line[copies]):
        mine = np.flatnonzero(tasks.line == line)
        done = np.cumsum(tasks.ops[mine] * ~copies[mine])
        reads = np.flatnonzero(copies[mine])
        first, last = reads[:-1], reads[1:]
        close = done[last] - done[first] <= CLOSE_OPS
        close &= tasks.iteration[mine[first]] == tasks.iteration[mine[last]]
        for begin, end in zip(first[close].tolist(), last[close].tolist(), strict=True):
            found[mine[begin + 1 : end + 1]] = True
    return found
