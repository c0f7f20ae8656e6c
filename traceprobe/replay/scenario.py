"""Changes of what is simulated: parts left out, sped up, or hidden."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec
import numpy as np
from msgspec.structs import replace

from traceprobe.errors import ImpossibleChange
from traceprobe.formatting import listed, plain
from traceprobe.model.taxonomy import COMPUTE_PHASES, KERNEL_PHASES, OFF_DEVICE
from traceprobe.replay.contention import (
    LIKELY,
    Leftovers,
    period_of_more,
    without_communication,
    without_host,
    without_waiting,
)
from traceprobe.replay.reads import CALL_NS, find_reads, without_reads
from traceprobe.replay.tasks import ALONE, ROWS, Bools, Int64s, RankSchedule, Tasks

GROUPS: Mapping[str, tuple[str, ...]] = {
    **{name: (name,) for name in (*COMPUTE_PHASES, *OFF_DEVICE)},
    "compute": COMPUTE_PHASES,
}
"""What of the GPU's work can be named, and which kinds of tasks that is."""
REMOVABLE = (*GROUPS, "data-wait", "pauses", "stalls", "host", "reads", "sync", "skew", "straggler")
SPEEDABLE = (*GROUPS, "host", "loader", "tiny-kernels")
OVERLAPPABLE = OFF_DEVICE
NAMES: Mapping[str, str] = {
    "data-wait": "waiting for data",
    "pauses": "pauses of the host",
    "stalls": "allocating, compiling and collecting garbage by the host",
    "host": "host time",
    "tiny-kernels": "tiny kernels",
    "reads": "reading of values by the host",
    "sync": "waiting of the host for the GPU",
    "h2d": "copies to the GPU",
    "d2h": "copies from the GPU",
    "memory": "memory ops",
    "graph": "CUDA graph",
    "input": "input on GPU",
}
"""What options call otherwise than people do."""
AMONG_RANKS: Mapping[str, str] = {
    "skew": "work shared evenly by the ranks",
    "straggler": "the slowest rank as fast as the others",
}
"""Changes of what ranks are to each other, in words."""


class Changes(msgspec.Struct, frozen=True):
    """What is to be different.

    Args:
        removed: of `REMOVABLE`. overlapped: of `OVERLAPPABLE`.
        speedup: factor by which each of `SPEEDABLE` gets faster; below 1 it gets slower.
        bucket_mb: size from which on a bucket of gradients is sent, in MB of 2**20 bytes.
        accumulate: micro-batches, each of the size of a batch, that share one synchronisation and
            one update.
        fewer: factor by which the launches of a phase get fewer, each as long for the host as now.
        micro_batches: factor by which a pipeline's micro-batches get more, each as much smaller.
        margin: relative error of the gain where it is not known how much faster the work would be.
    """

    removed: frozenset[str] = frozenset()
    overlapped: frozenset[str] = frozenset()
    speedup: Mapping[str, float] = msgspec.field(default_factory=dict)
    bucket_mb: float | None = None
    accumulate: int = 1
    fewer: Mapping[str, float] = msgspec.field(default_factory=dict)
    micro_batches: float = 1.0
    margin: float = 0.0

    def words(self) -> list[str]:
        """The changes as a person says them, in a stable order."""
        return [
            *(_without(name) for name in REMOVABLE if name in self.removed),
            *(f"{_named(name)} hidden" for name in OVERLAPPABLE if name in self.overlapped),
            *_sped_up(self.speedup),
            *([f"buckets of {plain(self.bucket_mb)} MB"] if self.bucket_mb is not None else []),
            *([f"{self.accumulate} batches per update"] if self.accumulate > 1 else []),
            *([_more_micro_batches(self.micro_batches)] if self.micro_batches > 1 else []),
            *(f"fewer launches of the {_named(name)}" for name in sorted(self.fewer)),
        ]


def _named(name: str) -> str:
    return NAMES.get(name, name)


def _without(name: str) -> str:
    return AMONG_RANKS.get(name) or f"no {_named(name)}"


def _sped_up(speedup: Mapping[str, float]) -> list[str]:
    """What gets how much faster, those of one factor together: `forward and backward 2.2× …`."""
    alike: dict[str, list[str]] = {}
    for name in SPEEDABLE:
        if name in speedup:
            alike.setdefault(_as_fast(speedup[name]), []).append(_named(name))
    return [f"{listed(names)} {how}" for how, names in alike.items()]


def _more_micro_batches(factor: float) -> str:
    times = "twice" if factor == 2 else f"{plain(factor)} times"
    return f"{times} as many micro-batches"


def _as_fast(factor: float) -> str:
    return "twice as fast" if factor == 2 else f"{plain(factor)}× as fast"


