"""The collectives of one rank and what surrounds them: what other ranks are compared with.

A rank is matched by its collectives and by what it did before and during them. That is little of
its timeline, so the ranks of a large run can be analysed one by one, wherever their files are, and
only this needs to be in one place.
"""

from __future__ import annotations

import msgspec
import numpy as np
import polars as pl

from traceprobe.model.codes import UNKNOWN, Int64s, Kind, Operation
from traceprobe.model.taxonomy import SHARE_CLASSES
from traceprobe.timeline.device_timeline import DeviceTimeline
from traceprobe.timeline.intervals import EMPTY, Intervals, intersect, measure_until, union
from traceprobe.timeline.partition import compute_intervals

IS_COLLECTIVE = (pl.col("kind") == int(Kind.COMM)) & (pl.col("operation") != int(Operation.COPY))
"""Communication in which ranks wait for each other."""
EXPLAINS = ("io", "overhead", "compute")
"""Groups of classes that can make a rank late. Communication cannot: it is what the others wait
in."""

WHOLE = ""
"""Label of the capture where it is one step, for want of a step marker."""

TABLE = {
    "step": pl.String,  # label of the iteration, or WHOLE
    "iteration": pl.Int64,
    "order": pl.Int64,  # of launch, within an iteration
    "group": pl.Int64,
    "operation": pl.Int64,
    "group_size": pl.Int64,
    "bytes": pl.Int64,
    "t0": pl.Int64,
    "t1": pl.Int64,
    "follows": pl.Boolean,  # whether there is one before it in its group
    # Time of each group of `EXPLAINS` from the start of the account, in ns, until: the end of the
    # collective before it in its group; the start of the iteration's window; its own end.
    **{f"{name}_{until}": pl.Int64 for name in EXPLAINS for until in ("begin", "window", "end")},
}


class RankCollectives(msgspec.Struct, frozen=True):
    """Collectives of one device and what surrounds them; ns on the clock of its trace.

    Args:
        collectives: those launched in the iterations of the summary, in launch order, as `TABLE`.
        computing: computation beside any of them.
        edges: of the windows. index: number of the iteration of each, UNKNOWN between iterations.
        chosen: indices of the windows that the summary covers.
    """

    collectives: pl.DataFrame
    computing: Intervals
    edges: Int64s
    index: Int64s
    chosen: Int64s


def rank_collectives(timeline: DeviceTimeline) -> RankCollectives:
    """What other ranks need to know of a device."""
    rows = _collectives(timeline)
    during = union(rows["t0"].to_numpy(), rows["t1"].to_numpy())
    return RankCollectives(
        collectives=rows,
        computing=intersect(during, compute_intervals(timeline.sets)) if len(rows) else EMPTY,
        edges=timeline.edges,
        index=timeline.index,
        chosen=summary_windows(timeline),
    )


def summary_windows(timeline: DeviceTimeline) -> Int64s:
    """Indices of the windows that the summary covers: the used ones, else all iterations."""
    if timeline.used.any():
        return np.flatnonzero(timeline.used)
    return np.flatnonzero(timeline.index != UNKNOWN) if len(timeline.index) else np.zeros(1, int)


def _collectives(timeline: DeviceTimeline) -> pl.DataFrame:
    """Those of the iterations that the summary covers; without any, of the capture as one step."""
    marker, index = timeline.process.marker, timeline.index
    rows = (
        timeline.ops.filter(IS_COLLECTIVE)
        .sort("launch_t0", "t0")
        .with_columns(
            begin=pl.col("t1").shift(1).over("group"),
            follows=pl.int_range(pl.len()).over("group") > 0,
        )
    )
    if marker is None or not len(index):
        rows = rows.with_columns(iteration=pl.lit(0, pl.Int64))
        labels = [WHOLE] * len(rows)
        window = np.full(len(rows), timeline.edges[0])
    else:
        covered = index[summary_windows(timeline)]
        rows = rows.filter(pl.col("iteration").is_in(covered.tolist()))
        labels = [marker.labels[k] for k in rows["iteration"].to_list()]
        begins = np.zeros(len(marker.starts), dtype=np.int64)
        begins[index[index != UNKNOWN]] = timeline.edges[:-1][index != UNKNOWN]
        window = begins[rows["iteration"].to_numpy()]
    instants = {
        # Where none comes before it, the window stands in for its end.
        "begin": rows["begin"].fill_null(pl.Series(window)).to_numpy(),
        "window": window,
        "end": rows["t1"].to_numpy(),
    }
    spent = {until: _spent_until(timeline, at) for until, at in instants.items()}
    head = _first_wait(timeline) * (window == timeline.edges[0])
    spent["window"]["io"] = spent["window"]["io"] - head
    spent["begin"]["io"] = spent["begin"]["io"] - head * rows["begin"].is_null().to_numpy()
    return rows.select(
        pl.Series("step", labels, pl.String),
        "iteration",
        pl.int_range(pl.len()).over("iteration").cast(pl.Int64).alias("order"),
        *("group", "operation", "group_size", "bytes", "t0", "t1", "follows"),
        *(
            pl.Series(f"{name}_{until}", values, pl.Int64)
            for until, each in spent.items()
            for name, values in each.items()
        ),
    ).select(pl.col(column).cast(kind) for column, kind in TABLE.items())


def _first_wait(timeline: DeviceTimeline) -> int:
    """How long the first iteration waited in ranges of a loader before its window, ns.

    A window begins with its first operation, and what comes before is of the window before it. The
    first one has none, while other ranks wait in it for this one.
    """
    marker, index = timeline.process.marker, timeline.index
    if marker is None or not len(index) or index[0] == UNKNOWN:
        return 0
    ends = np.array([marker.starts[index[0]], timeline.edges[0]])
    before, until = measure_until(timeline.process.host.data_annotated, ends)
    return max(int(until - before), 0)


def _spent_until(timeline: DeviceTimeline, instants: Int64s) -> dict[str, Int64s]:
    return {
        name: sum(
            (measure_until(timeline.own[part], instants) for part in SHARE_CLASSES[name]),
            np.zeros(len(instants), np.int64),
        )
        for name in EXPLAINS
    }
