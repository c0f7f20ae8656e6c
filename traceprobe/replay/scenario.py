"""Changes of what is simulated: parts left out, sped up, or hidden."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from traceprobe.errors import ImpossibleChange
from traceprobe.model.taxonomy import COMPUTE_PHASES, OFF_DEVICE
from traceprobe.replay.simulate import RankSchedule, Task

GROUPS: Mapping[str, tuple[str, ...]] = {
    **{name: (name,) for name in (*COMPUTE_PHASES, *OFF_DEVICE)},
    "compute": COMPUTE_PHASES,
}
"""What of the GPU's work can be named, and which kinds of tasks that is."""
REMOVABLE = (*GROUPS, "data-wait", "host", "sync", "skew")
SPEEDABLE = (*GROUPS, "host", "loader")
OVERLAPPABLE = OFF_DEVICE
NAMES: Mapping[str, str] = {
    "data-wait": "waiting for data",
    "host": "host time",
    "sync": "waiting of the host for the GPU",
    "h2d": "copies to the GPU",
    "d2h": "copies from the GPU",
    "memory": "memory ops",
    "graph": "CUDA graph",
    "input": "input on GPU",
}
"""What options call otherwise than people do."""


@dataclass(frozen=True)
class Changes:
    """What is to be different.

    Args:
        removed: of `REMOVABLE`. overlapped: of `OVERLAPPABLE`.
        speedup: factor by which each of `SPEEDABLE` gets faster; below 1 it gets slower.
        bucket_mb: size from which on a bucket of gradients is sent, in MB of 2**20 bytes.
        accumulate: micro-batches, each of the size of a batch, that share one synchronisation and
            one update.
        fewer: factor by which the launches of a phase get fewer, each as long for the host as now.
        margin: relative error of the gain where it is not known how much faster the work would be.
    """

    removed: frozenset[str] = frozenset()
    overlapped: frozenset[str] = frozenset()
    speedup: Mapping[str, float] = field(default_factory=dict)
    bucket_mb: float | None = None
    accumulate: int = 1
    fewer: Mapping[str, float] = field(default_factory=dict)
    margin: float = 0.0

    def words(self) -> list[str]:
        """The changes as a person says them, in a stable order."""
        return [
            *(_without(name) for name in REMOVABLE if name in self.removed),
            *(f"{_named(name)} hidden" for name in OVERLAPPABLE if name in self.overlapped),
            *(
                f"{_named(name)} {_as_fast(self.speedup[name])}"
                for name in SPEEDABLE
                if name in self.speedup
            ),
            *([f"buckets of {self.bucket_mb:g} MB"] if self.bucket_mb is not None else []),
            *([f"{self.accumulate} batches per update"] if self.accumulate > 1 else []),
            *(f"fewer launches of the {_named(name)}" for name in sorted(self.fewer)),
        ]


def _named(name: str) -> str:
    return NAMES.get(name, name)


def _without(name: str) -> str:
    return "work shared evenly by the ranks" if name == "skew" else f"no {_named(name)}"


def _as_fast(factor: float) -> str:
    return "twice as fast" if factor == 2 else f"{factor:g}× as fast"


def together(one: Changes, other: Changes, *, shared: bool = False) -> Changes:
    """Both changes at once.

    Args:
        shared: they make the same work faster, so that only the larger factor counts; else each
            makes faster what the other leaves.
    """

    def factors(ours: Mapping[str, float], theirs: Mapping[str, float]) -> dict[str, float]:
        joined = dict(ours)
        for name, factor in theirs.items():
            before = joined.get(name, 1.0)
            joined[name] = max(before, factor) if shared else before * factor
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
        margin=max(one.margin, other.margin),
    )


def _covering(name: str) -> set[str]:
    """What has to be removed so that a part with this name is gone."""
    wider = {"loader": "data-wait", **dict.fromkeys(COMPUTE_PHASES, "compute")}
    return {name, wider.get(name, name)}


def apply(schedule: RankSchedule, changes: Changes) -> RankSchedule:
    """The schedule of a rank with all changes but that of the buckets."""
    tasks = list(schedule.tasks)
    for name in REMOVABLE:
        if name in changes.removed:
            tasks = _removed(tasks, name)
    for name, factor in changes.speedup.items():
        tasks = _faster(tasks, name, factor)
    for name, factor in changes.fewer.items():
        tasks = _fewer(tasks, GROUPS[name], factor)
    for name in OVERLAPPABLE:
        if name in changes.overlapped:
            tasks = _overlapped(tasks, name)
    if changes.accumulate > 1:
        tasks = _accumulated(tasks, changes.accumulate)
    period = schedule.period
    if period is not None:
        period *= changes.accumulate / changes.speedup.get("loader", 1.0)
        if "data-wait" in changes.removed:
            period = None
    return replace(schedule, tasks=tasks, period=period)


def scaled(tasks: Iterable[Task], kinds: Sequence[str], factor: float) -> list[Task]:
    """Rows of these kinds with durations times `factor`."""
    return [
        replace(
            task,
            duration=task.duration * factor,
            tail=max(task.tail + (factor - 1) * min(task.duration, task.tail), 0.0),
        )
        if task.kind in kinds
        else task
        for task in tasks
    ]


