"""What operations need of other streams.

The events that streams wait for tell (`timeline/dependencies.py`). Where the trace has none, a
collective needs what was launched before it, and the optimizer the collectives launched before it;
and where not all waits are known, an operation that started late for no other reason, just when one
on another stream ended, needs that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from traceprobe.model.accounting import SLACK_NS
from traceprobe.model.codes import Bools, Int64s
from traceprobe.model.taxonomy import COMPUTE_PHASES, OFF_DEVICE
from traceprobe.timeline.dependencies import Dependencies

if TYPE_CHECKING:
    import polars as pl

NEAR_NS = 10_000
"""An operation that starts within this time after the end of another may have waited for it."""
TOLD_NEAR_NS = 50_000
"""The same of one whose stream was told to wait, where the trace does not say for what: on AMD's
GPUs, whose traces have no records of events, it then starts some 20 µs later."""
KINDS = (*COMPUTE_PHASES, *OFF_DEVICE)
"""Copies inside the device and memsets belong to the phase that launches them."""


class Needs(msgspec.Struct, frozen=True):
    """Pairs of operations, the second of which must end before the first begins.

    Args:
        op, needs: rows of the operations. recorded: whether the trace says so.
    """

    op: Int64s
    needs: Int64s
    recorded: Bools
    unresolved: int


def stream_needs(
    ops: pl.DataFrame, told: Dependencies, kind: Int64s, stream: Int64s, ready: Int64s
) -> Needs:
    """What operations need of other streams, as far as the trace tells or it can be inferred.

    Args:
        told: what they need because of events.
        kind, stream, ready: of each operation; from `ready` on it would start, if it needed
            nothing.
    """
    t0, t1 = ops["t0"].to_numpy(), ops["t1"].to_numpy()
    pairs = [(told.op, told.needs, told.recorded)]
    if not len(told.op):
        design = [(row, of) for row, of in _by_design(ops, kind) if t1[of] <= t0[row]]
        design = [(row, of) for row, of in design if stream[of] != stream[row]]
        at = np.array(design, np.int64).reshape(-1, 2)
        pairs.append((at[:, 0], at[:, 1], np.zeros(len(at), bool)))
    late = np.zeros(0, np.int64)
    if not told.all_recorded:
        explained = ready.copy()
        np.maximum.at(explained, told.op, t1[told.needs])
        near = np.full(len(t0), NEAR_NS)
        near[told.open] = TOLD_NEAR_NS
        late, other = _just_after(t0, t1, stream, explained, near)
        pairs.append((late, other, np.zeros(len(late), bool)))
    op, needs, recorded = (np.concatenate([pair[n] for pair in pairs]) for n in range(3))
    _, first = np.unique(np.stack([op, needs]), axis=1, return_index=True)
    # A wait that was for something else than it seemed is known where the start tells for what.
    unresolved = told.lost - int(np.isin(told.open, late).sum())
    unresolved += int((~np.isin(told.contradicted, late)).sum())
    return Needs(op[first], needs[first], recorded[first].astype(bool), unresolved)


def _just_after(
    t0: Int64s, t1: Int64s, stream: Int64s, ready: Int64s, near_ns: Int64s
) -> tuple[Int64s, Int64s]:
    """Operations that started late, just when one of another stream had ended, and that one.

    Args:
        near_ns: by how much later each may have started.
    """
    order = np.argsort(t1, kind="stable")
    late = np.flatnonzero(t0 - ready > SLACK_NS)
    at = np.searchsorted(t1[order], t0[late], "right") - 1
    known = at >= 0
    late, other = late[known], order[at[known]]
    near = (t0[late] - t1[other] <= near_ns[late]) & (stream[other] != stream[late])
    near &= other < late
    return late[near], other[near]


def _by_design(ops: pl.DataFrame, kind: Int64s) -> list[tuple[int, int]]:
    """Collectives need what was launched before them, the first of the optimizer needs them."""
    comm = kind == KINDS.index("communication")
    if not comm.any():
        return []
    number = np.arange(len(kind))
    last_kernel = np.maximum.accumulate(np.where(kind < len(COMPUTE_PHASES), number, -1))
    last_comm = np.maximum.accumulate(np.where(comm, number, -1))
    pairs = [(int(i), int(last_kernel[i])) for i in np.flatnonzero(comm) if last_kernel[i] >= 0]
    optimizer = np.flatnonzero(kind == KINDS.index("optimizer"))
    _, first = np.unique(ops["iteration"].to_numpy()[optimizer], return_index=True)
    pairs += [(int(i), int(last_comm[i])) for i in optimizer[first] if last_comm[i] >= 0]
    return pairs
