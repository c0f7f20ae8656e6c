"""Collectives that every backward pass before an update makes again, though one could for all.

Gradients add up over the passes, so that reducing them after the last is enough, and parameters do
not change before the update, so that gathering them once is. What is reduced in a forward pass is
of another kind: results of a model that is split, or statistics of a batch. Where no trace says how
large messages are, those that last as long are taken to be alike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec
import numpy as np
import polars as pl

from traceprobe.model.codes import UNKNOWN, Bools, Int64s, Kind, Operation
from traceprobe.model.taxonomy import Phase

_FORWARD, _BACKWARD, _UPDATE = range(3)
_PARTS = {
    int(Phase.FORWARD): _FORWARD,
    int(Phase.BACKWARD): _BACKWARD,
    int(Phase.RECOMPUTE): _BACKWARD,
    int(Phase.OPTIMIZER): _UPDATE,
}
_REDUCTIONS = (int(Operation.ALL_REDUCE), int(Operation.REDUCE_SCATTER))
_GATHER = int(Operation.ALL_GATHER)


class RepeatedCollectives(msgspec.Struct, frozen=True):
    """What need not be communicated for the same updates.

    Args:
        passes: backward passes of an update.
        reduced_ns, gathered_ns: durations of reductions of gradients, and of gatherings of
            parameters, that repeat others.
    """

    passes: int
    reduced_ns: int
    gathered_ns: int
    all_ns: int


class _Messages(msgspec.Struct, frozen=True):
    """Large messages by launch; arrays equally long.

    Args:
        update, backward_pass: numbers of the update and the pass that each is of.
        part: what is computed around it, of `_PARTS`.
    """

    operation: Int64s
    bytes: Int64s
    ns: Int64s
    update: Int64s
    backward_pass: Int64s
    part: Int64s

    def of(self, which: Bools) -> _Messages:
        columns = {name: getattr(self, name)[which] for name in self.__struct_fields__}
        return _Messages(**columns)

    def sizes(self) -> Counter[int]:
        return Counter(self.bytes.tolist())

    def weights(self) -> Int64s:
        """Bytes, or where they are not known the time that they take."""
        return np.where(self.bytes == UNKNOWN, self.ns, self.bytes)


class Large(msgspec.Struct, frozen=True):
    """Which messages count; smaller ones may be metrics.

    Args:
        bytes: of one, at least.
        part: of the longest one's time, at least, where no sizes are known.
        unlike: how many times as long those of a pass take that are others, where no sizes are
            known.
    """

    bytes: float
    part: float
    unlike: float

    def among(self, ops: pl.DataFrame) -> Bools:
        """Whether each op is one."""
        sent = ops["kind"].to_numpy() == int(Kind.COMM)
        size, ns = ops["bytes"].to_numpy(), (ops["t1"] - ops["t0"]).to_numpy()
        if not sent.any() or (size[sent] != UNKNOWN).any():
            return np.asarray(sent & (size >= self.bytes))
        return np.asarray(sent & (ns >= self.part * ns[sent].max()))


def repeated_collectives(ops: pl.DataFrame, large: Large) -> RepeatedCollectives | None:
    """Those of one device; None where there are none.

    Args:
        ops: of judged iterations, with columns iteration, kind, phase, operation, bytes, thread,
            launch_t0, t0, t1.
    """
    counts = large.among(ops)
    if not (counts & ops["operation"].is_in(_REDUCTIONS).to_numpy()).any():
        return None
    messages = _messages(ops, counts)
    reductions = messages.of(np.isin(messages.operation, _REDUCTIONS))
    if not len(reductions.bytes) or (reductions.part == _FORWARD).any():
        return None
    shards = bool((reductions.operation == int(Operation.REDUCE_SCATTER)).any())
    gathers = messages.of(messages.operation == _GATHER)
    updates = np.unique(messages.update).tolist()
    each = [messages.of(messages.update == update) for update in updates]
    passes = {len(np.unique(one.backward_pass)) for one in each}
    if len(passes) != 1 or (count := passes.pop()) < 2:
        return None
    reduced = _again(reductions, updates, count, large.unlike)
    gathered = _gathered_again(gathers, updates, count, large.unlike) if shards else 0
    if not reduced and not gathered:
        return None
    sent = ops.filter(pl.col("kind") == int(Kind.COMM))
    return RepeatedCollectives(count, reduced, gathered, int((sent["t1"] - sent["t0"]).sum()))


def _messages(ops: pl.DataFrame, counts: Bools) -> _Messages:
    """Those of the messages that count which forward and backward passes have."""
    placed = ops.with_columns(counts=counts).filter(pl.col("thread") != UNKNOWN)
    rows = placed.sort("launch_t0", "t0")
    kind, phase, iteration, operation, size = (
        rows[c].to_numpy() for c in ("kind", "phase", "iteration", "operation", "bytes")
    )
    part = np.full(len(rows), UNKNOWN)
    for code, its_part in _PARTS.items():
        part[(kind == int(Kind.KERNEL)) & (phase == code)] = its_part
    kernels = np.flatnonzero(part != UNKNOWN)
    wanted = rows["counts"].to_numpy() & np.isin(operation, (*_REDUCTIONS, _GATHER))
    found = np.flatnonzero(wanted)
    if not len(kernels):
        found = found[:0]
    # A pass begins with the first forward kernel after a backward pass or an update.
    now, before = part[kernels], np.concatenate([[_UPDATE], part[kernels[:-1]]])
    fresh = np.diff(iteration[kernels], prepend=UNKNOWN) != 0
    begins = (now == _FORWARD) & (before != _FORWARD)
    passes = np.cumsum(begins | fresh)
    updates = np.cumsum(((now != _UPDATE) & (before == _UPDATE)) | fresh)
    # What is reduced was computed before, what is gathered is used after.
    after = np.minimum(np.searchsorted(kernels, found), len(kernels) - 1)
    around = np.where(operation[found] == _GATHER, after, np.maximum(after - 1, 0))
    messages = _Messages(
        operation=operation[found],
        bytes=size[found],
        ns=(rows["t1"] - rows["t0"]).to_numpy()[found],
        update=updates[around],
        backward_pass=passes[around],
        part=now[around],
    )
    return messages.of(messages.part != _UPDATE)


def _same_in_all(messages: _Messages, updates: Sequence[int], count: int, unlike: float) -> bool:
    """Whether each update's passes have the same messages."""
    passes = []
    for update in updates:
        own = messages.of(messages.update == update)
        each = [own.of(own.backward_pass == k) for k in np.unique(own.backward_pass)]
        if len(each) != count:
            return False
        passes.append(each)
    if (messages.bytes == UNKNOWN).any():
        return _last_as_long(passes, unlike)
    return all(one.sizes() == each[0].sizes() for each in passes for one in each)


