"""Totals over the used iterations of a device, to the record of the report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import islice

import msgspec
import numpy as np
import polars as pl
from msgspec import UNSET, UnsetType

from traceprobe.formatting import truncated
from traceprobe.model.codes import Call, Int64s, Kind
from traceprobe.model.events import Trace
from traceprobe.model.kernel_classes import on_matrix_units
from traceprobe.model.sidecar import RECORDED, CompilerNotes
from traceprobe.model.taxonomy import COMPUTE_PHASES, SHARE_CLASSES, Phase
from traceprobe.pipeline import communication
from traceprobe.pipeline.build_gpu_metrics import gpu_metrics
from traceprobe.pipeline.build_launches import launches
from traceprobe.pipeline.host_activity import host_activity
from traceprobe.records.double_precision import DoublePrecision
from traceprobe.records.embedding_table import MOST_TABLES, EmbeddingTable
from traceprobe.records.forward_only import ForwardOnly
from traceprobe.records.logits import Logits
from traceprobe.records.masked_attention import MaskedAttention
from traceprobe.records.repeated_backward import RepeatedBackward
from traceprobe.records.repeated_collectives import RepeatedCollectives
from traceprobe.records.summary import (
    Communication,
    HostToDevice,
    KernelShare,
    Nanoseconds,
    StepTimes,
    Summary,
    UnfusedAttention,
)
from traceprobe.records.tiny_kernels import TinyKernels
from traceprobe.records.unused_gradients import UnusedGradients
from traceprobe.timeline import collectives, kernel_time, partition
from traceprobe.timeline.attention import unfused_attention
from traceprobe.timeline.beside_communication import beside_ns
from traceprobe.timeline.device_timeline import DeviceTimeline
from traceprobe.timeline.double_precision import double_kernels
from traceprobe.timeline.embedding_tables import embedding_tables
from traceprobe.timeline.forward_only import forward_only
from traceprobe.timeline.intervals import Intervals, count_begun
from traceprobe.timeline.logits import logits
from traceprobe.timeline.masked_attention import masked_attention
from traceprobe.timeline.micro_batches import micro_batches
from traceprobe.timeline.rank_collectives import summary_windows as summarised
from traceprobe.timeline.repeated_backward import repeated_backward
from traceprobe.timeline.repeated_collectives import Large, repeated_collectives
from traceprobe.timeline.tiny_kernels import tiny_kernels
from traceprobe.timeline.unused_gradients import unused_gradients
from traceprobe.verdict.thresholds import FIXED

MAX_KERNELS = 15
MAX_KERNELS_OF_A_PHASE = 6
MAX_SPENT = 3
"""Names that the time of some kernels is told by: operators, kernels, lines."""
MAX_NAME = 160
MAX_KERNEL = 600
"""Characters of a name, and of that of a kernel, which can have kilobytes of template arguments."""
MAX_COLLECTIVES = 20
MAX_DOUBLE = 20
"""Names of kernels in double precision."""
_SUMMARISED = (
    *("name", "kind", "phase", "grid", "t0", "t1", "launch_t0", "launch_t1", "thread"),
    *("stream", "bytes", "pageable", "linked", "graph", "correlation"),
)
"""Columns of the ops that the summary is made of."""


def _total(account: DeviceTimeline, columns: partition.Columns, chosen: Int64s) -> Nanoseconds:
    return {
        name: int(values[chosen].sum()) if name in account.observed else None
        for name, values in columns.items()
    }


def rank_summary(
    account: DeviceTimeline,
    trace: Trace,
    groups: Sequence[collectives.CollectiveGroup],
    *,
    on_cpu: bool,
) -> Summary:
    """Totals of a device over its used iterations, or the whole capture without any.

    Args:
        groups: its collectives by operation and size.
    """
    length = np.diff(account.edges)
    steps = int(account.used.sum())
    chosen = summarised(account)
    window = int(length[chosen].sum())
    parts = _total(account, account.exclusive, chosen)
    inside = _inside(account, chosen)
    per_step = account.collectives[account.index[account.used]]
    return Summary(
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
        host=host_activity(account, chosen, inside, trace.names, on_cpu=on_cpu),
        kernel_ns=None
        if on_cpu
        else kernel_time.time_by_class(account.ops, trace.names, account.edges, chosen),
        attention=UNSET if on_cpu else _attention(account, inside, trace),
        double_precision=UNSET if on_cpu else _double_precision(account, inside, trace),
        embedding_tables=UNSET if on_cpu else _embedding_tables(account, trace),
        forward_only=UNSET if on_cpu else _forward_only(account, inside, trace),
        logits=UNSET if on_cpu else _logits(account, inside, trace),
        masked_attention=UNSET if on_cpu else _masked_attention(account, inside, trace),
        micro_batches=UNSET if on_cpu else _micro_batches(account, chosen),
        repeated_backward=UNSET if on_cpu else _repeated_backward(account, inside, trace),
        repeated_collectives=_repeated_collectives(account, chosen),
        tiny_kernels=UNSET if on_cpu else _tiny_kernels(account, inside, trace),
        unused_gradients=UNSET if on_cpu else _unused_gradients(account, inside, trace),
        top_kernels=_top_kernels(inside, trace.names, account.sets["communication"]),
        collectives_left_out=max(len(groups) - MAX_COLLECTIVES, 0),
        launches=UNSET if on_cpu else launches(account, chosen, inside),
        gpu_metrics=gpu_metrics(account, trace),
    )


def shares(parts: Nanoseconds, window: int) -> dict[str, float]:
    """The five shares of a partition; they sum to 1 but for rounding."""
    return {
        name: round(sum(parts[p] or 0 for p in members) / window, 6) if window else 0.0
        for name, members in SHARE_CLASSES.items()
    }


def _step_times(length: Int64s) -> StepTimes:
    ms = length / 1e6
    times = [ms.mean(), *np.percentile(ms, [10, 50, 90])]
    mean, p10, p50, p90 = (round(float(time), 6) for time in times)
    return StepTimes(mean=mean, p10=p10, p50=p50, p90=p90)


def _inside(account: DeviceTimeline, chosen: Int64s) -> pl.DataFrame:
    """Ops that start in the chosen windows; with the whole capture, all of them."""
    if not len(account.index):
        return account.ops
    at = count_begun(account.edges, account.ops["t0"].to_numpy()) - 1
    inside = np.isin(at, chosen)
    return account.ops if inside.all() else account.ops.select(_SUMMARISED).filter(inside)


def _attributed(ops: pl.DataFrame) -> float | None:
    kind, phase, t0, t1 = (ops[c].to_numpy() for c in ("kind", "phase", "t0", "t1"))
    length = np.where(kind == int(Kind.KERNEL), t1 - t0, 0)
    total = int(length.sum())
    attributed = int(length[phase != int(Phase.UNATTRIBUTED)].sum())
    return round(attributed / total, 6) if total else None


def _communication(
    account: DeviceTimeline,
    chosen: Int64s,
    groups: Sequence[collectives.CollectiveGroup],
    form: str,
) -> Communication | None:
    if "communication" not in account.observed:
        return None
    steps = int(account.used.sum())
    total = int(account.busy["communication"][chosen].sum())
    overlapped = int(account.overlap["communication"][chosen].sum())
    return Communication(
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
) -> HostToDevice | None:
    if "h2d" not in account.observed:
        return None
    total = int(account.busy["h2d"][chosen].sum())
    overlapped = int(account.overlap["h2d"][chosen].sum())
    copies = inside.select("kind", "bytes", "pageable", "t0", "t1").filter(
        (pl.col("kind") == int(Kind.H2D)) & (pl.col("bytes") > 0)
    )
    size = int(copies["bytes"].sum())
    busy = int((copies["t1"] - copies["t0"]).sum())
    return HostToDevice(
        total_ns=total,
        exposed_ns=int(account.exclusive["h2d"][chosen].sum()),
        overlapped_ns=overlapped,
        overlap_pct=round(100 * overlapped / total, 3) if total else 0.0,
        bytes=size,
        gbps=round(size / busy, 3) if busy else None,
        pageable_bytes=int(copies.filter(pl.col("pageable"))["bytes"].sum()),
        returned_bytes=_returned_bytes(inside) or UNSET,
    )


def _returned_bytes(ops: pl.DataFrame) -> int:
    """Bytes that go to the host in forward passes and come back in backward passes."""
    sized = ops.filter(pl.col("bytes") > 0).select("kind", "phase", "bytes")

    def copied(kind: Kind, *phases: Phase) -> int:
        chosen = (pl.col("kind") == int(kind)) & pl.col("phase").is_in([int(p) for p in phases])
        return int(sized.filter(chosen)["bytes"].sum())

    return min(copied(Kind.D2H, Phase.FORWARD), copied(Kind.H2D, Phase.BACKWARD, Phase.RECOMPUTE))


def _attention(
    account: DeviceTimeline, inside: pl.DataFrame, trace: Trace
) -> UnfusedAttention | UnsetType:
    operators = account.process.operators
    found = unfused_attention(inside, operators, trace.names, trace.operands)
    if not found.count:
        return UNSET
    return UnfusedAttention(
        count=found.count,
        class_ns=found.ns,
        fused_ns=found.fused_ns,
        hidden_ns=found.hidden_ns,
    )


def _logits(account: DeviceTimeline, inside: pl.DataFrame, trace: Trace) -> Logits | UnsetType:
    found = logits(inside, account.process.operators, trace.names, trace.operands)
    return UNSET if found is None else msgspec.convert(found, Logits, from_attributes=True)


def _masked_attention(
    account: DeviceTimeline, inside: pl.DataFrame, trace: Trace
) -> MaskedAttention | UnsetType:
    operators = account.process.operators
    found = masked_attention(inside, operators, trace.names, trace.operands)
    return UNSET if found is None else msgspec.convert(found, MaskedAttention, from_attributes=True)


def _embedding_tables(account: DeviceTimeline, trace: Trace) -> list[EmbeddingTable] | UnsetType:
    found = embedding_tables(account.process.operators, trace.names, trace.operands)
    listed = [
        EmbeddingTable(
            rows=table.rows,
            width=table.width,
            tables=table.tables,
            looked_up=round(table.looked_up, 3),
            part=round(table.part, 6),
        )
        for table in found[:MOST_TABLES]
    ]
    return listed or UNSET


def _forward_only(
    account: DeviceTimeline, inside: pl.DataFrame, trace: Trace
) -> ForwardOnly | UnsetType:
    found = forward_only(inside, account.process, trace.names)
    if found is None:
        return UNSET
    return ForwardOnly(
        total_ns=found.ns,
        kernels=found.kernels,
        iterations=found.iterations,
        operators=_most(found.operators, MAX_NAME),
        lines=_most(found.lines, MAX_NAME),
    )


def _micro_batches(account: DeviceTimeline, chosen: Int64s) -> int | UnsetType:
    found = micro_batches(_used(account, chosen))
    return UNSET if found is None else found


def _used(account: DeviceTimeline, chosen: Int64s) -> pl.DataFrame:
    """Operations that were launched in the used iterations."""
    used = account.index[chosen].tolist() if len(account.index) else []
    return account.ops.filter(pl.col("iteration").is_in(used))


def _repeated_backward(
    account: DeviceTimeline, inside: pl.DataFrame, trace: Trace
) -> RepeatedBackward | UnsetType:
    found = repeated_backward(inside, account.process, trace.names)
    if found is None:
        return UNSET
    return RepeatedBackward(total_ns=found.ns, kernels=found.kernels, iterations=found.iterations)


def _repeated_collectives(
    account: DeviceTimeline, chosen: Int64s
) -> RepeatedCollectives | UnsetType:
    large = Large(FIXED.small_message, FIXED.small_message_part, FIXED.unlike_messages)
    found = repeated_collectives(_used(account, chosen), large)
    if found is None:
        return UNSET
    return RepeatedCollectives(
        passes=found.passes,
        reduced_ns=found.reduced_ns,
        gathered_ns=found.gathered_ns,
        all_ns=found.all_ns,
    )


def _tiny_kernels(
    account: DeviceTimeline, inside: pl.DataFrame, trace: Trace
) -> TinyKernels | UnsetType:
    longest_ns = int(FIXED.tiny_kernel_us * 1e3)
    found = tiny_kernels(inside, account.idle, account.process, trace.names, longest_ns)
    if found is None:
        return UNSET
    return TinyKernels(
        count=found.count,
        total_ns=found.ns,
        gap_ns=found.gap_ns,
        names=_most(found.names, MAX_KERNEL),
        lines=_most(found.lines, MAX_NAME),
    )


def _unused_gradients(
    account: DeviceTimeline, inside: pl.DataFrame, trace: Trace
) -> UnusedGradients | UnsetType:
    found = unused_gradients(inside, account.process, trace.names)
    if found is None:
        return UNSET
    return UnusedGradients(
        total_ns=found.ns,
        kernels=found.kernels,
        gradients=found.gradients,
        iterations=found.iterations,
    )


def _most(spent: Mapping[str, int], characters: int) -> dict[str, int]:
    """The first of what is sorted by time already, with names that fit into a report."""
    return {truncated(name, characters): ns for name, ns in islice(spent.items(), MAX_SPENT)}


def _double_precision(
    account: DeviceTimeline, inside: pl.DataFrame, trace: Trace
) -> DoublePrecision | UnsetType:
    noted = _noted_double(trace)
    found = double_kernels(inside, account.process.operators, trace.names, trace.operands, noted)
    if not found.ns:
        return UNSET
    names = [truncated(trace.names[number], MAX_KERNEL) for number in found.names[:MAX_DOUBLE]]
    return DoublePrecision(class_ns=found.ns, kernels=names, typed=found.typed)


def _noted_double(trace: Trace) -> list[str] | None:
    """Compiled kernels in 64 bits, where the recording read the texts of those."""
    recorded = trace.metadata.get(RECORDED)
    compiler = None if recorded is None else recorded.get("compiler")
    notes = None if compiler is None else msgspec.convert(compiler, CompilerNotes)
    return None if notes is None or notes.double is UNSET else notes.double


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


def _top_kernels(
    ops: pl.DataFrame, names: Sequence[str], communication: Intervals
) -> list[KernelShare]:
    """The kernels with the most time, and those with the most time of each phase."""
    chosen = ops.select("name", "kind", "phase", "t0", "t1").filter(
        pl.col("kind").is_in([int(Kind.KERNEL), int(Kind.COMM)])
    )
    phase = pl.when(pl.col("kind") == int(Kind.COMM)).then(-1).otherwise(pl.col("phase"))
    groups = (
        chosen.with_columns(beside=beside_ns(chosen, communication))
        .group_by("name", phase.alias("label"))
        .agg(
            count=pl.len(),
            total=(pl.col("t1") - pl.col("t0")).sum(),
            beside=pl.col("beside").sum(),
        )
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
        KernelShare(
            name=truncated(names[row["name"]], MAX_KERNEL),
            phase="communication" if row["label"] < 0 else COMPUTE_PHASES[row["label"]],
            count=row["count"],
            total_ns=row["total"],
            mean_ns=round(row["total"] / row["count"], 1),
            phase_share=round(row["total"] / max(of_phase[row["label"]], 1), 6),
            tensor_cores=on_matrix_units(names[row["name"]]) if row["label"] >= 0 else None,
            beside_communication_ns=row["beside"]
            if row["label"] >= 0 and len(communication.t0)
            else UNSET,
        )
        for row in top
    ]