def together(one: Changes, other: Changes, *, shared: bool = False) -> Changes:
    """Both changes at once.

    Args:
        shared: they make the same work faster, so that only the larger factor counts; else each
            makes faster what the other leaves. What one makes slower stays so.
    """

    def factors(ours: Mapping[str, float], theirs: Mapping[str, float]) -> dict[str, float]:
        joined = dict(ours)
        for name, factor in theirs.items():
            before = joined.get(name, 1.0)
            faster = shared and min(before, factor) >= 1
            joined[name] = max(before, factor) if faster else before * factor
        return {name: factor for name, factor in joined.items() if not gone & _covering(name)}

    gone = one.removed | other.removed
    sizes = [mb for mb in (one.bucket_mb, other.bucket_mb) if mb is not None]
    return Changes(
        removed=gone,
        overlapped=(one.overlapped | other.overlapped) - gone,
        speedup=factors(one.speedup, other.speedup),
        bucket_mb=max(sizes, default=None),
        accumulate=max(one.accumulate, other.accumulate),
        fewer=factors(one.fewer, other.fewer),
        micro_batches=max(one.micro_batches, other.micro_batches),
        margin=max(one.margin, other.margin),
    )


def _covering(name: str) -> set[str]:
    """What has to be removed so that a part with this name is gone."""
    wider = {
        "loader": "data-wait",
        "pauses": "host",
        "stalls": "host",
        "tiny-kernels": "compute",
        **dict.fromkeys(COMPUTE_PHASES, "compute"),
    }
    return {name, wider.get(name, name)}


def apply(schedule: RankSchedule, changes: Changes, left: Leftovers = LIKELY) -> RankSchedule:
    """The schedule of a rank with all changes but that of the buckets."""
    tasks = schedule.tasks
    if not changes.removed.isdisjoint(AMONG_RANKS):
        tasks = without_waiting(tasks, schedule.waited, left)
    for name in REMOVABLE:
        if name in changes.removed:
            tasks = _removed(tasks, name, left)
    for name, factor in changes.speedup.items():
        tasks = _faster(tasks, name, factor)
    for name, factor in changes.fewer.items():
        # Fewer operations take the host less time to launch.
        tasks = tasks.hosted(np.where(tasks.of(GROUPS[name]), 1 / factor, 1.0))
    for name in OVERLAPPABLE:
        if name in changes.overlapped:
            tasks = _overlapped(tasks, name)
    if changes.accumulate > 1:
        tasks = _accumulated(tasks, changes.accumulate, left)
    period = schedule.period
    if period is not None:
        factor = changes.speedup.get("loader", 1.0)
        period = changes.accumulate * period_of_more(period, factor, schedule.workers, left)
        if "data-wait" in changes.removed:
            period = None
    return replace(schedule, tasks=tasks, period=period)


def with_host(schedule: RankSchedule, factor: float, held_up: float = 1.0) -> RankSchedule:
    """The schedule with the host's own time times `factor`, of which a loader in it is a part.

    Args:
        held_up: factor on what pauses and stalls last.
    """
    tasks = schedule.tasks.hosted(factor)
    if held_up != 1:
        tasks = tasks.held_up_for(held_up, held_up)
    if schedule.loads:
        tasks = replace(tasks, data_wait=tasks.data_wait * factor)
    return replace(schedule, tasks=tasks)


def _removed(tasks: Tasks, name: str, left: Leftovers) -> Tasks:
    if name == "data-wait":
        return replace(tasks, data_wait=np.zeros(len(tasks)))
    if name == "pauses":
        return tasks.held_up_for(0.0, 1.0)
    if name == "stalls":
        return tasks.held_up_for(1.0, 0.0)
    if name == "host":
        return without_host(tasks, left)
    if name == "communication":
        return without_communication(tasks, left)
    if name == "reads":
        return without_reads(tasks)
    if name == "sync":
        return replace(tasks, awaits=np.zeros(len(tasks), np.int64))
    if name in AMONG_RANKS:
        return replace(tasks, group=np.full(len(tasks), ALONE))
    which = tasks.of(GROUPS[name])
    rest = tasks.emptied(which).without_needs(which)
    return _with_work_before(rest, tasks, which) if name in OFF_DEVICE else rest


def _with_work_before(rest: Tasks, tasks: Tasks, which: Bools) -> Tasks:
    """Tasks without some copies, whose calls go, but not what the host had to do before these."""
    first = np.maximum(tasks.first_host - CALL_NS, 0.0)
    host = np.maximum(tasks.host - CALL_NS * tasks.ops, 0.0)
    return replace(
        rest,
        first_host=np.where(which, np.minimum(first, host), rest.first_host),
        host=np.where(which, host, rest.host),
    )


def _faster(tasks: Tasks, name: str, factor: float) -> Tasks:
    if name == "loader":
        return replace(tasks, data_wait=tasks.data_wait / factor)
    if name == "host":
        return tasks.hosted(1 / factor)
    if name == "tiny-kernels":  # fused, they are fewer
        return tasks.shrunk(np.where(tiny_of_model(tasks), 1 / factor, 1.0))
    return tasks.scaled(np.where(tasks.of(GROUPS[name]), 1 / factor, 1.0))


