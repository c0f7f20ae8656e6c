"""Accounts of devices to the records of the report.

A record is made of one device alone, and left open where it takes the other ranks to know; `closed`
adds that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import polars as pl
from msgspec import UNSET
from msgspec.structs import replace

from traceprobe.model.events import UNKNOWN, Call, Device, Int64s, Kind, Trace
from traceprobe.model.taxonomy import COMPUTE_PHASES, SHARE_CLASSES, Phase
from traceprobe.pipeline import communication, host
from traceprobe.pipeline import replay_rank as replay
from traceprobe.records import report as result
from traceprobe.timeline import collectives, kernel_classes, partition
from traceprobe.timeline.collective_waits import CollectiveWaits
from traceprobe.timeline.device_timeline import DeviceTimeline
from traceprobe.timeline.rank_collectives import summary_windows as summarised
from traceprobe.timeline.timeline_view import longest_window, representative_window, timeline_view
from traceprobe.verdict.thresholds import FIXED

MAX_GAPS = 50
MAX_KERNELS = 15
MAX_KERNELS_OF_A_PHASE = 6
MAX_DETAIL = 160
MAX_COLLECTIVES = 20
_SUMMARISED = ("name", "kind", "phase", "t0", "t1", "launch_t1", "thread", "bytes", "pageable")
"""Columns of the ops that the summary is made of."""
_EVIDENCE = {
    "idle_data_wait": "the step thread waits for data",
    "idle_host": "the launch came late: host code",
    "idle_sync": "the host is inside a synchronising call",
    "idle_latency": "launched in time, started later",
    "idle_profiler": "the profiler is at work",
    "idle_unexplained": "no host rows explain it",
}


def origin(trace: Trace) -> int:
    """Time zero of a trace's report: its first GPU op or host call."""
    starts = [f["t0"].min() for f in (trace.gpu_ops, trace.host_calls) if len(f)]
    return int(min(s for s in starts if isinstance(s, int)))


def rank_record(
    account: DeviceTimeline,
    trace: Trace,
    device: Device,
    groups: Sequence[collectives.CollectiveGroup],
) -> result.Rank:
    """One device of one process as a record, open where it takes the run to know.

    Args:
        groups: its collectives by operation and size.
    """
    zero = origin(trace)
    typical, longest = representative_window(account), longest_window(account)
    marker = account.process.marker
    return result.Rank(
        rank=UNKNOWN,
        pid=account.process.pid,
        device=result.DeviceInfo(
            index=device.index,
            name=device.name,
            kind=_device_kind(device),
            capability=device.capability,
            multiprocessors=device.multiprocessors,
            memory_bytes=device.memory_bytes,
            warp_size=device.warp_size,
        ),
        step_marker=None
        if marker is None
        else result.StepMarker(
            kind=marker.kind,
            pattern=marker.pattern,
            count=len(marker.starts),
            confidence=marker.confidence,
        ),
        iterations=_iterations(account, zero),
        summary=_summary(account, trace, groups, on_cpu=device.kind == "cpu"),
        gaps=_gaps(account, trace.names, zero),
        timeline=_timeline(account, trace.names, zero, typical),
        worst=None
        if longest is None or longest == typical
        else _timeline(account, trace.names, zero, longest),
        input=UNKNOWN,
        replay=UNSET if device.kind == "cpu" else replay.record(account),
    )


def closed(
    record: result.Rank,
    rank: int,
    source: int,
    exposed_wait: Int64s | None,
    summarised: Int64s,
    groups: Sequence[collectives.CollectiveGroup],
) -> result.Rank:
    """A record with what the run says of it.

    Args:
        rank: its number. source: index of the input file.
        exposed_wait: time per window spent waiting for other ranks, where known.
        summarised: indices of the windows of the summary.
        groups: its collectives, compared with those of the other ranks.
    """
    summary = record.summary
    steps = summary.iterations_used
    summary = replace(
        summary, collectives=[communication.record(g, steps) for g in groups[:MAX_COLLECTIVES]]
    )
    iterations = record.iterations
    if exposed_wait is not None:
        if summary.communication is not None:
            waited = int(exposed_wait[summarised].sum())
            told = replace(summary.communication, skew_exposed_ns=waited)
            summary = replace(summary, communication=told)
        windows = iter(exposed_wait.tolist())
        iterations = [
            i if i.start_ns is None else replace(i, skew_exposed_ns=next(windows))
            for i in iterations
        ]
    return replace(record, rank=rank, input=source, iterations=iterations, summary=summary)


