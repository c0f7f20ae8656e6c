"""The process that is added for a rank: its tracks and counters as events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from traceprobe.annotate.chrome_events import Clock, counter, instant, metadata, slices
from traceprobe.annotate.counters import Counter, device_counters
from traceprobe.annotate.findings import instants
from traceprobe.annotate.tracks import Track, path_track, time_tracks
from traceprobe.model.events import Trace
from traceprobe.pipeline.build_rank import origin
from traceprobe.records.critical_path import CriticalPath
from traceprobe.records.rank import Rank
from traceprobe.records.report import Report
from traceprobe.timeline.device_timeline import DeviceTimeline

MOST_ADDED = 400_000
"""Slices and values of counters that are added to a file, all ranks together."""
SERIES = 16
"""Tracks and counters of a rank that the sum is divided by."""
_FIRST = -1_000_000
"""Viewers sort processes by such a number; the profiler gives its own none below 0."""
_FINDINGS = 1
"""Number of the track of instants; the others follow."""
_MOST_STARTS = 1_000


class Draft(msgspec.Struct, frozen=True):
    """What one device has over time, kept until the run is judged.

    Args:
        starts: of the iterations of the summary, or of the capture; ns on the trace's clock, as all
            times here. longest: by class of the partition, where its longest stretch begins.
        zero: time zero of the input. end: of the account.
    """

    tracks: list[Track]
    counters: list[Counter]
    starts: list[int]
    longest: Mapping[str, int]
    zero: int
    end: int


def draft(account: DeviceTimeline, trace: Trace) -> Draft:
    """What is kept of the account of a device."""
    tracks, longest = time_tracks(account, trace.names)
    windows = account.used if account.used.any() else slice(None)
    starts = account.edges[:-1][windows]
    return Draft(
        tracks=tracks,
        counters=device_counters(account),
        starts=starts[:_MOST_STARTS].tolist(),
        longest=longest,
        zero=origin(trace),
        end=int(account.edges[-1]),
    )


class Added(msgspec.Struct):
    """What was added to a file, and by track or counter what was left out of it."""

    events: int = 0
    left_out: dict[str, int] = msgspec.field(default_factory=dict)

    def leave_out(self, name: str, number: int) -> None:
        """Count what is missing of a track or counter."""
        if number:
            self.left_out[name] = self.left_out.get(name, 0) + number


def rank_events(
    report: Report,
    rank: Rank,
    drafted: Draft,
    memory: Sequence[Counter],
    pid: int,
    clock: Clock,
    added: Added,
) -> Iterator[bytes]:
    """The events of a rank's process; counts them in `added`.

    Args:
        memory: counters that only the copied events have.
    """
    most = max(MOST_ADDED // (len(report.ranks) * SERIES), 1)
    yield metadata(pid, None, "process_name", name=f"traceprobe rank {rank.rank}")
    yield metadata(pid, None, "process_sort_index", sort_index=_FIRST + rank.rank)
    yield metadata(pid, _FINDINGS, "thread_name", name="verdict and findings")
    yield metadata(pid, _FINDINGS, "thread_sort_index", sort_index=_FINDINGS)
    for found in instants(report, drafted.starts, drafted.longest):
        added.events += 1
        yield instant(pid, _FINDINGS, found.at, found.name, found.arguments, clock)
    tracks = [*drafted.tracks]
    if isinstance(report.critical_path, CriticalPath):
        mine = (s for s in report.critical_path.stretches if s.rank == rank.rank)
        tracks.append(path_track(mine, drafted.zero))
    for tid, track in enumerate(tracks, _FINDINGS + 1):
        if not len(track.slices):
            continue
        shown = track.longest(most)
        rows = clock.slices(shown.slices)
        yield metadata(pid, tid, "thread_name", name=track.name)
        yield metadata(pid, tid, "thread_sort_index", sort_index=tid)
        yield from slices(pid, tid, rows, clock)
        added.events += len(rows)
        added.leave_out(track.name, shown.left_out + len(shown.slices) - len(rows))
    for each in (*drafted.counters, *memory):
        kept = each.thinned(most)
        yield from counter(pid, each.name, each.unit, kept.samples.iter_rows(), clock)
        added.events += len(kept.samples)
        added.leave_out(each.name, kept.left_out)
