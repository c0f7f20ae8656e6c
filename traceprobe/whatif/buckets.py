"""The same gradients in other buckets: when each is ready, and how long it travels.

DDP fills a bucket in the order in which backward makes the gradients, and sends it once it holds as
much as the limit. So a larger limit joins neighbouring buckets, which are ready with the last of
them. A smaller one cuts a bucket; where its parts become ready is not in the trace, and is taken to
be even over the time since the bucket before. A gradient cannot be cut, so that is the best case.

A message takes a latency and its size over a bandwidth, fitted to the messages of the trace
(`verdict.allreduce`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil

from traceprobe.model.taxonomy import OFF_DEVICE
from traceprobe.verdict.allreduce import Links, Message, fit
from traceprobe.whatif.simulate import ImpossibleChange, Part, Row

MB = 1 << 20


@dataclass(frozen=True)
class _Bucket:
    """Sent with row `at`, or before it; `size` in bytes."""

    at: int
    size: float


def links_of(part: Part, ranks: int) -> Links | None:
    """What joins the ranks, from the all-reduces of one of them; None where they tell nothing."""
    messages = [
        Message("all_reduce", row.size, ranks, row.busy / 1e6, 1.0, 0.0)
        for row in part.rows
        if row.joins and row.size > 0
    ]
    return fit(messages, "ring")


def sizes_of(part: Part) -> list[int]:
    """Bytes of the collectives of the last iteration, in order."""
    return [row.size for row in part.rows if row.joins and row.iteration == part.iterations - 1]


def rebucketed(parts: Sequence[Part], mb: float, ranks: int) -> tuple[list[Part], list[int], Links]:
    """The parts with buckets of `mb` MB, the buckets of a step, and the links they travel on.

    Raises:
        ImpossibleChange: no sizes of messages are in the trace.
    """
    links = links_of(parts[0], ranks)
    if links is None or any(row.joins and row.size <= 0 for p in parts for row in p.rows):
        raise ImpossibleChange(
            "--bucket-mb: the sizes of the all-reduces are not in the trace; record all ranks with "
            "torch.profiler, or with nsys and NCCL's NVTX ranges"
        )
    found = [_rebucketed(part, mb * MB, links, ranks) for part in parts]
    return [part for part, _ in found], found[0][1], links


def _rebucketed(part: Part, limit: float, links: Links, ranks: int) -> tuple[Part, list[int]]:
    rows = list(part.rows)
    sent: dict[int, list[float]] = {}
    sizes: list[int] = []
    for iteration in range(part.iterations):
        mine = [
            _Bucket(number, row.size)
            for number, row in enumerate(rows)
            if row.joins and row.iteration == iteration
        ]
        buckets = _filled(mine, limit, rows)
        sizes = [round(bucket.size) for bucket in buckets]
        for bucket in buckets:
            sent.setdefault(bucket.at, []).append(bucket.size)
    return replace(part, rows=_with_messages(rows, sent, links, ranks)), sizes


def _filled(present: Sequence[_Bucket], limit: float, rows: Sequence[Row]) -> list[_Bucket]:
    """The buckets of an iteration under another limit, in order."""
    found: list[_Bucket] = []
    held, previous = 0.0, None
    for bucket in present:
        pieces = max(1, ceil(bucket.size / limit)) if held == 0 else 1
        if pieces > 1:
            found += _cut(bucket, pieces, previous, rows)
        else:
            held += bucket.size
            if held >= limit or bucket is present[-1]:
                found.append(_Bucket(bucket.at, held))
                held = 0.0
        previous = bucket.at
    return found


def _cut(bucket: _Bucket, pieces: int, previous: int | None, rows: Sequence[Row]) -> list[_Bucket]:
    """Equal pieces, ready evenly over the backward pass since the bucket before."""
    iteration = rows[bucket.at].iteration
    since = -1 if previous is None else previous
    between = [
        number
        for number in range(since + 1, bucket.at)
        if rows[number].iteration == iteration and rows[number].kind == "backward"
    ]
    total = sum(rows[number].busy for number in between)
    places, spent, piece = [], 0.0, 1
    for number in between:
        spent += rows[number].busy
        while piece < pieces and spent >= total * piece / pieces:
            places.append(number + 1)
            piece += 1
    places += [bucket.at] * (pieces - len(places))
    return [_Bucket(place, bucket.size / pieces) for place in places]


def _with_messages(
    rows: Sequence[Row], sent: dict[int, list[float]], links: Links, ranks: int
) -> list[Row]:
    """Rows with these messages before the rows they are given for, in place of all others."""
    pattern = next(row for row in rows if row.joins)
    found: list[Row] = []
    place: list[int] = []  # of each old row among the new ones
    for number, row in enumerate(rows):
        for size in sent.get(number, ()):
            ns = links.ms("all_reduce", size, ranks) * 1e6
            needs = _kernel_before(found)
            message = replace(
                pattern, iteration=row.iteration, busy=ns, lag=0.0, tail=ns, awaits=0, data=0.0
            )
            found.append(replace(message, needs=needs, size=round(size)))
        place.append(len(found))
        # An emptied row stays for those that refer to it: it ends with its stream.
        found.append(row.emptied() if row.joins else row)
    return _renumbered(rows, found, place)


def _kernel_before(rows: Sequence[Row]) -> tuple[int, ...]:
    """Distance from the next row to the last kernel."""
    for distance, row in enumerate(reversed(rows), 1):
        if row.kind not in OFF_DEVICE:
            return (distance,)
    return ()


def _renumbered(old: Sequence[Row], new: list[Row], place: Sequence[int]) -> list[Row]:
    """The distances of the old rows in the new list."""

    def distance(number: int, back: int) -> int:
        target = number - back
        if target >= 0:
            return place[number] - place[target]
        # In an earlier cycle: whole lists back.
        cycles, at = divmod(target, len(old))
        return place[number] - place[at] - cycles * len(new)

    for number, row in enumerate(old):
        needs = tuple(distance(number, back) for back in row.needs)
        awaits = distance(number, row.awaits) if row.awaits else 0
        new[place[number]] = replace(new[place[number]], needs=needs, awaits=awaits)
    return new