def _device_kind(device: Device) -> result.DeviceKind:
    return "cpu" if device.kind == "cpu" else "gpu"


def _iterations(account: DeviceTimeline, zero: int) -> list[result.Iteration]:
    process, marker = account.process, account.process.marker
    if marker is None:
        return []
    window = {k: w for w, k in enumerate(account.index.tolist())}
    records = []
    for k, label in enumerate(marker.labels):
        w = window.get(k)
        asked = int(process.asked[k])
        records.append(
            result.Iteration(
                index=k,
                label=label,
                start_ns=None if w is None else int(account.edges[w]) - zero,
                end_ns=None if w is None else int(account.edges[w + 1]) - zero,
                coverage=round(int(process.recorded[k]) / asked, 4) if asked else None,
                used=account.reasons[k] is None and w is not None,
                skip_reason=account.reasons[k] or (None if w is not None else "no GPU work"),
                collectives=int(account.collectives[k]),
                launches=int(process.launches[k]),
                partition_ns=None if w is None else _row(account, account.exclusive, w),
                busy_ns=None if w is None else _row(account, account.busy, w),
            )
        )
    return records


def _row(account: DeviceTimeline, columns: partition.Columns, window: int) -> result.Nanoseconds:
    return {
        name: int(values[window]) if name in account.observed else None
        for name, values in columns.items()
    }


def _total(
    account: DeviceTimeline, columns: partition.Columns, chosen: Int64s
) -> result.Nanoseconds:
    return {
        name: int(values[chosen].sum()) if name in account.observed else None
        for name, values in columns.items()
    }


def _summary(
    account: DeviceTimeline,
    trace: Trace,
    groups: Sequence[collectives.CollectiveGroup],
    *,
    on_cpu: bool,
) -> result.Summary:
    length = np.diff(account.edges)
    steps = int(account.used.sum())
    chosen = summarised(account)
    window = int(length[chosen].sum())
    parts = _total(account, account.exclusive, chosen)
    inside = _inside(account, chosen)
    per_step = account.collectives[account.index[account.used]]
    return result.Summary(
        iterations_used=steps,
        step_ms=_step_times(length[chosen]) if steps else None,
        window_ns=window,
        partition_ns=parts,
        share=shares(parts, window),
        busy_ns=_total(account, account.busy, chosen),
        attributed_share=_attributed(inside),
        communication=_communication(account, chosen, groups, trace.origin.format),
        h2d=_host_to_device(account, chosen, inside),
        collectives_per_step=round(float(per_step.mean()), 3) if steps else None,
        coverage=_coverage(account),
        host=host.record(account, chosen, inside, trace.names),
        kernel_ns=None if on_cpu else kernel_classes.time_by_class(inside, trace.names),
        top_kernels=_top_kernels(inside, trace.names),
        collectives_left_out=max(len(groups) - MAX_COLLECTIVES, 0),
    )


def shares(parts: result.Nanoseconds, window: int) -> dict[str, float]:
    """The five shares of a partition; they sum to 1 but for rounding."""
    return {
        name: round(sum(parts[p] or 0 for p in members) / window, 6) if window else 0.0
        for name, members in SHARE_CLASSES.items()
    }


def _step_times(length: Int64s) -> result.StepTimes:
    ms = length / 1e6
    p10, p50, p90 = np.percentile(ms, [10, 50, 90])
    return result.StepTimes(
        mean=round(float(ms.mean()), 6),
        p10=round(float(p10), 6),
        p50=round(float(p50), 6),
        p90=round(float(p90), 6),
    )


