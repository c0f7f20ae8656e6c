"""The phase of each kernel, by where and when it was launched.

Names of kernels say little and GPU times mislead, the launch site does not: which range encloses
it, on which thread it is, and what the step had done by then.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import IntEnum

import msgspec
import numpy as np
import polars as pl
from msgspec.structs import replace

from traceprobe.errors import UsageError
from traceprobe.model.codes import UNKNOWN, Bools, Int64s, Kind, Role, Source
from traceprobe.model.kernel_classes import multiplies
from traceprobe.model.numbering import numbered
from traceprobe.model.taxonomy import Phase
from traceprobe.timeline.intervals import EMPTY, innermost, look_up
from traceprobe.timeline.kernel_period import is_update
from traceprobe.timeline.name_patterns import NamePattern

RANGE_NAMES: Mapping[str, str] = {
    "data": r"(^|[^a-z])data_?(load|wait|fetch)|dataloader|next_?batch"
    r"|enumerate\(Data(Loader|Pipe)\)|train_dataloader_next",
    "h2d": r"h2d|host.?to.?device|(^|[^a-z])(copy.?in(put)?s?|to_device)([^a-z]|$)",
    "forward": r"\bforward\b|^fwd",
    "backward": r"\bbackward\b|^bwd",
    "optimizer": r"optimi[sz]er|optim\.step",
    "communication": r"all_?reduce|nccl|gradient_sync",
}
"""Range names that mean a phase: case-insensitive regular expressions, the first match counts."""

_PHASE_OF_RANGE = {
    "data": Phase.INPUT,
    "h2d": Phase.INPUT,
    "forward": Phase.FORWARD,
    "backward": Phase.BACKWARD,
    "optimizer": Phase.OPTIMIZER,
}
_LOADER_RANGE = re.compile(
    r"\[DALI\]|DataLoader|DataPipe|Prefetch|(?<![a-z])data_?load", re.IGNORECASE
)
_OF_A_FRAMEWORK = re.compile(
    r"^(FSDP::|FullyShardedDataParallel|DistributedDataParallel\.|DataParallel\.|autograd::"
    r"|(nccl|gloo|mpi|ucc):|c10d|Torch-Compiled|torch\.compile |## Call |ProfilerStep#)"
)
"""Ranges that frameworks write for themselves: `FSDP::all_gather_copy_in` is no copy of input."""
_AUTOGRAD_THREAD = re.compile(r"^pt_autograd")


def compile_phase_names(overrides: Mapping[str, str]) -> dict[str, NamePattern]:
    """The name table with the user's entries in front.

    Raises:
        UsageError: an unknown phase name or an invalid expression.
    """
    table: dict[str, NamePattern] = {}
    for name, pattern in {
        **overrides,
        **{n: p for n, p in RANGE_NAMES.items() if n not in overrides},
    }.items():
        if name not in RANGE_NAMES:
            raise UsageError(f"--phase {name}: no such phase; one of {', '.join(RANGE_NAMES)}")
        table[name] = NamePattern(f"--phase {name}={pattern!r}", pattern, ignore_case=True)
    return table


class PhaseRanges(msgspec.Struct, frozen=True):
    """Ranges of one process that name a phase. Arrays int64, ascending by start."""

    t0: Int64s
    t1: Int64s
    thread: Int64s
    phase: tuple[str, ...]

    def select(self, phase: str) -> Bools:
        """Which ranges name this phase."""
        return np.array([p == phase for p in self.phase], dtype=bool)


def phase_ranges(
    ranges: pl.DataFrame, names: Sequence[str], table: Mapping[str, NamePattern]
) -> PhaseRanges:
    """The ranges of users, and of trainers for them, whose names mean a phase."""
    rows = ranges.filter(pl.col("source").is_in([int(Source.USER), int(Source.FRAMEWORK)]))
    distinct = [i for i in rows["name"].unique().to_list() if not _OF_A_FRAMEWORK.search(names[i])]
    meaning: dict[int, str] = {}
    for phase, pattern in reversed(list(table.items())):  # so that the first one is the last word
        fitting = pattern.find([names[i] for i in distinct])
        meaning |= {i: phase for i, fits in zip(distinct, fitting, strict=True) if fits}
    rows = rows.filter(pl.col("name").is_in(list(meaning))).sort("t0", "t1", maintain_order=True)
    return PhaseRanges(
        t0=rows["t0"].to_numpy(),
        t1=rows["t1"].to_numpy(),
        thread=rows["thread"].to_numpy(),
        phase=tuple(meaning[i] for i in rows["name"].to_list()),
    )


def loader_threads(
    ranges: pl.DataFrame, ops: pl.DataFrame, names: Sequence[str], step_thread: int
) -> set[int]:
    """Threads with loader or DALI ranges, other than the step thread and those of autograd."""
    distinct = ranges["name"].unique().to_list()
    hits = [
        i
        for i in distinct
        if _LOADER_RANGE.search(names[i]) and not _OF_A_FRAMEWORK.search(names[i])
    ]
    threads = ranges.filter(pl.col("name").is_in(hits))["thread"].unique().to_list()
    autograd = ops["thread"].filter(ops["role"] == int(Role.BACKWARD)).unique().to_list()
    return set(threads) - {step_thread, *autograd}


def assign_phases(
    ops: pl.DataFrame,
    names: Sequence[str],
    marks: PhaseRanges,
    step_starts: Int64s,
    step_thread: int,
    loaders: set[int],
    thread_names: Mapping[int, str],
) -> Int64s:
    """Phase of every op of one process; only those of kernels mean anything.

    Rules, the first that applies: launched by a loader thread is input; launched by a thread of
    autograd is backward, and recompute where it is a forward operator; the innermost phase range
    that encloses the launch, whatever its thread; a graph replay; everything between the end of
    forward and the start of the optimizer is backward; the step thread before that is forward where
    no range says what forward is, else backward. Once the optimizer is done the step thread is
    forward again where it multiplies matrices before the next step (an evaluation, a rollout). What
    the reader knows to follow an update has none of these phases, unless a range gives it one.
    """
    kernel = ops["kind"].to_numpy() == int(Kind.KERNEL)
    time, thread, role = (ops[c].to_numpy() for c in ("launch_t0", "thread", "role"))
    launched = thread != UNKNOWN
    phase = np.full(len(time), int(Phase.UNATTRIBUTED), dtype=np.int64)
    on_step = launched & (thread == step_thread)
    on_loader = launched & np.isin(thread, list(loaders))
    other = launched & ~on_step & ~on_loader
    autograd_threads = set(np.unique(thread[role == int(Role.BACKWARD)]).tolist()) | {
        t for t, name in thread_names.items() if _AUTOGRAD_THREAD.search(name)
    }
    autograd = other & np.isin(thread, list(autograd_threads))
    # Without a GPU, and in compiled autograd, backward runs on the step thread itself.
    again = role == int(Role.RECOMPUTE)
    backward = autograd | (on_step & ((role == int(Role.BACKWARD)) | again))
    marks = _after_closures(marks, np.sort(time[kernel & backward]))
    replayed = ops["graph"].to_numpy()
    if not marks.select("optimizer").any():
        elsewhere = time[kernel & other]
        named = is_update(ops["name"].to_numpy(), names, of_tensors=len(elsewhere) > 0)
        # All kernels of a replay are launched at once, whatever passes they are of.
        named &= ~replayed
        found = _updates(time[kernel & on_step & named], elsewhere, step_starts)
        marks = _with_optimizer(marks, found, step_thread)

    progress = _progress(marks, step_starts, time[kernel & other], time[kernel & on_step])
    state = look_up(progress, time)
    # Where ranges say what forward is, the rest before the optimizer (zeroing gradients) is not.
    before = Phase.BACKWARD if marks.select("forward").any() else Phase.FORWARD
    phase[on_step & (state == int(Progress.BEFORE))] = before
    phase[(on_step | other) & (state == int(Progress.AFTER))] = Phase.BACKWARD
    done = np.flatnonzero(kernel & on_step & (state == int(Progress.DONE)))
    phase[done[_passes(progress, time[done], ops["name"].to_numpy()[done], names)]] = Phase.FORWARD
    phase[role == int(Role.AFTER_UPDATE)] = Phase.UNATTRIBUTED
    phase[backward] = Phase.BACKWARD
    phase[replayed] = Phase.GRAPH
    enclosing = _enclosing(marks, loaders, time)
    phase = np.where(launched & (enclosing >= 0), enclosing, phase)
    phase[autograd] = Phase.BACKWARD
    phase[on_loader] = Phase.INPUT
    again |= other & (role == int(Role.FORWARD))
    phase[(phase == int(Phase.BACKWARD)) & again] = Phase.RECOMPUTE
    return phase


def _passes(
    progress: tuple[Int64s, Int64s], time: Int64s, name: Int64s, names: Sequence[str]
) -> Bools:
    """Which launches after an update are of passes over a network: matrices are multiplied there.

    Args:
        progress: as of `_progress`. time, name: of kernels of the step thread after updates.
    """
    distinct, place = numbered(name)
    product = np.array([multiplies(names[i]) for i in distinct], dtype=np.bool_)[place]
    stretch = np.searchsorted(progress[0], time, "right")
    return np.isin(stretch, stretch[product])


def _after_closures(marks: PhaseRanges, backward: Int64s) -> PhaseRanges:
    """Optimizer ranges from the last backward launch inside them on.

    Lightning and L-BFGS run forward and backward in a closure inside `Optimizer.step`.

    Args:
        backward: launch times, ascending.
    """
    last = np.searchsorted(backward, marks.t1) - 1
    inside = (
        np.where(last >= 0, backward[np.maximum(last, 0)] + 1, marks.t0)
        if len(backward)
        else marks.t0
    )
    t0 = np.where(marks.select("optimizer"), np.maximum(marks.t0, inside), marks.t0)
    return replace(marks, t0=t0)


def _updates(updates: Int64s, elsewhere: Int64s, step_starts: Int64s) -> tuple[Int64s, Int64s]:
    """What no range says: the optimizer, by its kernels after a backward pass of a step.

    Args:
        updates: launch times of kernels named like an update, on the step thread.
        elsewhere: launch times of kernels on other threads. Without any each update stands alone,
            since nothing tells where the backward pass ends.

    Returns:
        (starts, ends) of optimizers.
    """
    updates = np.sort(updates)
    if not len(elsewhere):
        return updates, updates + 1
    elsewhere = np.sort(elsewhere)
    launched = np.searchsorted(elsewhere, updates)
    step = np.append(np.iinfo(np.int64).min, step_starts)
    began = step[np.searchsorted(step_starts, updates, "right")]
    after = launched > np.searchsorted(elsewhere, began)
    updates, launched = updates[after], launched[after]
    first = np.flatnonzero(np.diff(launched, prepend=-1))
    last = np.flatnonzero(np.diff(launched, append=-1))
    return updates[first], updates[last] + 1


def _with_optimizer(marks: PhaseRanges, found: tuple[Int64s, Int64s], thread: int) -> PhaseRanges:
    t0, t1 = (np.concatenate(pair) for pair in zip((marks.t0, marks.t1), found, strict=True))
    count = len(found[0])
    order = np.argsort(t0, kind="stable")
    phase = (*marks.phase, *["optimizer"] * count)
    return PhaseRanges(
        t0=t0[order],
        t1=t1[order],
        thread=np.append(marks.thread, np.full(count, thread))[order],
        phase=tuple(phase[i] for i in order.tolist()),
    )


def _enclosing(marks: PhaseRanges, loaders: set[int], time: Int64s) -> Int64s:
    """Phase of the innermost enclosing range that names a phase of kernels, or -1.

    A communication range says nothing about the ordinary kernels in it, a loader's range nothing
    about other threads.
    """
    label = np.array([int(_PHASE_OF_RANGE.get(p, UNKNOWN)) for p in marks.phase], dtype=np.int64)
    keep = (label != UNKNOWN) & ~np.isin(marks.thread, list(loaders))
    return look_up(innermost(marks.t0[keep], marks.t1[keep], label[keep]), time)


class Progress(IntEnum):
    """How far a step has come, at a host time outside of ranges."""

    BEFORE = 0
    AFTER = 1
    DONE = 2


def _progress(
    marks: PhaseRanges, step_starts: Int64s, elsewhere: Int64s, on_step: Int64s
) -> tuple[Int64s, Int64s]:
    """`Progress` as a step function of host time.

    A step begins before the forward pass; the end of a forward range puts it after, the start of
    another (gradient accumulation) before again; the optimizer ends it. Without forward ranges,
    launches from other threads are the backward pass.

    Args:
        elsewhere: launch times on threads that are neither the step's nor a loader's.
        on_step: launch times on the step thread.
    """
    forward, optimizer = marks.select("forward"), marks.select("optimizer")
    begin, done = marks.t0[optimizer], marks.t1[optimizer]
    restart = step_starts if len(step_starts) else done
    if forward.any():
        turns = [(marks.t1[forward], Progress.AFTER), (marks.t0[forward], Progress.BEFORE)]
    else:
        turns = _bursts(elsewhere, on_step, begin, step_starts)
    if not turns and not len(step_starts):
        return EMPTY
    state = _steps([(restart, Progress.BEFORE), *turns])
    # zero_grad may come first in a step: an optimizer range ends only what has been forward.
    ended = look_up(state, begin) == int(Progress.AFTER)
    begin, done = begin[ended], done[ended]
    # One iteration may hold several updates: another forward pass follows all but the last.
    step = np.searchsorted(step_starts, begin, "right")
    again = done[:-1][np.diff(step) == 0]
    return _steps(
        [(restart, Progress.BEFORE), *turns, (begin, Progress.DONE), (again, Progress.BEFORE)]
    )


def _bursts(
    elsewhere: Int64s, on_step: Int64s, optimizer: Int64s, step_starts: Int64s
) -> list[tuple[Int64s, Progress]]:
    """Backward passes told by launches from other threads, between launches of the step thread.

    Without a step or an optimizer to relate them to, two threads that launch prove nothing.
    """
    if not len(elsewhere) or not (len(step_starts) or len(optimizer)):
        return []
    launches = np.sort(elsewhere)
    previous = np.searchsorted(np.sort(on_step), launches)
    new = np.flatnonzero(np.concatenate([[True], np.diff(previous) > 0]))
    first, last = launches[new], launches[np.concatenate([new[1:] - 1, [len(launches) - 1]])]
    ends = np.sort(np.concatenate([optimizer, step_starts]))
    following = np.concatenate([first[1:], [np.iinfo(np.int64).max]])
    more = np.searchsorted(ends, last) == np.searchsorted(ends, following)
    # Another pass before the step ends is accumulation: forward runs again in between. Without
    # optimizer ranges nothing tells what comes after the last pass.
    turns = [(first, Progress.AFTER), (last[more] + 1, Progress.BEFORE)]
    return turns if len(optimizer) else [*turns, (last[~more] + 1, Progress.DONE)]


def _steps(changes: list[tuple[Int64s, Progress]]) -> tuple[Int64s, Int64s]:
    instants = np.concatenate([t for t, _ in changes])
    values = np.concatenate([np.full(len(t), int(p), dtype=np.int64) for t, p in changes])
    order = np.argsort(instants, kind="stable")
    return instants[order], values[order]
