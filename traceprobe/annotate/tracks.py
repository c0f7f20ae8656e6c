"""What an analysis knows of a device over time, as tracks of slices that do not overlap."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec
import numpy as np
import polars as pl

from traceprobe.model.codes import UNKNOWN, Int64s
from traceprobe.model.taxonomy import (
    CLASS_LABELS,
    COMPUTE_PHASES,
    IDLE_CAUSES,
    PATH_LABELS,
    SHARE_CLASSES,
    TRANSFERS,
)
from traceprobe.records.critical_path import Stretch
from traceprobe.timeline.device_timeline import DeviceTimeline
from traceprobe.timeline.idle import Gaps
from traceprobe.timeline.intervals import Intervals

MOST_SLICES = 20_000
"""Slices of a track: a screen has fewer columns, and a viewer loads them all."""
NO_ITERATIONS = "the whole capture: no iterations were found"


class Track(msgspec.Struct, frozen=True):
    """Slices of one track.

    Args:
        slices: `t0`, `t1` (ns on the trace's clock), `name`, by start, none overlapping another;
            every other column is an argument, null where a slice has none.
        left_out: slices that are missing because there are too many; the shortest.
    """

    name: str
    slices: pl.DataFrame
    left_out: int = 0

    def longest(self, most: int) -> Track:
        """The track with its longest slices, so many at most."""
        more = len(self.slices) - most
        if more <= 0:
            return self
        length = pl.col("t1") - pl.col("t0")
        kept = self.slices.sort(length, "t0", descending=[True, False]).head(most).sort("t0")
        return Track(self.name, kept, self.left_out + more)


def time_tracks(
    account: DeviceTimeline, names: Sequence[str]
) -> tuple[list[Track], dict[str, int]]:
    """The tracks of a device: iterations, phases, idle time by cause, exposed communication.

    Args:
        names: of the trace.

    Returns:
        The tracks, and where the longest stretch of each class of the partition begins.
    """
    own = account.own
    phases = [name for name in own if name in COMPUTE_PHASES or name in TRANSFERS]
    phases.remove("communication")
    idle = _stretches(own, IDLE_CAUSES)
    tracks = [
        Track("iterations", _iterations(account)),
        Track("phases", _stretches(own, phases).drop("class")),
        Track("idle", idle.rename({"class": "cause"}).with_columns(_around(idle, account, names))),
        Track("exposed communication", _stretches(own, ["communication"]).drop("class")),
    ]
    longest = {
        name: int(each.t0[np.argmax(each.t1 - each.t0)])
        for name, each in own.items()
        if len(each.t0)
    }
    return [track.longest(MOST_SLICES) for track in tracks], longest


def path_track(stretches: Iterable[Stretch], zero: int) -> Track:
    """The critical path where it runs on one rank.

    Args:
        zero: time zero of the rank's input, ns on the trace's clock.
    """
    rows = sorted((s.start_ns + zero, s.end_ns + zero, PATH_LABELS[s.part]) for s in stretches)
    schema = {"t0": pl.Int64, "t1": pl.Int64, "name": pl.String}
    found = pl.DataFrame(rows, schema=schema, orient="row")
    until = pl.col("t1").cum_max().shift(1)
    apart = found.with_columns(t0=pl.max_horizontal("t0", until)).filter(
        pl.col("t1") > pl.col("t0")
    )
    return Track("critical path", apart)


def _iterations(account: DeviceTimeline) -> pl.DataFrame:
    """The windows of a device, with what they are spent on."""
    marker, edges, index = account.process.marker, account.edges, account.index.tolist()
    named = [
        "between iterations" if marker is None or k == UNKNOWN else marker.labels[k] for k in index
    ]
    reasons = [None if k == UNKNOWN else account.reasons[k] for k in index]
    windows = len(edges) - 1
    none = np.zeros(windows, dtype=np.int64)
    shares = {
        f"{share}_ms": sum((account.exclusive[name] for name in classes), none) / 1e6
        for share, classes in SHARE_CLASSES.items()
    }
    return pl.DataFrame(
        {
            "t0": edges[:-1],
            "t1": edges[1:],
            "name": named or [NO_ITERATIONS] * windows,
            "left_out_of_the_summary": pl.Series(reasons or [None] * windows, dtype=pl.String),
            **shares,
        }
    ).filter(pl.col("t1") > pl.col("t0"))


def _stretches(own: Mapping[str, Intervals], classes: Iterable[str]) -> pl.DataFrame:
    """The stretches of some classes of the partition, which do not overlap."""
    parts = [(name, own[name]) for name in classes if name in own]
    counts = [len(each.t0) for _, each in parts]
    which = np.repeat(np.arange(len(parts)), counts)
    kinds = pl.Series([name for name, _ in parts], dtype=pl.String)
    labels = pl.Series([CLASS_LABELS[name] for name, _ in parts], dtype=pl.String)
    none = np.empty(0, dtype=np.int64)
    return pl.DataFrame(
        {
            "t0": np.concatenate([none, *(each.t0 for _, each in parts)]),
            "t1": np.concatenate([none, *(each.t1 for _, each in parts)]),
            "name": labels.gather(which),
            "class": kinds.gather(which),
        }
    ).sort("t0")


def _around(idle: pl.DataFrame, account: DeviceTimeline, names: Sequence[str]) -> list[pl.Series]:
    """What ran last before the gap that each idle stretch is in, and what ended it."""
    gaps: Gaps = account.gaps
    at = np.maximum(np.searchsorted(gaps.t0, idle["t0"].to_numpy(), "right") - 1, 0)
    known = bool(len(gaps.t0))
    numbers: Int64s = account.ops["name"].to_numpy()
    distinct = pl.Series(names, dtype=pl.String)
    return [
        pl.Series(column, _named(distinct, numbers, rows[at]) if known else [None] * len(idle))
        for column, rows in (("after", gaps.before), ("before", gaps.after))
    ]


def _named(names: pl.Series, numbers: Int64s, rows: Int64s) -> pl.Series:
    """Names of ops by their rows; None where there is no op."""
    known = pl.Series(rows != UNKNOWN)
    return pl.select(pl.when(known).then(names.gather(numbers[rows]))).to_series()
