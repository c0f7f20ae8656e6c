"""Kineto columns to the event model: GPU ops with their launch sites, calls, ranges.

A GPU op is linked to its launch by correlation id, then by the External id of the operator that
made it; what stays unlinked keeps its time and has no launch site. In a run without a GPU the
outermost operators of each thread are the device's work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from traceprobe import formatting
from traceprobe.errors import EmptyTrace
from traceprobe.ingest.clocks import align_clocks
from traceprobe.ingest.collective_metadata import collective_operations
from traceprobe.ingest.event_kinds import (
    api_name,
    call_kind,
    copy_kind,
    is_blocking,
    kernel_kind,
    stream_event,
    waits_for,
)
from traceprobe.ingest.inference import warn_of_inference
from traceprobe.ingest.joins import (
    Table,
    empty_table,
    find_rows,
    keep_rows,
    per_name,
    take_rows,
    union_of_rows,
)
from traceprobe.ingest.kineto.after_update import after_updates
from traceprobe.ingest.kineto.categories import WORK
from traceprobe.ingest.kineto.collective_ranges import operations_by_ranges
from traceprobe.ingest.kineto.columns import EventColumns
from traceprobe.ingest.kineto.dialects import OF_CPU, PRODUCT, cpu_work, gpu_operator, legacy_ops
from traceprobe.ingest.kineto.facts import (
    block_counts,
    gpu_device,
    profiled,
    rank_of_pid,
    trace_metadata,
    why_empty,
    why_missing,
)
from traceprobe.ingest.kineto.frames import short_names
from traceprobe.ingest.kineto.gpu_samples import gpu_samples
from traceprobe.ingest.kineto.kernel_counters import CounterEvent, kernel_counters
from traceprobe.ingest.kineto.ranges import host_ranges, host_work, operator_sources
from traceprobe.ingest.kineto.recorded_passes import in_recorded_nodes
from traceprobe.ingest.kineto.sync_notes import of_processes
from traceprobe.ingest.plausibility import (
    drop_duplicates,
    drop_overruns,
    plausible_sizes,
    warn_of_impossible_times,
    warn_of_overlaps,
)
from traceprobe.ingest.stream_events import stream_events
from traceprobe.ingest.untrusted_values import NAME_LENGTH, bounded_text
from traceprobe.model.codes import BACKWARD_NODES, UNKNOWN, Call, Int64s, Ints, Kind, Role
from traceprobe.model.events import (
    GPU_OPS,
    GPU_SAMPLES,
    HOST_CALLS,
    HOST_FRAMES,
    HOST_MODULES,
    HOST_OPERATORS,
    HOST_RANGES,
    HOST_WORK,
    KERNEL_COUNTERS,
    STREAM_EVENTS,
    Device,
    Origin,
    Trace,
    frame,
)
from traceprobe.model.kernel_classes import multiplies
from traceprobe.model.quality import Quality

if TYPE_CHECKING:
    import polars as pl

LAUNCHES = (int(Call.LAUNCH), int(Call.GRAPH_LAUNCH))


def build_trace(
    tables: dict[str, Table],
    columns: EventColumns,
    metadata: Mapping[str, Any],
    origin: Origin,
    quality: Quality,
    counted: Iterable[list[CounterEvent]] = (),
) -> Trace:
    """The trace of some tables; empties them, so that nothing is in memory twice for long.

    Args:
        columns: what the tables were collected from, with their names, threads and ranks.
        counted: all events once more, where kernels were counted instead of timed.

    Raises:
        EmptyTrace: no GPU work, and no operators of a training or under an annotation either.
    """
    names = [bounded_text(name, NAME_LENGTH) for name in columns.names]
    operators = tables.get("operators")
    pids = _host_pids(tables)
    if len(pids) > 1:
        quality.warn(
            "several-processes",
            f"The file holds {len(pids)} host processes; their GPU rows cannot be told apart.",
        )
    warn_of_inference(names, quality)
    annotation = (
        None if operators is None else operator_sources(operators, names, columns.categories)
    )
    ranges = host_ranges(tables, names, annotation, pids)
    role = _roles(operators, ranges, names)
    host_calls = _host_calls(tables.get("calls") or empty_table(*HOST_CALLS), names, role)
    counters = kernel_counters(counted, host_calls, operators, names)
    if len(counters["order"]):
        quality.warn(
            "kernels-counted",
            f"The profiler counted what {len(np.unique(counters['order']))} kernels do "
            "(`profiler_metrics`), and notes no times of kernels while it counts.",
        )
    does = per_name(host_calls["name"], names, lambda name: stream_event(api_name(name)))
    waits = stream_events(host_calls, does, of_processes(tables.get("syncs"), host_calls, pids))
    launches = int(np.isin(host_calls["call"], LAUNCHES).sum())
    kind, launching = "gpu", empty_table(*HOST_OPERATORS)
    if "gpu" in tables:
        gpu = _gpu_ops(tables["gpu"], names, host_calls, operators, pids)
        gpu["operation"] = operations_by_ranges(gpu, ranges, names)
    elif "legacy_gpu" in tables:
        gpu = legacy_ops(tables, names)
    elif (
        operators is not None
        and annotation is not None
        and (len(ranges["t0"]) or launches or _computes_on_cpu(operators, names, metadata))
    ):
        own = {c: v[annotation < 0] for c, v in operators.items()}
        (gpu, launching), kind = cpu_work(own, ranges, names, role), "cpu"
        if not len(gpu["t0"]):
            raise EmptyTrace(f"{origin.name}: {why_empty(metadata, None, launches)}")
        _warn_of_cpu(launches, gpu_operator(operators, ranges, names), metadata, quality)
    else:
        lost = quality.events_lost
        without = f"; {formatting.counted(lost, 'damaged event')} lost" if lost else ""
        raise EmptyTrace(f"{origin.name}: {why_empty(metadata, operators, launches)}{without}")
    work = host_work(operators if kind == "gpu" else None)
    if operators is not None and annotation is not None and kind == "gpu":
        own = {c: operators[c] for c in HOST_OPERATORS}
        launching = keep_rows(own, annotation < 0)  # those that are annotations are ranges
    host_operators = frame(HOST_OPERATORS, {c: launching[c] for c in HOST_OPERATORS})
    modules = frame(HOST_MODULES, dict(tables.get("modules") or empty_table(*HOST_MODULES)))
    frames = _frames(tables.get("frames") or empty_table(*HOST_FRAMES), names)
    sampled = tables.get("samples") if kind == "gpu" else None
    tables.clear()
    del operators
    host_calls["recorded"] = np.isin(
        host_calls["correlation"], gpu["correlation"][gpu["linked"]]
    ) & (host_calls["correlation"] != UNKNOWN)
    if kind == "gpu":
        gpu["grid"] = block_counts(gpu["grid"], gpu["device"], metadata)
        gpu = _plausible(gpu, host_calls, names, quality, processes=len(pids))
    samples = frame(
        GPU_SAMPLES, gpu_samples(sampled, gpu, quality), ("pid", "device", "metric", "t0")
    )
    ops = frame(GPU_OPS, gpu, ("t0", "t1", "stream", "correlation"))
    devices = [
        (int(p), int(d))
        for p, d in ops.select("pid", "device").unique().sort("pid", "device").rows()
    ]
    return Trace(
        origin=origin,
        names=names,
        gpu_ops=ops,
        host_calls=frame(HOST_CALLS, host_calls, ("t0", "t1", "thread")),
        host_ranges=frame(HOST_RANGES, ranges, ("t0", "t1", "thread", "name")),
        devices=tuple(
            gpu_device(metadata, p, d) if kind == "gpu" else Device(p, d, "CPU", kind)
            for p, d in devices
        ),
        quality=quality,
        rank_of=rank_of_pid(metadata, pids, columns.ranks),
        thread_names=columns.thread_names,
        profiled=profiled(metadata, columns.categories),
        metadata={**trace_metadata(metadata, quality), **columns.occupancy.facts()},
        host_operators=host_operators,
        host_modules=modules,
        operands=columns.operands.found,
        host_frames=frames,
        host_work=frame(HOST_WORK, work, ("t0", "t1", "thread")),
        stream_events=frame(STREAM_EVENTS, waits, ("pid", "t0", "correlation")),
        gpu_samples=samples,
        kernel_counters=frame(KERNEL_COUNTERS, counters, ("order",)),
    )


def _warn_of_cpu(
    launches: int, only_on_gpu: str | None, metadata: Mapping[str, Any], quality: Quality
) -> None:
    """Tell a run on the CPU from one whose GPU was not recorded."""
    if launches or only_on_gpu is not None:
        quality.warn(
            "gpu-rows-missing",
            f"{why_missing(metadata, launches, only_on_gpu)} The numbers describe the "
            "process's CPU threads.",
        )
    elif "truncated-file" in quality.warnings and metadata.get("deviceProperties"):
        quality.warn(
            "gpu-rows-missing",
            "The machine has a GPU, and the file ends before its rows, which come last: copy the "
            "whole file. The numbers describe the process's CPU threads.",
        )
    else:
        quality.warn(
            "cpu-run", "There is no GPU work: the report describes the process's CPU threads."
        )


def _plausible(
    gpu: dict[str, Any],
    calls: Mapping[str, Any],
    names: list[str],
    quality: Quality,
    *,
    processes: int,
) -> dict[str, Any]:
    """The ops once each, on the clock of the host, with sizes and times that can be."""
    gpu["bytes"] = plausible_sizes(gpu["bytes"])
    blocked = per_name(calls["name"], names, waits_for)
    gpu = drop_duplicates(gpu, quality)
    gpu = align_clocks(gpu, calls, blocked, quality)
    warn_of_impossible_times(gpu, quality)
    if processes == 1:
        gpu = drop_overruns(gpu, quality)
        warn_of_overlaps(gpu, quality)
    return gpu


def _frames(frames: Table, names: list[str]) -> pl.DataFrame:
    """The program's frames; new names for those whose files have whole paths."""
    used = {names[n]: n for n in np.unique(frames["name"]).tolist()}
    for name, short in short_names(used).items():
        frames["name"] = np.where(frames["name"] == used[name], len(names), frames["name"])
        names.append(short)
    return frame(HOST_FRAMES, dict(frames))


