"""The collectives of a rank by operation and size, and what of each is transfer.

Which of them are the same on other ranks is told by `collective_matching`. The transfer time of a
collective is its shortest duration among the ranks; what a rank spends in it beyond is waiting.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import polars as pl
from msgspec.structs import replace

from traceprobe.model.codes import UNKNOWN, Kind, Operation
from traceprobe.model.taxonomy import Phase
from traceprobe.timeline.collective_matching import MatchedCollectives
from traceprobe.timeline.device_timeline import DeviceTimeline
from traceprobe.timeline.intervals import Intervals, intersect, per_window, union
from traceprobe.timeline.partition import compute_intervals
from traceprobe.timeline.rank_collectives import summary_windows

KEY = ("operation", "bytes", "group_size")
_NO_CHANNELS = (Operation.OTHER, Operation.COPY)
"""What may be no kernel of NCCL."""
"""What collectives have in common that are reported together."""


class CollectiveGroup(msgspec.Struct, frozen=True):
    """Collectives of one operation, message size and number of ranks; sums over its launches.

    Args:
        bytes, group_size: None where the trace does not say.
        busy_ns: union of their time in the summarised windows; `exposed_ns` of it without a kernel
            of computation, `overlapped_ns` beside one. These two add up to it.
        duration_ns: sum of the durations of the `count` collectives.
        matched: those of them found on other ranks too; `transfer_ns` and `skew_ns` are sums over
            these, None where there are none, as long as other ranks are not known.
        complete: every rank of the group was there for every match.
        dtype: of what a reduction adds up; None where it is none, or the kernels do not tell.
        channels: blocks of its kernels, at most, each of which drives a channel of NCCL; None where
            the trace does not say.
        forward: those of them launched in a forward pass.
    """

    operation: Operation
    bytes: int | None
    group_size: int | None
    count: int
    busy_ns: int
    exposed_ns: int
    overlapped_ns: int
    duration_ns: int
    matched: int = 0
    transfer_ns: int | None = None
    skew_ns: int | None = None
    complete: bool = False
    dtype: str | None = None
    channels: int | None = None
    forward: int = 0

    def rate(self, total_ns: int | None, count: int) -> float | None:
        """Bytes of `count` messages per ns of `total_ns`, which is GB/s; None where unknown."""
        return None if self.bytes is None or not total_ns else self.bytes * count / total_ns


def bus_factor(operation: Operation, ranks: int | None) -> float | None:
    """Bus bandwidth as a multiple of size over time, as nccl-tests defines it.

    None where it has no definition, or the number of ranks is not known.
    """
    if ranks is None or ranks < 2:
        return None
    if operation == Operation.ALL_REDUCE:
        return 2 * (ranks - 1) / ranks
    if operation in (
        *(Operation.ALL_GATHER, Operation.REDUCE_SCATTER, Operation.ALL_TO_ALL),
        *(Operation.GATHER, Operation.SCATTER),
    ):
        return (ranks - 1) / ranks
    if operation in (Operation.BROADCAST, Operation.REDUCE, Operation.SEND_RECV):
        return 1.0
    return None


def collective_groups(timeline: DeviceTimeline) -> list[CollectiveGroup]:
    """The collectives of one rank by operation, bytes and group size; most busy time first.

    Counts and durations are of the collectives launched in the used iterations, of all without
    such; busy times are those of the windows of the summary, as in the partition. What takes other
    ranks to know is left open: `with_matches` adds it.
    """
    used = timeline.index[timeline.used].tolist()
    low, high = int(timeline.edges[0]), int(timeline.edges[-1])
    counted = pl.col("iteration").is_in(used) if used else pl.col("t0").is_between(low, high)
    rows = timeline.ops.with_columns(counted=counted).filter(pl.col("kind") == int(Kind.COMM))
    computing = compute_intervals(timeline.sets)
    groups = []
    for part in rows.partition_by(KEY, maintain_order=True):
        group = _group(part, timeline, computing)
        if group.count or group.busy_ns:
            groups.append(group)
    return sorted(
        groups, key=lambda g: (-g.busy_ns, int(g.operation), g.bytes or 0, g.group_size or 0)
    )


def _group(part: pl.DataFrame, timeline: DeviceTimeline, computing: Intervals) -> CollectiveGroup:
    running = union(part["t0"].to_numpy(), part["t1"].to_numpy())
    windows = summary_windows(timeline)
    busy = per_window(running, timeline.edges)[windows]
    hidden = per_window(intersect(running, computing), timeline.edges)[windows]
    inside = part.filter(pl.col("counted"))
    operation, size, members = part.select(KEY).row(0)
    return CollectiveGroup(
        operation=Operation(operation),
        bytes=None if size == UNKNOWN else size,
        group_size=None if members == UNKNOWN else members,
        count=len(inside),
        busy_ns=int(busy.sum()),
        exposed_ns=int((busy - hidden).sum()),
        overlapped_ns=int(hidden.sum()),
        duration_ns=int((inside["t1"] - inside["t0"]).sum()),
        channels=_channels(inside) if operation not in _NO_CHANNELS else None,
        forward=int((inside["phase"] == int(Phase.FORWARD)).sum()),
    )


def _channels(rows: pl.DataFrame) -> int | None:
    grids = rows.filter(pl.col("grid") != UNKNOWN)["grid"].to_numpy()
    return int(grids.max()) if grids.size else None


def with_matches(
    groups: Sequence[CollectiveGroup],
    table: pl.DataFrame,
    matched: MatchedCollectives | None,
    counted: pl.DataFrame | None = None,
) -> list[CollectiveGroup]:
    """The groups of a rank with what its matched collectives add.

    Args:
        table: `RankCollectives.collectives` of the rank, whose rows `matched` counts.
        counted: the same of the iterations that the groups are of, where they are not all.
    """
    if matched is None:
        return list(groups)
    rows = table[matched.row].with_columns(
        transfer=pl.Series(matched.transfer_ns), ranks=pl.Series(matched.ranks)
    )
    if counted is not None:
        rows = rows.filter(pl.col("iteration").is_in(counted["iteration"].unique().to_list()))
    sums = {
        tuple(key): (count, duration, transfer, fewest)
        for *key, count, duration, transfer, fewest in rows.group_by(KEY)
        .agg(
            pl.len(),
            (pl.col("t1") - pl.col("t0")).sum(),
            pl.col("transfer").sum(),
            pl.col("ranks").min(),
        )
        .rows()
    }
    return [_completed(group, sums) for group in groups]


def _completed(
    group: CollectiveGroup, sums: Mapping[tuple[int, ...], tuple[int, int, int, int]]
) -> CollectiveGroup:
    members = UNKNOWN if group.group_size is None else group.group_size
    key = (int(group.operation), UNKNOWN if group.bytes is None else group.bytes, members)
    if key not in sums:
        return group
    count, duration, transfer, fewest = sums[key]
    return replace(
        group,
        matched=count,
        transfer_ns=transfer,
        skew_ns=duration - transfer,
        complete=members != UNKNOWN and fewest >= members,
    )