def _inside(account: DeviceTimeline, chosen: Int64s) -> pl.DataFrame:
    """Ops that start in the chosen windows; with the whole capture, all of them."""
    if not len(account.index):
        return account.ops
    at = np.searchsorted(account.edges, account.ops["t0"].to_numpy(), "right") - 1
    inside = np.isin(at, chosen)
    return account.ops if inside.all() else account.ops.select(_SUMMARISED).filter(inside)


def _attributed(ops: pl.DataFrame) -> float | None:
    length = pl.col("t1") - pl.col("t0")
    is_kernel, known = (
        pl.col("kind") == int(Kind.KERNEL),
        pl.col("phase") != int(Phase.UNATTRIBUTED),
    )
    sums = ops.select(
        total=length.filter(is_kernel).sum(), known=length.filter(is_kernel & known).sum()
    )
    total, attributed = sums.row(0)
    return round(attributed / total, 6) if total else None


def _communication(
    account: DeviceTimeline,
    chosen: Int64s,
    groups: Sequence[collectives.CollectiveGroup],
    form: str,
) -> result.Communication | None:
    if "communication" not in account.observed:
        return None
    steps = int(account.used.sum())
    total = int(account.busy["communication"][chosen].sum())
    overlapped = int(account.overlap["communication"][chosen].sum())
    return result.Communication(
        total_ns=total,
        exposed_ns=int(account.exclusive["communication"][chosen].sum()),
        overlapped_ns=overlapped,
        overlap_pct=round(100 * overlapped / total, 3) if total else 0.0,
        all_reduces_per_step=communication.all_reduces(groups, steps),
        bytes_per_step=communication.total_bytes(groups, steps),
        sizes=communication.why_unknown(groups, form),
    )


def _host_to_device(
    account: DeviceTimeline, chosen: Int64s, inside: pl.DataFrame
) -> result.HostToDevice | None:
    if "h2d" not in account.observed:
        return None
    total = int(account.busy["h2d"][chosen].sum())
    overlapped = int(account.overlap["h2d"][chosen].sum())
    copies = inside.filter((pl.col("kind") == int(Kind.H2D)) & (pl.col("bytes") > 0))
    size = int(copies["bytes"].sum())
    busy = int((copies["t1"] - copies["t0"]).sum())
    return result.HostToDevice(
        total_ns=total,
        exposed_ns=int(account.exclusive["h2d"][chosen].sum()),
        overlapped_ns=overlapped,
        overlap_pct=round(100 * overlapped / total, 3) if total else 0.0,
        bytes=size,
        gbps=round(size / busy, 3) if busy else None,
        pageable_bytes=int(copies.filter(pl.col("pageable"))["bytes"].sum()),
    )


def _coverage(account: DeviceTimeline) -> float | None:
    process = account.process
    if process.marker is not None and account.used.any():
        k = account.index[account.used]
        asked, recorded = int(process.asked[k].sum()), int(process.recorded[k].sum())
    else:
        work = process.calls.select("call", "recorded").filter(
            pl.col("call").is_in([int(Call.LAUNCH), int(Call.GRAPH_LAUNCH), int(Call.COPY)])
        )
        asked, recorded = len(work), int(work["recorded"].sum())
    return round(recorded / asked, 4) if asked else None


