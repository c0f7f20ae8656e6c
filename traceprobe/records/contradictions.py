"""What holds in every report: sums, orders, and records that agree.

A number that breaks one of these is wrong, and a wrong number is worse than no report. The checks
look at the records only, so they cost next to nothing beside the analysis that made them. They take
for granted that keys and indices are there, which `shape` looks for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import msgspec

from traceprobe.model import taxonomy
from traceprobe.records import report as result
from traceprobe.records.roofline import Roofline

ROUNDING = 1e-5
"""Bound on a sum of shares: each is rounded to six decimals."""
_IDLE = frozenset(taxonomy.IDLE_CAUSES)
Problems = Iterator[str]


def violations(report: result.Report, ranks: Sequence[result.Rank] | None = None) -> list[str]:
    """What the report contradicts itself in.

    Args:
        ranks: those of the report with all their details; without them those that have kept theirs.
    """
    run = report.run
    overview = msgspec.UNSET if run is None else run.overview
    detailed = {r.rank for r in report.ranks}
    if not isinstance(overview, msgspec.UnsetType):
        detailed &= set(overview.detailed_ranks)
    whole = [r for r in report.ranks if r.rank in detailed] if ranks is None else ranks
    return [
        *_each(whole, _rank),
        *_each([r for r in report.ranks if r.rank not in detailed], _brief),
        *_run(report),
        *_verdict(report.verdict),
        *_savings(report),
        *_roofline(report.roofline),
    ]


def _each(ranks: Sequence[result.Rank], check: Callable[[result.Rank], Problems]) -> Problems:
    for rank in ranks:
        for problem in check(rank):
            yield f"rank {rank.rank}: {problem}"


def _rank(rank: result.Rank) -> Problems:
    used = [i for i in rank.iterations if i.used]
    windows = [i for i in rank.iterations if i.start_ns is not None]
    yield from _iterations(rank, windows)
    if rank.summary.iterations_used != len(used):
        yield "iterations_used is not the number of used iterations"
    if (rank.step_marker is None) != (not rank.iterations):
        yield "iterations without a marker, or a marker without iterations"
    if rank.step_marker is not None and rank.step_marker.count != len(rank.iterations):
        yield "the marker counts other iterations than there are"
    yield from _summary(rank.summary)
    yield from _totals(rank.summary, used or windows)
    yield from _gaps(rank, windows)


def _brief(rank: result.Rank) -> Problems:
    """A rank of a large run of which only the summary stays."""
    yield from _summary(rank.summary)
    details = [rank.iterations, rank.gaps, rank.timeline, rank.worst, rank.summary.collectives]
    if any(details) or rank.summary.top_kernels:
        yield "has details although it is not listed as detailed"


def _iterations(rank: result.Rank, windows: Sequence[result.Iteration]) -> Problems:
    for place, i in enumerate(rank.iterations):
        name = f"iteration {i.index}"
        if i.index != place:
            yield f"{name} is the one at {place}"
        if i.used == (i.skip_reason is not None):
            yield f"{name} is used and skipped, or neither"
        if i.used and i.start_ns is None:
            yield f"{name} is used without a window"
        if i.start_ns is None or i.end_ns is None or i.partition_ns is None or i.busy_ns is None:
            if {i.start_ns, i.end_ns} != {None} or i.partition_ns or i.busy_ns:
                yield f"{name} has half a window"
        elif i.end_ns <= i.start_ns:
            yield f"{name} ends before it begins"
        else:
            yield from _sums(name, i.partition_ns, i.busy_ns, i.end_ns - i.start_ns)
    for before, after in pairwise(windows):
        if before.end_ns != after.start_ns:
            yield f"the windows of iterations {before.index} and {after.index} are not adjacent"


def _sums(name: str, part: result.Nanoseconds, busy: result.Nanoseconds, window: int) -> Problems:
    if set(part) != set(taxonomy.PARTITION) or set(busy) != set(taxonomy.BUSY):
        yield f"{name}: classes differ from the contract"
        return
    if sum(value or 0 for value in part.values()) != window:
        yield f"{name}: the partition does not sum to the window"
    if any((value or 0) < 0 for value in part.values()):
        yield f"{name}: a class takes less than no time"
    for key, whole in busy.items():
        mine = part[key]
        if (mine is None) != (whole is None):
            yield f"{name}: {key} is observed in one of partition and busy"
        elif not (mine or 0) <= (whole or 0) <= window:
            yield f"{name}: {key} is exclusive {mine}, busy {whole}, window {window}"


def _summary(summary: result.Summary) -> Problems:
    """What stands twice says the same twice."""
    part, busy, window = summary.partition_ns, summary.busy_ns, summary.window_ns
    yield from _sums("summary", part, busy, window)
    for name, members in taxonomy.SHARE_CLASSES.items():
        share = sum(part.get(key) or 0 for key in members) / window if window else 0
        if not abs(summary.share.get(name, math.nan) - share) <= ROUNDING:
            yield f"share.{name} is not that of the partition"
    if window and not abs(sum(summary.share.values()) - 1) <= ROUNDING:
        yield "share does not sum to 1"
    communication, h2d = summary.communication, summary.h2d
    for key, record in (("communication", communication), ("h2d", h2d)):
        if (record is None) != (part.get(key) is None):
            yield f"{key} is observed in one of partition and record"
        elif record is not None:
            if record.exposed_ns != part[key] or record.total_ns != busy[key]:
                yield f"{key}: exposed or total differ from partition or busy"
            if not 0 <= record.overlapped_ns <= record.total_ns:
                yield f"{key}: more than all of it overlaps"
            if record.exposed_ns + record.overlapped_ns > record.total_ns:
                yield f"{key}: exposed and overlapped exceed the total"
    # Compute alone claims time before communication, so what it does not hide is exposed.
    if communication is not None and (
        communication.exposed_ns + communication.overlapped_ns != communication.total_ns
    ):
        yield "communication is not the sum of exposed and overlapped"
    if (summary.step_ms is None) != (summary.iterations_used == 0):
        yield "step_ms without used iterations, or the reverse"
    if summary.step_ms is not None and summary.iterations_used:
        mean = window / summary.iterations_used / 1e6
        if not math.isclose(summary.step_ms.mean, mean, rel_tol=1e-5, abs_tol=2e-6):
            yield "step_ms.mean is not the mean window"
    yield from _collectives(summary)


def _totals(summary: result.Summary, covered: Sequence[result.Iteration]) -> Problems:
    """Totals are those of the iterations that the summary is about."""
    if not covered:
        return
    if summary.window_ns != sum((i.end_ns or 0) - (i.start_ns or 0) for i in covered):
        yield "window_ns is not the sum of its iterations"
    for kind in ("partition_ns", "busy_ns"):
        records = [record for i in covered if (record := getattr(i, kind)) is not None]
        for key, total in getattr(summary, kind).items():
            if (total or 0) != sum(record.get(key) or 0 for record in records):
                yield f"summary.{kind}.{key} is not the sum of its iterations"
    waited = [i.skew_exposed_ns for i in covered if i.skew_exposed_ns is not None]
    told = summary.communication and summary.communication.skew_exposed_ns
    if waited and sum(waited) != (told or 0):
        yield "skew_exposed_ns is not the sum of its iterations"


def _collectives(summary: result.Summary) -> Problems:
    groups, communication = summary.collectives, summary.communication
    for group in groups:
        if group.exposed_ns + group.overlapped_ns != group.total_ns:
            yield "a group of collectives is not the sum of exposed and overlapped"
        # Collectives that take no time at all are no communication, but they were launched.
        if group.total_ns > (communication.total_ns if communication else 0):
            yield "a group of collectives exceeds all communication"
        if group.matched > group.count or bool(group.matched) != (group.transfer_ns is not None):
            yield "a group of collectives has transfer without matches, or the reverse"
        if group.bytes is None and group.algbw_at_least_gbps is not None:
            yield "a group of collectives has a bandwidth without bytes"
    steps, counted = summary.iterations_used, summary.collectives_per_step
    whole = groups and not summary.collectives_left_out
    if whole and counted is not None and abs(sum(g.count for g in groups) / steps - counted) > 1e-3:
        yield "collectives are counted differently in total and by group"


def _gaps(rank: result.Rank, windows: Sequence[result.Iteration]) -> Problems:
    """Gaps are inside the idle time of their iteration."""
    inside = {i.index: i for i in windows}
    idle: dict[int | None, int] = {}
    for gap in rank.gaps:
        length = gap.end_ns - gap.start_ns
        idle[gap.iteration] = idle.get(gap.iteration, 0) + length
        window = inside.get(gap.iteration) if gap.iteration is not None else None
        if length <= 0:
            yield "a gap is empty"
        if gap.cause not in _IDLE:
            yield "a gap has an unknown cause"
        if windows and (
            window is None
            or not (window.start_ns or 0) <= gap.start_ns < gap.end_ns <= (window.end_ns or 0)
        ):
            yield "a gap is outside of its iteration"
    for index, spent in idle.items():
        window = inside.get(index) if index is not None else None
        part = rank.summary.partition_ns if window is None else window.partition_ns or {}
        if spent > sum(part.get(cause) or 0 for cause in taxonomy.IDLE_CAUSES):
            yield "gaps are longer than the idle time that they are in"


def _run(report: result.Report) -> Problems:
    quality, run, ranks = report.quality, report.run, report.ranks
    if not 0 <= quality.gpu_ops_linked <= quality.gpu_ops:
        yield "more linked ops than ops"
    places = [(r.input, r.pid, r.device.index) for r in ranks]
    if places != sorted(set(places)) or not places:
        yield "ranks are out of order or repeated"
    if any(not 0 <= r.input < len(report.inputs) for r in ranks):
        yield "a rank has no input"
    if run is None:
        if len(ranks) > 1:
            yield "several ranks and no run"
        return
    if run.world_size < len(ranks):
        yield "a run of fewer ranks than there are"
    if (run.transfer_ns is None) != (run.skew_ns is None):
        yield "transfer without skew, or the reverse"
    if (run.straggler_rank is None) != (run.straggler_cause is None):
        yield "straggler without a cause, or the reverse"
    numbers = [r.rank for r in ranks]
    if run.straggler_rank is not None and run.straggler_rank not in numbers:
        yield "the straggler is none of the ranks"
    causes = sum((run.skew_causes or {}).values())
    if run.skew_causes and (run.skew_ns is None or not abs(causes - 1) <= ROUNDING):
        yield "skew_causes without skew, or they do not sum to 1"
    if not isinstance(run.overview, msgspec.UnsetType):
        yield from _overview(run.overview, numbers)


def _overview(overview: result.Overview, numbers: Sequence[int]) -> Problems:
    members = [rank for group in overview.groups for rank in group.members]
    if sorted(members) != sorted(numbers) or overview.steps.ranks != numbers:
        yield "the overview does not hold every rank once"
    if any(group.median_rank not in group.members for group in overview.groups):
        yield "the median of a group is not a member"
    named = {overview.worst_rank, overview.median_rank}
    if not named <= set(overview.detailed_ranks) <= set(numbers):
        yield "the worst or the median rank has no details"
    width = len(overview.steps.labels)
    if any(len(row) != width for row in overview.steps.step_ms):
        yield "the matrix of steps is ragged"


def _verdict(verdict: result.Verdict) -> Problems:
    shares = verdict.shares
    if set(shares) != set(taxonomy.SHARES) or not abs(sum(shares.values()) - 1) <= ROUNDING:
        yield "verdict.shares do not sum to 1"
    total = sum(term.value for term in verdict.confidence_terms)
    if not abs(verdict.confidence - min(max(total, 0), 1)) <= 5e-4 + ROUNDING:
        yield "the terms do not add up to the confidence"


def _roofline(found: Roofline | msgspec.UnsetType) -> Problems:
    if isinstance(found, msgspec.UnsetType):
        return
    if found.mfu is not None and found.hfu is not None and found.mfu > found.hfu + ROUNDING:
        yield "the model has more operations than were executed"
    parts = (found.math_ms, found.memory_ms, found.rest_ms)
    if None not in parts and sum(p or 0.0 for p in parts) < found.step_ms - ROUNDING:
        yield "math, memory and rest are less than the step"


def _savings(report: result.Report) -> Problems:
    """Nothing saves more than the longest step, with a profiler or without."""
    steps = [r.summary.step_ms.mean for r in report.ranks if r.summary.step_ms is not None]
    effect = report.quality.observer_effect
    unseen = effect.unprofiled_step_ms - effect.profiled_step_ms if effect is not None else 0.0
    longest = max(steps, default=math.inf) + max(unseen, 0.0)
    for finding in report.findings:
        saving = finding.saving_ms_per_step
        if saving is not None and not 0 < saving <= longest * (1 + ROUNDING) + 1e-3:
            yield f"{finding.id} saves {saving} of {longest} ms"