def tiny_of_model(tasks: Tasks) -> Bools:
    """Tasks of the model's kernels that do little more than start and end."""
    return tasks.tiny & tasks.of(KERNEL_PHASES)


def _overlapped(tasks: Tasks, name: str) -> Tasks:
    """Rows of a kind on a stream of their own, whose results are needed one iteration later.

    So they are hidden behind everything else, and a step still lasts as long as all of them.
    """
    mine = tasks.of(GROUPS[name])
    if not mine.any():
        return tasks
    count = len(tasks)
    earlier = _one_iteration_earlier(tasks, mine)
    awaited = (np.arange(count) - tasks.awaits) % count
    needed = (tasks.row - tasks.back) % count
    hidden = mine[needed]
    # What came after one of them on its stream needs the one an iteration before, as do those that
    # needed one.
    after = [(row, of) for row, of in _after_on_stream(tasks, mine)]
    after += [
        (row, of)
        for row, of in zip(tasks.row[hidden].tolist(), needed[hidden].tolist(), strict=True)
        if not mine[row]
    ]
    rows = np.array([row for row, _ in after], np.int64)
    backs = np.array([row - earlier[of] for row, of in after], np.int64)
    return replace(
        tasks,
        stream=np.where(mine, 1 + tasks.stream.max(), tasks.stream),
        awaits=np.where((tasks.awaits > 0) & mine[awaited], 0, tasks.awaits),
        row=np.concatenate([tasks.row[~hidden], rows]),
        back=np.concatenate([tasks.back[~hidden], backs]),
    )


def _after_on_stream(tasks: Tasks, mine: Bools) -> Iterator[tuple[int, int]]:
    """Other tasks that come right after marked ones on a stream, and which."""
    last: dict[int, int] = {}
    for number, (stream, marked) in enumerate(
        zip(tasks.stream.tolist(), mine.tolist(), strict=True)
    ):
        if marked:
            last[stream] = number
        elif stream in last:
            yield number, last.pop(stream)


def _one_iteration_earlier(tasks: Tasks, mine: Bools) -> dict[int, int]:
    """For each marked task, that with the same place from the end in the iteration before.

    Numbers below 0 are tasks of the cycle before.
    """
    marked = np.flatnonzero(mine)
    iteration = tasks.iteration[marked]
    order = np.unique(iteration)
    by_iteration = [marked[iteration == each].tolist() for each in order]
    found = {}
    for place, now in enumerate(by_iteration):
        before = by_iteration[place - 1]
        cycle = 0 if place else len(tasks)
        for back, number in enumerate(reversed(now), 1):
            found[number] = before[-min(back, len(before))] - cycle
    return found


def _accumulated(tasks: Tasks, count: int, left: Leftovers) -> Tasks:
    """Each iteration `count` times; all but the last without collectives and update."""
    quiet = _removed(_removed(tasks, "communication", left), "optimizer", left)
    places, is_quiet = [], []
    for iteration in np.unique(tasks.iteration):
        mine = np.flatnonzero(tasks.iteration == iteration)
        places.append(np.tile(mine, count))
        is_quiet.append(np.repeat([True, False], [len(mine) * (count - 1), len(mine)]))
    return joined(tasks, quiet, np.concatenate(places), np.concatenate(is_quiet))


def joined(first: Tasks, second: Tasks, places: Int64s, of_second: Bools) -> Tasks:
    """Tasks at some places of one list or the other, of the same length."""
    both = Tasks(
        **{name: np.concatenate([getattr(first, name), getattr(second, name)]) for name in ROWS},
        row=np.concatenate([first.row, len(first) + second.row]),
        back=np.concatenate([first.back, second.back]),
    )
    return both.taken(places + len(first) * of_second)


def check(schedule: RankSchedule, changes: Changes) -> None:
    """Refuse changes of what a run has not.

    Raises:
        ImpossibleChange: nothing of that kind was played.
    """
    tasks = schedule.tasks
    kinds = set(tasks.kind[tasks.duration > 0].tolist())
    waits = schedule.period is not None or bool(tasks.data_wait.any())
    has = {
        **{name: bool(kinds & set(members)) for name, members in GROUPS.items()},
        "data-wait": waits,
        "loader": waits,
        "pauses": bool(tasks.pause.any()),
        "stalls": bool(tasks.stall.any()),
        "reads": bool(find_reads(tasks).copies.any()),
        "sync": bool(tasks.awaits.any()),
        **dict.fromkeys(AMONG_RANKS, bool(tasks.collective.any())),
        "host": True,
        "tiny-kernels": bool(tiny_of_model(tasks).any()),
    }
    for name in [*changes.removed, *changes.overlapped, *changes.speedup, *changes.fewer]:
        if not has[name]:
            known = ", ".join(sorted(kinds))
            raise ImpossibleChange(f"{name}: the run has none; it has {known}")
