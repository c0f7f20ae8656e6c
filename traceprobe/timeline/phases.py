"""The phase of each kernel, by where and when it was launched.

Names of kernels say little and GPU times mislead, the launch site does not: which range encloses
it, on which thread it is, and what the step had done by then.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import polars as pl

from traceprobe.errors import UsageError
from traceprobe.model.events import UNKNOWN, Bools, Int64s, Kind, Role, Source
from traceprobe.model.taxonomy import Phase
from traceprobe.timeline.intervals import EMPTY, innermost, look_up
from traceprobe.timeline.name_patterns import NamePattern

RANGE_NAMES: Mapping[str, str] = {
    "data": r"data_?(load|wait|fetch)|dataloader|next_?batch|enumerate\(Data(Loader|Pipe)\)"
    r"|train_dataloader_next",
    "h2d": r"h2d|host.?to.?device|copy.?in|to_device",
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
_LOADER_RANGE = re.compile(r"\[DALI\]|DataLoader|DataPipe|Prefetch|data_?load", re.IGNORECASE)
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


@dataclass(frozen=True)
class PhaseRanges:
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
    """The ranges whose names mean a phase."""
    rows = ranges.filter(pl.col("source").is_in([int(Source.USER), int(Source.FRAMEWORK)]))
    distinct = rows["name"].unique().to_list()
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


def loader_threads(ranges: pl.DataFrame, names: Sequence[str], step_thread: int) -> set[int]:
    """Threads with loader or DALI ranges, other than the step thread."""
    hits = [i for i in ranges["name"].unique().to_list() if _LOADER_RANGE.search(names[i])]
    threads = ranges.filter(pl.col("name").is_in(hits))["thread"].unique().to_list()
    return set(threads) - {step_thread}


def assign_phases(
    ops: pl.DataFrame,
    marks: PhaseRanges,
    step_starts: Int64s,
    step_thread: int,
    loaders: set[int],
    thread_names: Mapping[int, str],
) -> Int64s:
    """Phase of every op of one process; only those of kernels mean anything.

    Rules, the first that applies: launched by a loader thread is input; the innermost phase range
    that encloses the launch, whatever its thread; a graph replay; the autograd thread, and
    everything between the end of forward and the start of the optimizer, is backward; the step
    thread before that is forward where no range says what forward is, else backward. Forward
    operators on the autograd thread are recompute.
    """
    kernel = ops["kind"].to_numpy() == int(Kind.KERNEL)
    time, thread, role = (ops[c].to_numpy() for c in ("launch_t0", "thread", "role"))
    launched = thread != UNKNOWN
    phase = np.full(len(time), int(Phase.UNATTRIBUTED), dtype=np.int64)
    on_step = launched & (thread == step_thread)
    on_loader = launched & np.isin(thread, list(loaders))
    other = launched & ~on_step & ~on_loader

    state = look_up(
        _progress(marks, step_starts, time[kernel & other], time[kernel & on_step]), time
    )
    autograd_threads = set(np.unique(thread[role == int(Role.BACKWARD)]).tolist()) | {
        t for t, name in thread_names.items() if _AUTOGRAD_THREAD.search(name)
    }
    autograd = other & (np.isin(thread, list(autograd_threads)) | (state == int(Progress.AFTER)))
    # Where ranges say what forward is, the rest before the optimizer (zeroing gradients) is not.
    before = Phase.BACKWARD if marks.select("forward").any() else Phase.FORWARD
    graph = ops["graph"].to_numpy()

    phase[on_step & (state == int(Progress.BEFORE))] = before
    phase[on_step & (state == int(Progress.AFTER))] = Phase.BACKWARD
    # Without a GPU, and in compiled autograd, backward runs on the step thread itself.
    phase[autograd | (on_step & (role == int(Role.BACKWARD)))] = Phase.BACKWARD
    phase[graph] = Phase.GRAPH
    enclosing = _enclosing(marks, loaders, time)
    phase = np.where(launched & (enclosing >= 0), enclosing, phase)
    phase[on_loader] = Phase.INPUT
    phase[(phase == int(Phase.BACKWARD)) & other & (role == int(Role.FORWARD))] = Phase.RECOMPUTE
    return phase


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
    ends = begin[look_up(state, begin) == int(Progress.AFTER)]
    return _steps([(restart, Progress.BEFORE), *turns, (ends, Progress.DONE)])


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