def _computes_on_cpu(operators: Table, names: list[str], metadata: Mapping[str, Any]) -> bool:
    """Whether a backward pass or a network was recorded: then nobody need annotate that it ran.

    On a machine with a GPU operators may have run there, unrecorded. Not where the CPU's own
    libraries ran as often as products did that any device has.
    """
    numbers, counts = np.unique(operators["name"], return_counts=True)
    ran = [names[i] for i in numbers.tolist()]
    if metadata.get("deviceProperties"):
        of_cpu = sum(n for name, n in zip(ran, counts, strict=True) if OF_CPU.match(name))
        products = sum(n for name, n in zip(ran, counts, strict=True) if PRODUCT.match(name))
        return bool(of_cpu and of_cpu >= products)
    return any(name.startswith(BACKWARD_NODES) or multiplies(name) for name in ran)


def _roles(
    operators: Table | None, ranges: Mapping[str, Any], names: list[str]
) -> Callable[[Ints, Ints], Ints]:
    """A function (thread, time) to Role.

    Autograd gives a backward operator a non-zero `Fwd thread id`, but for the nodes that sum
    gradients, which have no forward operator; a forward operator that runs inside one (activation
    recomputation) has a sequence number and `Fwd thread id` 0, unless the pass itself is recorded.
    """
    if operators is None:
        return lambda thread, time: np.full(len(time), Role.UNKNOWN, dtype=np.int8)
    node = per_name(operators["name"], names, lambda name: int(name.startswith(BACKWARD_NODES))) > 0
    backward = (operators["forward_thread"] > 0) | node
    forward = ~backward & (operators["sequence"] != UNKNOWN)
    forward &= ~in_recorded_nodes(operators, node, backward)
    covers = {
        (role, int(thread)): union_of_rows(operators, mask & (operators["thread"] == thread))
        for role, mask in ((Role.BACKWARD, backward), (Role.FORWARD, forward))
        for thread in np.unique(operators["thread"][mask])
    }
    for thread, runs in after_updates(operators, ranges, names).items():
        covers[Role.AFTER_UPDATE, thread] = runs

    def role(thread: Ints, time: Ints) -> Ints:
        result = np.full(len(time), Role.UNKNOWN, dtype=np.int8)
        for (value, owner), (starts, ends) in covers.items():  # forward last: it is the inner one
            inside = np.searchsorted(starts, time, "right") - 1
            hit = (thread == owner) & (inside >= 0)
            hit[hit] = ends[inside[hit]] > time[hit]
            result[hit] = value
        return result

    return role


