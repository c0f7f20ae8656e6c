"""The same gradients in other buckets: when each is ready, and how long it travels.

DDP fills a bucket in the order in which backward makes the gradients, and sends it once it holds as
much as the limit. So a larger limit joins neighbouring buckets, which are ready with the last of
them. A smaller one cuts a bucket; where its pieces become ready is not in the trace, and is taken
to be even over the time since the bucket before. A gradient cannot be cut, so that is the best
case.

A message takes a latency and its size over a bandwidth, fitted to the messages of the trace
(`verdict.allreduce`).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

import msgspec
from msgspec.structs import replace

from traceprobe.errors import ImpossibleChange
from traceprobe.model.taxonomy import OFF_DEVICE
from traceprobe.replay.tasks import RankSchedule, Task, rows_of, tasks_of
from traceprobe.verdict.allreduce import Links, Message, fit

MB = 1 << 20


class _Bucket(msgspec.Struct, frozen=True):
    """Sent with task `at`, or before it; `size` in bytes."""

    at: int
    size: float


def links_of(schedule: RankSchedule, ranks: int) -> Links | None:
    """What joins the ranks, from the all-reduces of one of them; None where they tell nothing."""
    messages = [
        Message("all_reduce", task.bytes, ranks, task.duration / 1e6, 1.0, 0.0)
        for task in rows_of(schedule.tasks)
        if task.collective and task.bytes > 0
    ]
    return fit(messages, "ring")


def sizes_of(schedule: RankSchedule) -> list[int]:
    """Bytes of the collectives of the last iteration, in order."""
    return [
        task.bytes
        for task in rows_of(schedule.tasks)
        if task.collective and task.iteration == schedule.iterations - 1
    ]


def rebucketed(
    schedules: Sequence[RankSchedule], mb: float, ranks: int
) -> tuple[list[RankSchedule], list[int], Links]:
    """The schedules with buckets of `mb` MB, the buckets of a step, and the links they travel on.

    Raises:
        ImpossibleChange: no sizes of messages are in the trace.
    """
    links = links_of(schedules[0], ranks)
    if links is None or any(
        bool((p.tasks.collective & (p.tasks.bytes <= 0)).any()) for p in schedules
    ):
        raise ImpossibleChange(
            "--bucket-mb: the sizes of the all-reduces are not in the trace; record all ranks with "
            "torch.profiler, or with nsys and NCCL's NVTX ranges"
        )
    found = [_rebucketed(schedule, mb * MB, links, ranks) for schedule in schedules]
    return [schedule for schedule, _ in found], found[0][1], links


def _rebucketed(
    schedule: RankSchedule, limit: float, links: Links, ranks: int
) -> tuple[RankSchedule, list[int]]:
    tasks = rows_of(schedule.tasks)
    sent: dict[int, list[float]] = {}
    sizes: list[int] = []
    for iteration in range(schedule.iterations):
        mine = [
            _Bucket(number, task.bytes)
            for number, task in enumerate(tasks)
            if task.collective and task.iteration == iteration
        ]
        buckets = _filled(mine, limit, tasks)
        sizes = [round(bucket.size) for bucket in buckets]
        for bucket in buckets:
            sent.setdefault(bucket.at, []).append(bucket.size)
    messages = _with_messages(tasks, sent, links, ranks)
    return replace(schedule, tasks=tasks_of(messages)), sizes


def _filled(present: Sequence[_Bucket], limit: float, tasks: Sequence[Task]) -> list[_Bucket]:
    """The buckets of an iteration under another limit, in order."""
    found: list[_Bucket] = []
    held, previous = 0.0, None
    for bucket in present:
        pieces = max(1, ceil(bucket.size / limit)) if held == 0 else 1
        if pieces > 1:
            found += _cut(bucket, pieces, previous, tasks)
        else:
            held += bucket.size
            if held >= limit or bucket is present[-1]:
                found.append(_Bucket(bucket.at, held))
                held = 0.0
        previous = bucket.at
    return found


def _cut(
    bucket: _Bucket, pieces: int, previous: int | None, tasks: Sequence[Task]
) -> list[_Bucket]:
    """Equal pieces, ready evenly over the backward pass since the bucket before."""
    iteration = tasks[bucket.at].iteration
    since = -1 if previous is None else previous
    between = [
        number
        for number in range(since + 1, bucket.at)
        if tasks[number].iteration == iteration and tasks[number].kind == "backward"
    ]
    total = sum(tasks[number].duration for number in between)
    places, spent, piece = [], 0.0, 1
    for number in between:
        spent += tasks[number].duration
        while piece < pieces and spent >= total * piece / pieces:
            places.append(number + 1)
            piece += 1
    places += [bucket.at] * (pieces - len(places))
    return [_Bucket(place, bucket.size / pieces) for place in places]


def _with_messages(
    tasks: Sequence[Task], sent: dict[int, list[float]], links: Links, ranks: int
) -> list[Task]:
    """Tasks with these messages before the tasks they are given for, in place of all others."""
    pattern = next(task for task in tasks if task.collective)
    found: list[Task] = []
    place: list[int] = []  # of each old task among the new ones
    for number, task in enumerate(tasks):
        for size in sent.get(number, ()):
            ns = links.ms("all_reduce", size, ranks) * 1e6
            needs = _kernel_before(found)
            message = replace(
                pattern,
                iteration=task.iteration,
                duration=ns,
                lag=0.0,
                tail=ns,
                awaits=0,
                data_wait=0.0,
            )
            found.append(replace(message, needs=needs, bytes=round(size)))
        place.append(len(found))
        # An emptied task stays for those that refer to it: it ends with its stream.
        found.append(task.emptied() if task.collective else task)
    return _renumbered(tasks, found, place)


def _kernel_before(tasks: Sequence[Task]) -> tuple[int, ...]:
    """Distance from the next task to the last kernel."""
    for distance, task in enumerate(reversed(tasks), 1):
        if task.kind not in OFF_DEVICE:
            return (distance,)
    return ()


def _renumbered(old: Sequence[Task], new: list[Task], place: Sequence[int]) -> list[Task]:
    """The distances of the old tasks in the new list."""

    def distance(number: int, back: int) -> int:
        target = number - back
        if target >= 0:
            return place[number] - place[target]
        # In an earlier cycle: whole lists back.
        cycles, at = divmod(target, len(old))
        return place[number] - place[at] - cycles * len(new)

    for number, task in enumerate(old):
        needs = tuple(distance(number, back) for back in task.needs)
        awaits = distance(number, task.awaits) if task.awaits else 0
        new[place[number]] = replace(new[place[number]], needs=needs, awaits=awaits)
    return new