def _top_kernels(ops: pl.DataFrame, names: Sequence[str]) -> list[result.KernelShare]:
    """The kernels with the most time, and those with the most time of each phase."""
    chosen = ops.select("name", "kind", "phase", "t0", "t1").filter(
        pl.col("kind").is_in([int(Kind.KERNEL), int(Kind.COMM)])
    )
    phase = pl.when(pl.col("kind") == int(Kind.COMM)).then(-1).otherwise(pl.col("phase"))
    groups = chosen.group_by("name", phase.alias("label")).agg(
        count=pl.len(), total=(pl.col("t1") - pl.col("t0")).sum()
    )
    of_phase = dict(groups.group_by("label").agg(pl.col("total").sum()).rows())
    ordered = sorted(
        groups.rows(named=True), key=lambda row: (-row["total"], names[row["name"]], row["label"])
    )
    listed: Counter[int] = Counter()
    top = []
    for place, row in enumerate(ordered):
        listed[row["label"]] += 1
        if place < MAX_KERNELS or listed[row["label"]] <= MAX_KERNELS_OF_A_PHASE:
            top.append(row)
    return [
        result.KernelShare(
            name=shorten(names[row["name"]]),
            phase="communication" if row["label"] < 0 else COMPUTE_PHASES[row["label"]],
            count=row["count"],
            total_ns=row["total"],
            mean_ns=round(row["total"] / row["count"], 1),
            phase_share=round(row["total"] / max(of_phase[row["label"]], 1), 6),
            tensor_cores=kernel_classes.TENSOR_CORES.get(
                kernel_classes.kernel_class(names[row["name"]])
            )
            if row["label"] >= 0
            else None,
        )
        for row in top
    ]


def _gaps(account: DeviceTimeline, names: Sequence[str], zero: int) -> list[result.Gap]:
    """The longest idle gaps inside the account's windows."""
    gaps = account.gaps
    low, high = int(account.edges[0]), int(account.edges[-1])
    inside = (gaps.t0 >= low) & (gaps.t1 <= high)
    order = np.lexsort((gaps.t0, gaps.t0 - gaps.t1))
    rows = order[inside[order]][:MAX_GAPS]
    name = account.ops["name"].to_numpy()
    window = np.searchsorted(account.edges, gaps.t0[rows], "right") - 1
    return [
        result.Gap(
            start_ns=int(gaps.t0[i]) - zero,
            end_ns=int(gaps.t1[i]) - zero,
            iteration=int(account.index[w]) if len(account.index) else None,
            cause=account.gap_causes[i],
            evidence=_EVIDENCE[account.gap_causes[i]],
            before=shorten(names[name[gaps.before[i]]]),
            after=shorten(names[name[gaps.after[i]]]),
        )
        for i, w in zip(rows.tolist(), window.tolist(), strict=True)
    ]


def _timeline(
    account: DeviceTimeline, names: Sequence[str], zero: int, window: int
) -> result.Timeline:
    picture = timeline_view(account, names, window)
    return result.Timeline(
        iteration=picture.index,
        start_ns=picture.t0 - zero,
        duration_ns=picture.t1 - picture.t0,
        merged=picture.merged,
        lanes=[
            result.Lane(
                name=lane.name,
                start_ns=(lane.t0 - picture.t0).tolist(),
                duration_ns=(lane.t1 - lane.t0).tolist(),
                label=lane.label,
                detail=[shorten(d) for d in lane.detail],
            )
            for lane in picture.lanes
        ],
    )


def shorten(name: str) -> str:
    """A name that fits a table; kernel names run to kilobytes of template arguments."""
    return name if len(name) <= MAX_DETAIL else name[: MAX_DETAIL - 1] + "…"


def run_record(
    ranks: Sequence[result.Rank], matched: CollectiveWaits | None, world_size: int | None
) -> result.Run | None:
    """What the ranks say together; None for one rank of a run that is not distributed."""
    if len(ranks) < 2 and (world_size or 1) < 2:
        return None
    size = max(world_size or 0, len(ranks))
    if matched is None:
        return result.Run(
            world_size=size,
            collectives_matched=0,
            transfer_ns=None,
            skew_ns=None,
            straggler_rank=None,
            straggler_cause=None,
        )
    steps = matched.steps
    skew = round(sum(matched.wait_ns) / len(ranks) / steps)
    slowest, cause = matched.mostly_last
    if slowest is not None:
        summary = ranks[slowest].summary
        if skew <= FIXED.straggling * summary.window_ns / max(summary.iterations_used, 1):
            slowest = None
    return result.Run(
        world_size=size,
        collectives_matched=matched.count,
        transfer_ns=round(matched.transfer_ns / steps),
        skew_ns=skew,
        straggler_rank=None if slowest is None else ranks[slowest].rank,
        straggler_cause=None if slowest is None else cause,
        skew_causes=matched.causes,
    )