def _host_pids(tables: Mapping[str, Table]) -> list[int]:
    found = [tables[g]["pid"] for g in ("calls", "operators", "ranges") if g in tables]
    pids = np.unique(np.concatenate([np.empty(0, dtype=np.int64), *found]))
    return [int(pid) for pid in pids] or [0]


def _host_calls(
    calls: Table, names: list[str], role: Callable[[Ints, Ints], Ints]
) -> dict[str, Any]:
    return {
        **calls,
        "call": per_name(calls["name"], names, lambda name: call_kind(api_name(name))),
        "blocking": per_name(calls["name"], names, is_blocking).astype(bool),
        "role": role(calls["thread"], calls["t0"]),
    }


def _gpu_ops(
    gpu: Table,
    names: list[str],
    calls: Mapping[str, Any],
    operators: Table | None,
    pids: list[int],
) -> dict[str, Any]:
    order = np.lexsort((calls["t0"], calls["call"] == Call.OTHER))
    call = _launching_calls(gpu, calls, order)
    linked = call != UNKNOWN
    site = {
        "launch_t0": take_rows(calls["t0"], call),
        "launch_t1": take_rows(calls["t1"], call),
        "thread": take_rows(calls["thread"], call),
        "role": np.where(linked, take_rows(calls["role"], call), Role.UNKNOWN),
        # Ids of other processes may need more bits than those of the calls.
        "pid": np.where(linked, take_rows(calls["pid"], call), np.int64(pids[0])),
    }
    if operators is not None:
        # Before October 2024 an unlinked row carried its own correlation id as External id.
        bogus = gpu["external"] == gpu["correlation"]
        wanted = np.where(linked | bogus, UNKNOWN, gpu["external"])
        op = find_rows(wanted, operators["external"], np.argsort(operators["t0"], kind="stable"))
        found = (op != UNKNOWN) & (take_rows(operators["t0"], op) <= gpu["t0"])
        for column, source in (("launch_t0", "t0"), ("launch_t1", "t0"), ("thread", "thread")):
            site[column] = np.where(found, take_rows(operators[source], op), site[column])
        backward = take_rows(operators["forward_thread"], op) > 0
        role = np.where(backward, int(Role.BACKWARD), int(Role.UNKNOWN))
        site["role"] = np.where(found, role, site["role"])
    kind = _kinds(gpu, names)
    by_name = collective_operations(kind, gpu["name"], names)
    same = (
        *("device", "stream", "name", "t0", "t1", "bytes"),
        *("correlation", "group", "group_size", "grid", "occupancy"),
    )
    return {
        **{c: gpu[c] for c in same},
        **site,
        "kind": kind,
        "operation": np.where(gpu["operation"] == UNKNOWN, by_name, gpu["operation"]),
        "pageable": per_name(gpu["name"], names, lambda n: "pageable" in n.lower()).astype(bool),
        # CUPTI of CUDA 13 gives kernels of a replay no ids of graph and node.
        "graph": (gpu["graph"] > 0) | (take_rows(calls["call"], call) == int(Call.GRAPH_LAUNCH)),
        "linked": linked,
    }