def hosted(tasks: Iterable[Task], factor: float) -> list[Task]:
    """Rows with the host's own time times `factor`."""
    return [
        replace(task, first_host=task.first_host * factor, host=task.host * factor)
        for task in tasks
    ]


def _fewer(tasks: list[Task], kinds: Sequence[str], factor: float) -> list[Task]:
    """Rows whose operations of these kinds are launched as fewer: the host needs less time."""
    found = list(tasks)
    chosen = [number for number, task in enumerate(tasks) if task.kind in kinds]
    for number, task in zip(chosen, hosted([tasks[n] for n in chosen], 1 / factor), strict=True):
        found[number] = task
    return found


def _removed(tasks: list[Task], name: str) -> list[Task]:
    if name == "data-wait":
        return [replace(task, data_wait=0.0) for task in tasks]
    if name == "host":
        return hosted(tasks, 0.0)
    if name == "sync":
        return [replace(task, awaits=0) for task in tasks]
    if name == "skew":
        return [replace(task, collective=False) for task in tasks]
    kinds = GROUPS[name]
    return [replace(task.emptied(), needs=()) if task.kind in kinds else task for task in tasks]


def _faster(tasks: list[Task], name: str, factor: float) -> list[Task]:
    if name == "loader":
        return [replace(task, data_wait=task.data_wait / factor) for task in tasks]
    if name == "host":
        return hosted(tasks, 1 / factor)
    return scaled(tasks, GROUPS[name], 1 / factor)


def _overlapped(tasks: list[Task], name: str) -> list[Task]:
    """Rows of a kind on a stream of their own, whose results are needed one iteration later.

    So they are hidden behind everything else, and a step still lasts as long as all of them.
    """
    kinds = GROUPS[name]
    mine = [task.kind in kinds for task in tasks]
    if not any(mine):
        return tasks
    earlier = _one_iteration_earlier(tasks, mine)
    own = 1 + max(task.stream for task in tasks)
    found: list[Task] = []
    last: dict[int, int] = {}
    """By stream, the moved task that the next one on it came after."""
    for number, task in enumerate(tasks):
        awaits = 0 if task.awaits and mine[(number - task.awaits) % len(tasks)] else task.awaits
        if mine[number]:
            last[task.stream] = number
            same = [d for d in task.needs if not mine[(number - d) % len(tasks)]]
            found.append(replace(task, stream=own, awaits=awaits, needs=tuple(same)))
            continue
        targets = [(number - d) % len(tasks) for d in task.needs]
        needs = [d for d, of in zip(task.needs, targets, strict=True) if not mine[of]]
        needed = [of for of in targets if mine[of]]
        if task.stream in last:
            needed.append(last.pop(task.stream))
        needs += [number - earlier[of] for of in needed]
        found.append(replace(task, awaits=awaits, needs=tuple(needs)))
    return found


def _one_iteration_earlier(tasks: Sequence[Task], mine: Sequence[bool]) -> dict[int, int]:
    """For each marked task, that with the same place from the end in the iteration before.

    Numbers below 0 are tasks of the cycle before.
    """
    by_iteration: dict[int, list[int]] = {}
    for number, task in enumerate(tasks):
        if mine[number]:
            by_iteration.setdefault(task.iteration, []).append(number)
    order = sorted(by_iteration)
    found = {}
    for place, iteration in enumerate(order):
        before, now = by_iteration[order[place - 1]], by_iteration[iteration]
        cycle = 0 if place else len(tasks)
        for back, number in enumerate(reversed(now), 1):
            found[number] = before[-min(back, len(before))] - cycle
    return found


def _accumulated(tasks: list[Task], count: int) -> list[Task]:
    """Each iteration `count` times; all but the last without collectives and update."""
    found: list[Task] = []
    iterations: dict[int, list[Task]] = {}
    for task in tasks:
        iterations.setdefault(task.iteration, []).append(task)
    for mine in iterations.values():
        quiet = _removed(_removed(mine, "communication"), "optimizer")
        for _ in range(count - 1):
            found += quiet
        found += mine
    return found


def check(schedule: RankSchedule, changes: Changes) -> None:
    """Refuse changes of what a run has not.

    Raises:
        ImpossibleChange: nothing of that kind was played.
    """
    kinds = {task.kind for task in schedule.tasks if task.duration}
    waits = schedule.period is not None or any(task.data_wait for task in schedule.tasks)
    has = {
        **{name: bool(kinds & set(members)) for name, members in GROUPS.items()},
        "data-wait": waits,
        "loader": waits,
        "sync": any(task.awaits for task in schedule.tasks),
        "skew": any(task.collective for task in schedule.tasks),
        "host": True,
    }
    for name in [*changes.removed, *changes.overlapped, *changes.speedup, *changes.fewer]:
        if not has[name]:
            known = ", ".join(sorted(kinds))
            raise ImpossibleChange(f"{name}: the run has none; it has {known}")
