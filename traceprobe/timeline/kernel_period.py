"""Iterations that no range marks: the period of the sequence of kernels.

A training loop launches the same kernels again and again. Its period is found by an anchor: a
kernel that occurs once, or a few times, in each repetition. Kernels that update the parameters are
tried first, since an iteration ends with them; then the rarest others. Where batches have other
sizes the kernels between updates are others as well, and their families repeat.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np
import polars as pl

from traceprobe.model.codes import UNKNOWN, Bools, Int64s, Kind
from traceprobe.model.kernel_families import kernel_family
from traceprobe.model.numbering import numbered
from traceprobe.timeline.repetitions import (
    REGULAR,
    SAME,
    Cycle,
    contents_of,
    covers,
    find_cycle,
    first_place,
    most_frequent,
    plain_windows,
    regular_windows,
    typical_contents,
)

REPEATS = 3
"""Repetitions that make a period."""
_LEAST_COVERED = 0.8
"""Part of the kernels between the first and the last anchor that belong to repetitions."""
_LEAST_PART = 0.1
"""Part of the kernels that a thread launches if it is one of those that make an iteration."""
_OWN = 0.5
"""Part of the kernels of the names that make a repetition which lies in repetitions."""
_COLD = 0.2
"""Part of the launching that a single launch takes where the GPU was not set up."""
_MOST_ANCHORS = 16
_MOST_OCCURRENCES = 100_000

# Compiled when first searched for: most traces have marks of their steps.
_UPDATE = (
    r"(?i)multi_?tensor_?apply|(?<![a-z])multi_tensor_|fused_?(adam|sgd|lamb|adagrad)"
    r"|(?<![a-z])(adamw?|adagrad|adafactor|rmsprop|sgd|lion|lamb)(?![a-z])|optimizer"
)
_TENSOR_UPDATE = "addcdiv_cuda"
"""With it Adam and its kind end the update of each parameter; models do without."""
_ADDITION = r"(?i)(CUDAFunctor_|Functor)add|add_kernel"
"""What adds a gradient to that of the micro-batches before; models add, too."""
_NO_UPDATE = r"(?i)::Copy<|optimizer_state|LpNorm"
"""PyTorch copies lists of tensors by multi_tensor_apply too, as FSDP does around each layer."""


class Period(msgspec.Struct, frozen=True):
    """Repetitions in the sequence of kernels of one process.

    Args:
        starts: host times, ascending: the first launch of the first repetition, then the end of
            the last launch of each but the last.
        end: end of the last launch of the last.
        anchor: name of the last kernel of a repetition.
        thread: the step thread.
    """

    starts: Int64s
    end: int
    anchor: str
    thread: int


class _Kernels(msgspec.Struct, frozen=True):
    """Launched kernels of one device in launch order."""

    name: Int64s
    t0: Int64s
    t1: Int64s
    thread: Int64s

    @property
    def pause(self) -> Int64s:
        """From the end of the launch before to the launch of each, ns."""
        return np.concatenate([np.zeros(1, np.int64), self.t0[1:] - self.t1[:-1]])


class _Repetitions(NamedTuple):
    """What repeats in a sequence of kernels.

    Args:
        edges: of repetitions, as positions of kernels.
        inner: how often most of each repeats in itself; 0 where it does not.
        part: of the kernels that lie in repetitions, or, at either end, in a part of one: an anchor
            may be any of the kernels of an iteration.
    """

    edges: Int64s
    inner: int
    part: float

    @property
    def nested(self) -> bool:
        """Whether most of each repeats in itself."""
        return self.inner > 0


def is_update(ids: Int64s, names: Sequence[str], *, of_tensors: bool = False) -> Bools:
    """Which kernels are named like those that update parameters.

    PyTorch's foreach and fused optimizers, and those of apex, DeepSpeed and bitsandbytes.

    Args:
        of_tensors: with those of PyTorch's optimizers that go from tensor to tensor, as far as
            nothing else uses them. An update has many of them, other kernels between.
    """
    distinct, place = numbered(ids)
    update = f"{_UPDATE}|{_TENSOR_UPDATE}" if of_tensors else _UPDATE
    found = [
        bool(re.search(update, names[i]) and not re.search(_NO_UPDATE, names[i])) for i in distinct
    ]
    return np.array(found, dtype=np.bool_)[place] if len(ids) else np.empty(0, dtype=np.bool_)


def update_times(ops: pl.DataFrame, names: Sequence[str]) -> Int64s:
    """Host times of the last launch of each update of the parameters, by the names of kernels.

    Args:
        ops: GPU ops of the process; its first device counts.
    """
    kernels = _launched(ops)
    return kernels.t0[_updates(kernels, names, _busy_threads(kernels))]


def _busy_threads(kernels: _Kernels) -> list[Bools]:
    """For each thread that launches a good part of the kernels, which ones."""
    ids, counts = np.unique(kernels.thread, return_counts=True)
    return [kernels.thread == one for one in ids[counts >= _LEAST_PART * len(kernels.thread)]]


def _updates(kernels: _Kernels, names: Sequence[str], threads: Sequence[Bools]) -> Int64s:
    """Positions of the last kernel of each update; those of the thread that has most of them."""
    # Where one thread launches everything, nothing tells the last tensor of an update.
    updates = is_update(kernels.name, names, of_tensors=len(threads) > 1)
    if not updates.any():
        return np.empty(0, dtype=np.int64)
    launched_by, counts = np.unique(kernels.thread[updates], return_counts=True)
    own = kernels.thread == launched_by[np.argmax(counts)]
    others = [np.flatnonzero(thread & ~own) for thread in threads]
    return _update_ends(updates & own, np.sort(np.concatenate([np.empty(0, np.int64), *others])))


def _update_ends(updates: Bools, others: Int64s) -> Int64s:
    """Positions of the last kernel of each update.

    Between two updates is a backward pass, which another thread launches. Where one thread launches
    everything, the pause between updates is told from those within by the largest ratio of any two
    that come next to each other in size.

    Args:
        others: positions of kernels that another thread launches than the updates.
    """
    at = np.flatnonzero(updates)
    if len(others):
        apart = np.diff(np.searchsorted(others, at)) > 0
    else:
        gaps = np.diff(at)
        ordered = np.unique(np.append(gaps, 1))
        ratios = ordered[1:] / ordered[:-1]
        apart = gaps >= (ordered[1 + int(np.argmax(ratios))] if len(ratios) else 1)
    return np.append(at[:-1][apart], at[-1:])


def kernel_period(ops: pl.DataFrame, calls: pl.DataFrame, names: Sequence[str]) -> Period | None:
    """The period of the kernels of a process; None where they do not repeat.

    Args:
        ops: GPU ops of the process; its first device counts.
        calls: its host calls.
    """
    kernels = _launched(ops)
    if len(kernels.name) < REPEATS:
        return None
    distinct, place = numbered(kernels.name)
    dense = place.astype(np.int64)
    threads = _busy_threads(kernels)
    ends = _updates(kernels, names, threads)
    updating = is_update(distinct, names)
    found = _repetitions(ends, dense, may_do_more=True, updating=updating) if len(ends) else None
    if found is None and len(ends):
        found = _repetitions(ends, _families(kernels, names), may_do_more=True)
    if found is not None:
        edges: Int64s | None = found.edges
    elif len(threads) > 1:
        passes = ~is_update(kernels.name, names) & ~_additions(kernels.name, names)
        edges = _in_turns(kernels, dense, threads, passes)
    else:
        edges = _alone(kernels, dense, calls)
    if edges is None:
        return None
    first, last = int(edges[0]), int(edges[-1])
    starts = np.concatenate([kernels.t0[[first]], kernels.t1[edges[1:-1] - 1]])
    # An update is the step thread's, and so is the beginning of a forward pass.
    usual = int(kernels.thread[first if found is None else last - 1])
    return Period(
        starts=np.maximum.accumulate(starts),
        end=int(kernels.t1[last - 1]),
        anchor=names[kernels.name[last - 1]],
        thread=_main_thread(ops, kernels, threads) or usual,
    )


def _families(kernels: _Kernels, names: Sequence[str]) -> Int64s:
    """The family of each kernel, numbered from 0."""
    distinct, place = numbered(kernels.name)
    number: dict[str, int] = {}
    families = [number.setdefault(kernel_family(names[i]), len(number)) for i in distinct.tolist()]
    return np.array(families, dtype=np.int64)[place]


def _main_thread(ops: pl.DataFrame, kernels: _Kernels, threads: Sequence[Bools]) -> int | None:
    """The main thread of the process, if it and others launch; None where it is not known.

    Autograd never runs on it where it has threads of its own. Linux numbers it as the process.
    """
    launching = {int(kernels.thread[own][0]) for own in threads}
    found = launching.intersection(ops["pid"].unique().to_list())
    return found.pop() if len(launching) > 1 and len(found) == 1 else None


def _additions(ids: Int64s, names: Sequence[str]) -> Bools:
    """Which kernels add tensors element by element."""
    distinct, place = numbered(ids)
    found = [bool(re.search(_ADDITION, names[i])) for i in distinct]
    return np.array(found, dtype=np.bool_)[place]


def _in_turns(
    kernels: _Kernels, dense: Int64s, threads: Sequence[Bools], passes: Bools
) -> Int64s | None:
    """The period where two threads launch, and no kernel is named like an update, or too few are.

    Forward and backward pass are launched by two threads, and a repetition has both: so the most
    frequent such one is an iteration. Of micro-batches the first adds no gradients, and the last
    one updates the parameters; their passes are equal.

    Args:
        threads: for each thread that launches a good part of the kernels, which ones.
        passes: those that neither add gradients nor update parameters.
    """
    for kept, more in ((np.ones_like(passes), False), (passes, True)):
        place = np.append(np.flatnonzero(kept), len(dense))
        compared = numbered(dense[kept])[1].astype(np.int64)
        for at in reversed(_rare(compared)):
            found = _repetitions(at, compared, may_do_more=more)
            if found is not None and _holds_all(place[found.edges], threads):
                return place[_at_pauses(found.edges, kernels.pause[kept])]
    return None


def _alone(kernels: _Kernels, dense: Int64s, calls: pl.DataFrame) -> Int64s | None:
    """The period where one thread launches, and no kernel is named like an update.

    It launches the layers of a model, which repeat too: there an iteration ends where the host
    waits. Else it is what layers repeat in, or what hardly anything but repetitions is beside, and
    not at both ends: a model has a beginning and an end, short as they are beside many layers. A
    capture that begins with one long launch shows one cold pass, and what repeats in it are layers;
    so it is where most of their kernels run elsewhere, in layers of other sizes.
    """
    waits = np.sort(calls["t0"].to_numpy()[calls["blocking"].to_numpy()])
    ends = np.unique(np.searchsorted(kernels.t0, waits)) - 1
    span = int(kernels.t1[-1] - kernels.t0[0])
    cold = int((kernels.t1 - kernels.t0).max()) > _COLD * span
    ends = ends[ends >= 0]
    layers = False
    for at in (ends, *_rare(dense)):
        found = _repetitions(at, dense, strict=True)
        if found is None or (cold and not found.nested) or _own_part(found.edges, dense) < _OWN:
            continue
        if found.part < (_LEAST_PART if found.nested else SAME):
            continue
        # Whatever else repeats in layers is no step, unless layers repeat in it: more often than
        # twice, as in blocks.
        of_blocks = found.inner < REPEATS
        layers |= of_blocks and at is not ends and _is_one_pass(found.edges, dense)
        if layers and of_blocks:
            continue
        return _at_pauses(found.edges, kernels.pause)
    return None


def _holds_all(edges: Int64s, threads: Sequence[Bools]) -> bool:
    """Whether repetitions hold kernels of every thread."""
    counts = (np.diff(np.concatenate([[0], np.cumsum(thread)])[edges]) for thread in threads)
    return all((count > 0).mean() >= REGULAR for count in counts)


LAUNCHED = ("kind", "device", "thread", "name", "launch_t0", "launch_t1")
"""All that is needed of operations: what is chosen of a frame is a copy of all its columns."""


def _launched(ops: pl.DataFrame) -> _Kernels:
    kernels = ops.select(LAUNCHED).filter(
        (pl.col("kind") == int(Kind.KERNEL)) & (pl.col("thread") != UNKNOWN)
    )
    kernels = kernels.filter(pl.col("device") == pl.col("device").min())
    kernels = kernels[np.argsort(kernels["launch_t0"].to_numpy(), kind="stable")]
    return _Kernels(*(kernels[c].to_numpy() for c in ("name", "launch_t0", "launch_t1", "thread")))


def _rare(dense: Int64s) -> list[Int64s]:
    """Positions of the rarest names that occur often enough."""
    counts = np.bincount(dense)
    often = np.flatnonzero((counts >= REPEATS) & (counts <= _MOST_OCCURRENCES))
    chosen = often[np.argsort(counts[often], kind="stable")][:_MOST_ANCHORS]
    return [np.flatnonzero(dense == name) for name in chosen]


def _repetitions(
    at: Int64s,
    dense: Int64s,
    *,
    may_do_more: bool = False,
    strict: bool = False,
    updating: Bools | None = None,
) -> _Repetitions | None:
    """Repetitions that end with anchors; None without a period.

    Args:
        at: positions of the anchor. dense: names.
        may_do_more: whether each repetition is an iteration that may do more than the others, as
            where the anchor ends an update.
        strict, updating: as of `find_cycle`.
    """
    after = at + 1
    if len(after) < REPEATS:
        return None
    window = np.searchsorted(after, np.arange(len(dense)), "right") - 1
    contents = contents_of(window, dense, len(at) - 1)
    cycle = find_cycle(contents, strict=strict, updating=updating)
    if cycle is None and not may_do_more:
        return None
    size, offset = (1, 0) if cycle is None else _size(cycle, contents, may_do_more, strict)
    if cycle is not None and size > 1:
        typical = typical_contents(cycle, contents)
        regular = regular_windows(cycle, contents)
    else:
        typical = most_frequent(contents)
        regular = np.array([covers(found, typical) for found in contents])
    if contents[regular].sum() < _LEAST_COVERED * contents.sum():
        return None
    edges = _extended(after[offset::size], dense, typical)
    inner = 0 if cycle is None or size == 1 else _inner(cycle, contents)
    if len(edges) <= REPEATS:
        return None
    return _Repetitions(edges, inner, _part_of(edges, dense))


def _inner(cycle: Cycle, contents: Int64s) -> int:
    """How many windows of a cycle are equal, if most are, and more than a kernel on its own."""
    counts = np.bincount(cycle.typical)
    equal = contents[: len(cycle.labels)][cycle.labels == counts.argmax()]
    return int(counts.max()) if counts.max() > cycle.length / 2 and equal.sum() > len(equal) else 0


def _part_of(edges: Int64s, dense: Int64s) -> float:
    """Part of the kernels in repetitions, the end of one before them and the beginning after.

    A model's own beginning has kernels of its layers too, but in another order.
    """
    head, tail = int(edges[0]), len(dense) - int(edges[-1])
    inside = int(edges[-1] - edges[0])
    if 0 < head <= edges[1] - edges[0]:
        inside += int((dense[:head] == dense[edges[1] - head : edges[1]]).sum())
    if 0 < tail <= edges[-1] - edges[-2]:
        inside += int((dense[edges[-1] :] == dense[edges[-2] : edges[-2] + tail]).sum())
    return inside / len(dense)


def _is_one_pass(edges: Int64s, dense: Int64s) -> bool:
    """Whether repetitions are layers: a model has a beginning and an end besides, short as may be.

    A capture may begin and end in the midst of a repetition. Where it begins with something else
    and ends with what repetitions begin with, that is the end of a model if there is no room for
    the rest of it at the beginning: programs make whole iterations.
    """
    first, last = int(edges[0]), int(edges[-1])
    length = int(np.median(np.diff(edges)))
    end_of_one = dense[max(int(edges[1]) - length, 0) : edges[1]][::-1]
    begin_of_one = dense[edges[-2] : edges[-2] + length]
    before = _alike(dense[:first][::-1], end_of_one)
    after = _alike(dense[last:], begin_of_one)
    if before == first:
        return False
    if last + after < len(dense):
        return True
    part = (before + after) % length
    return 0 < part < length - (first - before)


def _alike(found: Int64s, one: Int64s) -> int:
    """How many kernels of a sequence are those of a repetition, again and again, from the first."""
    different = np.flatnonzero(found != one[np.arange(len(found)) % len(one)])
    return int(different[0]) if len(different) else len(found)


def _own_part(edges: Int64s, dense: Int64s) -> float:
    """Part of the kernels of the names that make repetitions which lies in these."""
    inside = dense[edges[0] : edges[-1]]
    return len(inside) / int(np.isin(dense, inside).sum())


def _size(cycle: Cycle, contents: Int64s, may_do_more: bool, strict: bool) -> tuple[int, int]:
    """Windows of an iteration, and the number of the first one that begins one.

    Where some windows only do more than the others, each is an iteration, if each ends with an
    update, or if what they do more is the smaller part: else an anchor that recurs in every layer
    would make layers of one half of a step and something else of the other.
    """
    if cycle.length == 1:
        return 1, 0
    plain = plain_windows(cycle, contents)
    if plain is not None and not strict:
        usual = int(most_frequent(contents).sum())
        if may_do_more or contents.sum() <= 2 * usual * len(contents):
            return 1, 0
    return cycle.length, first_place(cycle, contents)


def _extended(edges: Int64s, dense: Int64s, typical: Int64s) -> Int64s:
    """One repetition more at each end, where the kernels there are those of one."""

    def is_one(low: int, high: int) -> bool:
        found = np.bincount(dense[low:high], minlength=len(typical))
        return covers(found, typical)

    if not len(edges):
        return edges
    first, last, length = int(edges[0]), int(edges[-1]), int(typical.sum())
    if first >= length and is_one(first - length, first):
        edges = np.concatenate([[first - length], edges])
    if last + length <= len(dense) and is_one(last, last + length):
        edges = np.concatenate([edges, [last + length]])
    return edges


def _at_pauses(edges: Int64s, pause: Int64s) -> Int64s:
    """The edges moved to where the host pauses longest within a typical repetition.

    Args:
        pause: before the launch of each kernel that was compared.
    """
    length = int(np.median(np.diff(edges)))
    usual = edges[:-1][np.diff(edges) == length]
    places = usual[:, None] + np.arange(length)
    typical = np.median(pause[places], axis=0)
    shift = int(np.argmax(typical))
    if shift == 0 or not len(usual):
        return edges
    # Of an odd repetition, that has kernels more or less, the nearer end tells the place.
    if 2 * shift <= length:
        moved = np.minimum(edges[:-1] + shift, edges[1:])
    else:
        moved = np.maximum(edges[1:] + shift - length, edges[:-1])
    ends = [edges[0] - length + shift, edges[-1] + shift]
    kept = [end for end in ends if 0 <= end <= len(pause)]
    return np.unique(np.concatenate([moved, np.array(kept, np.int64)]))