def _last_as_long(passes: Sequence[Sequence[_Messages]], unlike: float) -> bool:
    """Whether the messages of all passes are as many, of the same kinds, and together as long.

    The shortest of all updates counts: in others somebody may be late. One message of each pass may
    wait for a rank that always is, so that the others are what tells.
    """
    first = passes[0][0].operation
    if any(not np.array_equal(one.operation, first) for each in passes for one in each):
        return False
    shortest = np.min([[one.ns for one in each] for each in passes], axis=0)
    of_pass = shortest.sum(axis=1)
    return bool(of_pass.max() < unlike * of_pass.min())


def _again(messages: _Messages, updates: Sequence[int], count: int, unlike: float) -> int:
    """Time of all but one of the passes, ns; 0 where they differ."""
    if not _same_in_all(messages, updates, count, unlike):
        return 0
    return round(int(messages.ns.sum()) * (count - 1) / count)


def _gathered_again(gathers: _Messages, updates: Sequence[int], count: int, unlike: float) -> int:
    """Time of all gathering but that of one forward pass, ns; 0 where passes differ."""
    once = gathers.of(gathers.part == _FORWARD)
    if not len(once.bytes) or not _same_in_all(once, updates, count, unlike):
        return 0
    needed = int(once.weights().sum()) / count
    return round(int(gathers.ns.sum()) * (1 - needed / int(gathers.weights().sum())))
