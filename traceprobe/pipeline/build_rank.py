"""Accounts of devices to the records of the report.

A record is made of one device alone, and left open where it takes the other ranks to know;
`completed_rank` adds that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import polars as pl
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from traceprobe.formatting import truncated
from traceprobe.model.accounting import SKIPPED_AS_EMPTY
from traceprobe.model.codes import UNKNOWN, Int64s
from traceprobe.model.events import Device, Trace
from traceprobe.model.taxonomy import AWAITS_DEVICE
from traceprobe.pipeline import communication
from traceprobe.pipeline.rank_summary import MAX_COLLECTIVES, MAX_NAME, rank_summary
from traceprobe.records import rank as records
from traceprobe.records.rank import (
    DeviceInfo,
    Gap,
    Iteration,
    Rank,
    SpeedChange,
    StepMarker,
    TimeSlices,
)
from traceprobe.records.replay import COLUMNS, Replay
from traceprobe.records.summary import Nanoseconds
from traceprobe.timeline import collectives, partition, replay
from traceprobe.timeline.device_timeline import DeviceTimeline
from traceprobe.timeline.intervals import measure_between, merge
from traceprobe.timeline.long_iterations import LongIterations
from traceprobe.timeline.rank_collectives import RankCollectives
from traceprobe.timeline.stream_needs import KINDS
from traceprobe.timeline.time_slices import find_time_slices

MAX_GAPS = 50
_LATER = ("line", "group", "start_ns", "end_ns", "ops", *replay.COMMUNICATION)
"""Columns of a replay that older reports lack."""
_EVIDENCE = {
    "idle_data_wait": "the step thread waits for data",
    "idle_host": "the launch came late: host code",
    "idle_sync": "the host is inside a synchronising call",
    "idle_latency": "launched in time, started later",
    "idle_profiler": "the profiler is at work",
    "idle_unexplained": "no host rows explain it",
}
_HELD = "launched in time, and nothing recorded held it up"


def origin(trace: Trace) -> int:
    """Time zero of a trace's report: its first GPU op, host call or range.

    A range counts from no longer before the first op or call than all of these last: one that is
    damaged, or open since the program began, would make all times long.
    """
    rows = [each for each in (trace.gpu_ops, trace.host_calls) if len(each)]
    first = min(int(each["t0"].to_numpy().min()) for each in rows)
    last = max(int(each["t1"].to_numpy().max()) for each in rows)
    since = max(2 * first - last, int(np.iinfo(np.int64).min))
    begins, ends = (trace.host_ranges[c].to_numpy() for c in ("t0", "t1"))
    return int(np.maximum(begins[ends >= since], since).min(initial=first))


def rank_record(
    account: DeviceTimeline,
    trace: Trace,
    device: Device,
    groups: Sequence[collectives.CollectiveGroup],
    long: LongIterations | None,
) -> Rank:
    """One device of one process as a record, open where it takes the run to know.

    Args:
        groups: its collectives by operation and size.
        long: iterations that do more than the others.
    """
    zero = origin(trace)
    marker = account.process.marker
    on_cpu = device.kind == "cpu"
    slices = None if on_cpu else find_time_slices(account.ops, account.index[account.used])
    return Rank(
        rank=UNKNOWN,
        pid=account.process.pid,
        device=msgspec.convert(device, DeviceInfo, from_attributes=True),
        step_marker=None
        if marker is None
        else StepMarker(
            kind=marker.kind,
            pattern=marker.pattern,
            count=len(marker.starts),
            confidence=marker.confidence,
            per_iteration=marker.per_iteration,
        ),
        iterations=_iterations(account, zero),
        summary=rank_summary(account, trace, groups, on_cpu=on_cpu),
        gaps=_gaps(account, trace.names, zero),
        input=UNKNOWN,
        speed=UNSET
        if account.speed is None
        else msgspec.convert(account.speed, SpeedChange, from_attributes=True),
        slices=UNSET
        if slices is None
        else msgspec.convert(slices, TimeSlices, from_attributes=True),
        long=UNSET if long is None else _long(account, long),
    )


def _long(account: DeviceTimeline, long: LongIterations) -> records.LongIterations:
    rest = np.setdiff1d(np.flatnonzero(account.used), long.windows)
    return records.LongIterations(
        indices=account.index[long.windows].tolist(),
        every=long.every,
        once=long.once,
        extra_ns=long.extra_ns,
        extra_partition_ns=dict(long.extra),
        more_work=dict(long.more_work),
        timed_long=long.beside or UNSET,
        timed_steps=long.timed or UNSET,
        period=UNSET if long.period is None else long.period,
        regular_ms=round(float(np.diff(account.edges)[rest].mean()) / 1e6, 6),
    )


def completed_rank(
    record: Rank,
    rank: int,
    source: int,
    exposed_wait: Int64s | None,
    stage_wait: Int64s | None,
    footprint: RankCollectives,
    groups: Sequence[collectives.CollectiveGroup],
) -> Rank:
    """A record with what the run says of it.

    Args:
        rank: its number. source: index of the input file.
        exposed_wait: time per window spent waiting for other ranks, where known.
        stage_wait: time per window spent waiting in messages between two ranks, where there are
            any.
        footprint: what the other ranks were compared with.
        groups: its collectives, compared with those of the other ranks.
    """
    summary = record.summary
    steps = summary.iterations_used
    counted = record.device.multiprocessors is not None  # else a grid is no number of blocks
    shown = [
        communication.collective_record(g, steps, channels=counted)
        for g in groups[:MAX_COLLECTIVES]
    ]
    summary = replace(summary, collectives=shown)
    iterations = record.iterations
    if stage_wait is not None and summary.communication is not None:
        waited = int(stage_wait[footprint.chosen].sum())
        told = replace(summary.communication, stage_wait_ns=waited)
        summary = replace(summary, communication=told)
    if exposed_wait is not None:
        if summary.communication is not None:
            waited = int(exposed_wait[footprint.chosen].sum())
            told = replace(summary.communication, skew_exposed_ns=waited)
            summary = replace(summary, communication=told)
        windows = iter(exposed_wait[footprint.index != UNKNOWN].tolist())
        iterations = [
            i if i.start_ns is None else replace(i, skew_exposed_ns=next(windows))
            for i in iterations
        ]
    return replace(record, rank=rank, input=source, iterations=iterations, summary=summary)


def _iterations(account: DeviceTimeline, zero: int) -> list[Iteration]:
    process, marker = account.process, account.process.marker
    if marker is None:
        return []
    window = {k: w for w, k in enumerate(account.index.tolist())}
    records = []
    for k, label in enumerate(marker.labels):
        w = window.get(k)
        asked = int(process.asked[k])
        records.append(
            Iteration(
                index=k,
                label=label,
                start_ns=None if w is None else int(account.edges[w]) - zero,
                end_ns=None if w is None else int(account.edges[w + 1]) - zero,
                coverage=round(int(process.recorded[k]) / asked, 4) if asked else None,
                used=account.reasons[k] is None and w is not None,
                skip_reason=account.reasons[k] or (None if w is not None else SKIPPED_AS_EMPTY),
                collectives=int(account.collectives[k]),
                launches=int(process.launches[k]),
                partition_ns=None if w is None else _row(account, account.exclusive, w),
                busy_ns=None if w is None else _row(account, account.busy, w),
            )
        )
    return records


def _row(account: DeviceTimeline, columns: partition.Columns, window: int) -> Nanoseconds:
    return {
        name: int(values[window]) if name in account.observed else None
        for name, values in columns.items()
    }


def _gaps(account: DeviceTimeline, names: Sequence[str], zero: int) -> list[Gap]:
    """The longest idle gaps inside the account's windows."""
    gaps = account.gaps
    window = np.searchsorted(account.edges, gaps.t0, "right") - 1
    end = np.append(account.edges[1:], account.edges[-1])[np.maximum(window, 0)]
    # One that reaches beyond its window is the pause after it; the last one is ended by no op.
    inside = (window >= 0) & (gaps.t1 <= end) & (gaps.after != gaps.before)
    if len(account.index):  # nor does one in a pause belong to any
        inside &= np.append(account.index, UNKNOWN)[np.maximum(window, 0)] != UNKNOWN
    order = np.lexsort((gaps.t0, gaps.t0 - gaps.t1))
    rows = order[inside[order]][:MAX_GAPS]
    name = account.ops["name"].to_numpy()
    lasts = gaps.t1 - gaps.t0
    held = (2 * (gaps.t1 - gaps.held_from) > lasts) & bool(account.held.any())
    turns = merge(*account.awaits_device.values())
    elsewhere = 2 * measure_between(turns, gaps.t0, gaps.t1) > lasts
    return [
        Gap(
            start_ns=int(gaps.t0[i]) - zero,
            end_ns=int(gaps.t1[i]) - zero,
            iteration=_known(account.index[w]) if len(account.index) else None,
            cause=account.gap_causes[i],
            evidence=AWAITS_DEVICE
            if elsewhere[i]
            else _HELD
            if held[i]
            else _EVIDENCE[account.gap_causes[i]],
            before=None
            if gaps.before[i] == UNKNOWN
            else truncated(names[name[gaps.before[i]]], MAX_NAME),
            after=truncated(names[name[gaps.after[i]]], MAX_NAME),
        )
        for i, w in zip(rows.tolist(), window[rows].tolist(), strict=True)
    ]


def _known(number: int) -> int | None:
    return None if number == UNKNOWN else int(number)


def build_replay(account: DeviceTimeline, trace: Trace) -> Replay | UnsetType:
    """The last used iterations of a device; UNSET where there are too few, or no launches."""
    schedule = replay.schedule(account, trace.names)
    if schedule is None:
        return UNSET
    table = schedule.columns.with_columns(pl.col("start_ns", "end_ns") - origin(trace))
    names, name = np.unique(table["name"].to_numpy(), return_inverse=True)
    columns: dict[str, Any] = {column: table[column].to_list() for column in (*COLUMNS, *_LATER)}
    columns |= {each: table[each].to_list() for each in replay.NOT_SLOWED if table[each].sum()}
    return Replay(
        iterations=columns["iteration"][-1] + 1,
        latency_ns=schedule.latency_ns,
        kinds=list(KINDS),
        **columns,
        names=[trace.names[number] for number in names.tolist()],
        name=name.tolist(),
        more_rows=schedule.more_rows.tolist(),
        more_needs=schedule.more_needs.tolist(),
        recorded_needs=schedule.recorded,
        inferred_needs=schedule.inferred,
        unresolved_needs=schedule.unresolved,
    )
