"""Nsight tables to the event model.

A GPU op and its API call share (process, correlation id); the id alone collides between the
processes of one file. Codes come from the file's own ENUM tables, the built-in ones are a fallback.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from traceprobe.errors import EmptyTrace
from traceprobe.ingest.clocks import align_clocks
from traceprobe.ingest.event_kinds import (
    api_name,
    call_kind,
    copy_kind,
    is_blocking,
    kernel_kind,
    stream_event,
    waits_for,
)
from traceprobe.ingest.joins import (
    Table,
    concatenate_tables,
    find_rows_of_processes,
    keep_rows,
    per_name,
    take_rows,
)
from traceprobe.ingest.nsight import facts as facts
from traceprobe.ingest.nsight import nccl as nsight_nccl
from traceprobe.ingest.nsight import ranges as nsight_ranges
from traceprobe.ingest.nsight.big_tables import COLUMNS, GRID
from traceprobe.ingest.nsight.gpu_metrics import gpu_samples
from traceprobe.ingest.nsight.ids import NameTable, per_id, per_text, process_key, tid
from traceprobe.ingest.nsight.sync_notes import sync_notes
from traceprobe.ingest.nsight.tables import (
    GRAPH,
    KERNEL,
    MEMCPY,
    MEMSET,
    RUNTIME,
    Database,
)
from traceprobe.ingest.nsight.waits import host_waits
from traceprobe.ingest.plausibility import (
    drop_duplicates,
    drop_overruns,
    grid_number,
    plausible_sizes,
    warn_of_impossible_times,
    warn_of_overlaps,
)
from traceprobe.ingest.stream_events import stream_events
from traceprobe.model.codes import UNKNOWN, Call, Int64s, Ints, Kind, Role
from traceprobe.model.events import (
    GPU_OPS,
    GPU_SAMPLES,
    HOST_CALLS,
    HOST_OPERATORS,
    HOST_RANGES,
    HOST_WORK,
    STREAM_EVENTS,
    Origin,
    Trace,
    frame,
)
from traceprobe.model.numbering import narrow, numbered
from traceprobe.model.quality import Quality

_COPY_LABELS = {
    1: "Host-to-Device",
    2: "Device-to-Host",
    3: "Host-to-Array",
    4: "Array-to-Host",
    10: "Peer-to-Peer",
    11: "Unified Host-to-Device",
    12: "Unified Device-to-Host",
}
_MEMORY_LABELS = {0: "Pageable", 1: "Pinned"}


def build_trace(db: Database, origin: Origin, quality: Quality) -> Trace:
    """The trace in the tables of an export.

    Raises:
        EmptyTrace: no GPU work; with the file's own diagnostics where it has them.
    """
    names = NameTable()
    ops = _gpu_ops(db, names, quality)
    calls = _host_calls(db, names)
    if not ops:
        launches = int(np.isin(calls["call"], (int(Call.LAUNCH), int(Call.GRAPH_LAUNCH))).sum())
        raise EmptyTrace(f"{origin.name}: {facts.why_empty(db, launches)}")
    gpu, host = _link(concatenate_tables(ops), calls)
    del calls
    gpu["bytes"] = plausible_sizes(gpu["bytes"])
    synchronises = per_name(host["name"], list(names.index), waits_for)
    does = per_name(host["name"], list(names.index), stream_event)
    notes = sync_notes(db, numbered(host["pid"])[0])
    with ThreadPoolExecutor(1) as beside:  # most of it leaves Python's lock to others
        ordering = beside.submit(stream_events, host, does, notes)
        gpu = drop_duplicates(gpu, quality)
        gpu = align_clocks(gpu, host, synchronises, quality)
        warn_of_impossible_times(gpu, quality)
        gpu = drop_overruns(gpu, quality)
        warn_of_overlaps(gpu, quality)
        events = ordering.result()
    known = facts.trace_metadata(db, quality)
    gpu |= nsight_nccl.collective_columns(db, gpu, names, known.get("world_size"), quality)
    last = max(int(c["t1"].max()) for c in (gpu, host) if len(c["t1"]))
    ranges, operators = nsight_ranges.host_ranges(db, names, last, quality)
    waits = host_waits(db)
    for column in (gpu, host, events, ranges, operators):
        column["pid"] = column["pid"] & np.int64(0xFFFFFF)
    samples = gpu_samples(db, gpu, quality)
    quality.events_lost += db.lost
    facts.warn_of_gaps(db, gpu, host, quality)
    # By process first: what is done with one process then needs no copy of its rows.
    with ThreadPoolExecutor(1) as beside:
        host_calls = beside.submit(frame, HOST_CALLS, host, ("pid", "t0", "t1", "thread"))
        gpu_ops = frame(GPU_OPS, gpu, ("pid", "t0", "t1", "device", "stream", "correlation"))
    return Trace(
        origin=origin,
        names=list(names.index),
        gpu_ops=gpu_ops,
        host_calls=host_calls.result(),
        host_ranges=frame(HOST_RANGES, ranges, ("pid", "t0", "t1", "thread", "name")),
        devices=facts.devices(db, gpu_ops),
        quality=quality,
        rank_of=facts.rank_of_pid(db, gpu_ops),
        thread_names=facts.thread_names(db),
        metadata=known,
        host_operators=frame(HOST_OPERATORS, operators, ("pid", "t0", "t1", "thread")),
        host_waits=frame(HOST_WORK, waits, ("pid", "t0", "t1", "thread")),
        stream_events=frame(STREAM_EVENTS, events, ("pid", "t0", "correlation")),
        gpu_samples=frame(GPU_SAMPLES, samples, ("pid", "device", "metric", "t0")),
    )


def _gpu_ops(db: Database, names: NameTable, quality: Quality) -> list[dict[str, Any]]:
    parts = []
    if kernels := db.integers(KERNEL, COLUMNS[KERNEL]):
        text, short = kernels["demangledName"], kernels["shortName"]
        text = np.where(text == UNKNOWN, short, text)
        name, kind = per_text(db, text, names, kernel_kind)
        parts.append(_op(kernels, name, kind, graph=kernels["graphNodeId"] > 0))
    if copies := db.integers(MEMCPY, COLUMNS[MEMCPY]):
        labels = _COPY_LABELS | db.labels("ENUM_CUDA_MEMCPY_OPER")
        memory = _MEMORY_LABELS | db.labels("ENUM_CUDA_MEM_KIND")
        name, kind = per_id(
            copies["copyKind"],
            lambda code: names(f"Memcpy {labels.get(code, 'Unknown')}"),
            lambda code: copy_kind(labels.get(code, "")),
        )
        paged = [code for code, label in memory.items() if label == "Pageable"]
        pageable = np.isin(copies["srcKind"], paged) | np.isin(copies["dstKind"], paged)
        pageable &= (kind == Kind.H2D) | (kind == Kind.D2H)
        parts.append(_op(copies, name, kind, pageable=pageable))
    if sets := db.integers(MEMSET, COLUMNS[MEMSET]):
        count = len(sets["start"])
        parts.append(_op(sets, np.full(count, names("Memset")), np.full(count, Kind.MEMSET)))
    if graphs := db.integers(GRAPH, COLUMNS[GRAPH]):
        (name,) = per_id(graphs["graphId"], lambda number: names(f"CUDA graph {number}"))
        whole = np.ones(len(name), dtype=bool)
        parts.append(_op(graphs, name, np.full(len(name), Kind.KERNEL), graph=whole))
        quality.warn(
            "graph-level-capture",
            "CUDA graphs were traced as whole replays: the GPU counts as busy inside them, their "
            "kernels are not in the file. Capture with --cuda-graph-trace=node to see them.",
        )
    return [part for part in (_complete(part, quality) for part in parts) if len(part["t0"])]


def _complete(part: dict[str, Any], quality: Quality) -> dict[str, Any]:
    """Drop, and count, rows that end before they start: replays and kernels never finished."""
    keep = part["t1"] >= part["t0"]
    quality.events_lost += int(np.count_nonzero(~keep))
    return keep_rows(part, keep)


def _op(
    rows: Table, name: Any, kind: Any, *, graph: Any = None, pageable: Any = None
) -> dict[str, Any]:
    count = len(rows["start"])
    no = np.zeros(count, dtype=bool)
    return {
        "pid": narrow(process_key(rows["globalPid"])),
        "device": rows["deviceId"],
        "stream": rows["streamId"],
        "kind": kind,
        "name": name,
        "t0": rows["start"],
        "t1": rows["end"],
        "bytes": rows.get("bytes", np.full(count, UNKNOWN, dtype=np.int8)),
        "pageable": no if pageable is None else pageable,
        "graph": no if graph is None else graph,
        "correlation": rows["correlationId"],
        "grid": _grids(rows),
        "occupancy": np.full(count, UNKNOWN, dtype=np.int8),
    }


def _grids(rows: Table) -> Ints:
    """Blocks of each kernel; UNKNOWN of what has no grid."""
    if "gridX" not in rows:
        return np.full(len(rows["start"]), UNKNOWN, dtype=np.int32)
    sizes = [np.maximum(rows[c], 0).astype(np.float64) for c in GRID]
    return grid_number(sizes[0] * sizes[1] * sizes[2])


def _host_calls(db: Database, names: NameTable) -> dict[str, Any]:
    wanted = COLUMNS[RUNTIME]
    rows = db.integers(RUNTIME, wanted) or {c: np.empty(0, dtype=np.int64) for c in wanted}
    name, call, blocking = per_text(
        db,
        rows["nameId"],
        lambda text: names(api_name(text)),
        lambda text: call_kind(api_name(text)),
        lambda text: is_blocking(api_name(text)),
    )
    return {
        "pid": narrow(process_key(rows["globalTid"])),
        "thread": narrow(tid(rows["globalTid"])),
        "t0": rows["start"],
        "t1": np.maximum(rows["end"], rows["start"]),
        "name": name,
        "call": call,
        "blocking": blocking.astype(bool),
        "correlation": rows["correlationId"],
    }


def _link(gpu: dict[str, Any], calls: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Give every GPU op the call with its (process, correlation id)."""
    callers, workers = numbered(calls["pid"])[0], numbered(gpu["pid"])[0]
    if len(callers) == 1 and workers.tolist() == [0]:
        gpu["pid"] = np.full(len(gpu["pid"]), callers[0])  # export without globalPid
        workers = callers
    wanted = np.where(gpu["correlation"] > 0, gpu["correlation"], UNKNOWN)
    call = find_rows_of_processes(
        wanted, gpu["pid"], calls["correlation"], calls["pid"], _launches_first(calls)
    )
    linked = call != UNKNOWN
    recorded = np.zeros(len(calls["t0"]), dtype=bool)
    recorded[call[linked]] = True
    site = {
        column: take_rows(calls[source], call)
        for column, source in (("launch_t0", "t0"), ("launch_t1", "t1"), ("thread", "thread"))
    }
    role = np.full(len(linked), Role.UNKNOWN, dtype=np.int8)
    graph = gpu["graph"] | (take_rows(calls["call"], call) == Call.GRAPH_LAUNCH)
    found = {**gpu, **site, "linked": linked, "role": role, "graph": graph}
    return found, {**calls, "recorded": recorded}


def _launches_first(calls: dict[str, Any]) -> Iterator[Int64s]:
    """Rows by their start: of a runtime call and the driver call inside it, one is a launch."""
    other = calls["call"] == Call.OTHER
    for chosen in (~other, other):
        rows = np.flatnonzero(chosen)
        yield rows[np.argsort(calls["t0"][rows], kind="stable")]