def _launching_calls(gpu: Table, calls: Mapping[str, Any], order: Int64s) -> Int64s:
    """Row of the call that launched each op, or UNKNOWN.

    Correlation ids are numbered in each process, so in a file that was merged of several an id has
    several calls. A device belongs to the process whose calls fit most of its ops; what does not
    fit there may still be another's.
    """
    wanted = np.where(gpu["correlation"] == 0, UNKNOWN, gpu["correlation"])  # 0 is no id
    owners = [int(pid) for pid in np.unique(calls["pid"])]
    if len(owners) < 2:
        return find_rows(wanted, calls["correlation"], order)

    def fitting(pid: int) -> Int64s:
        return find_rows(wanted, calls["correlation"], order[calls["pid"][order] == pid])

    devices, device = np.unique(gpu["device"], return_inverse=True)
    causal = np.zeros((len(owners), len(devices)), dtype=np.int64)
    for number, pid in enumerate(owners):
        call = fitting(pid)
        fits = (call != UNKNOWN) & (take_rows(calls["t0"], call) <= gpu["t0"])
        causal[number] = np.bincount(device[fits], minlength=len(devices))
    place = np.argsort(np.argsort(-causal, axis=0, kind="stable"), axis=0)
    found = np.full(len(wanted), UNKNOWN, dtype=np.int64)
    best = np.full(len(wanted), len(owners))
    for number, pid in enumerate(owners):  # once more, for those of all would fill memory
        call = fitting(pid)
        better = (call != UNKNOWN) & (place[number][device] < best)
        found[better], best[better] = call[better], place[number][device][better]
    return found


def _kinds(gpu: Table, names: list[str]) -> Ints:
    copies = per_name(gpu["name"], names, copy_kind)
    kernels = per_name(gpu["name"], names, kernel_kind)
    memcpy, memset = (gpu["category"] == WORK.index(work) for work in ("memcpy", "memset"))
    return np.select([memcpy, memset], [copies, np.int8(Kind.MEMSET)], default=kernels)
