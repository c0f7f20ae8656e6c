"""Nsight tables to the event model.

A GPU op and its API call share (process, correlation id); the id alone collides between the
processes of one file. Codes come from the file's own ENUM tables, the built-in ones are a fallback.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import polars as pl

from traceprobe.ingest.classify import (
    api_name,
    call_kind,
    copy_kind,
    is_blocking,
    is_profiler,
    kernel_kind,
)
from traceprobe.ingest.nsight_tables import (
    GRAPH,
    KERNEL,
    MEMCPY,
    MEMSET,
    RUNTIME,
    Database,
    Table,
    pid,
    process,
    tid,
)
from traceprobe.model import (
    GPU_OPS,
    HOST_CALLS,
    HOST_RANGES,
    UNKNOWN,
    Call,
    Device,
    EmptyTrace,
    Kind,
    Origin,
    Quality,
    Role,
    Source,
    Trace,
    frame,
)

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
_PUSH_POP, _START_END, _MARK = (59, 70), (60, 71), 34
_OPEN = np.iinfo(np.int64).max
_LIBRARY = re.compile(
    r"^(nccl|\[DALI\]|cub::|thrust::|cudnn|cublas|aten::|autograd::)", re.IGNORECASE
)
_RANK_KEYS = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
_WORLD_KEYS = ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE")


class _Names:
    """A name table that grows; looked up once per distinct string id."""

    def __init__(self) -> None:
        self.index: dict[str, int] = {}

    def __call__(self, text: str) -> int:
        return self.index.setdefault(text, len(self.index))


def build(db: Database, origin: Origin, quality: Quality) -> Trace:
    """Read every table that matters.

    Raises:
        EmptyTrace: no GPU work; with the file's own diagnostics where it has them.
    """
    names = _Names()
    ops = _gpu_ops(db, names, quality)
    if not ops:
        raise EmptyTrace(f"{origin.name}: {_why_empty(db)}")
    calls = _host_calls(db, names)
    gpu, host = _link({c: np.concatenate([o[c] for o in ops]) for c in ops[0]}, calls)
    first, last = int(gpu["t0"].min()), int(gpu["t1"].max())
    if len(host["t0"]):
        first, last = min(first, int(host["t0"].min())), max(last, int(host["t1"].max()))
    ranges = _ranges(db, names, first, last, quality)
    for column in (gpu, host, ranges):
        column["pid"] = column["pid"] & 0xFFFFFF
    gpu_ops = frame(GPU_OPS, gpu).sort("t0", "t1", "pid", "device", "stream", "correlation")
    _warn_about_gaps(db, gpu_ops, host, quality)
    return Trace(
        origin=origin,
        names=list(names.index),
        gpu_ops=gpu_ops,
        host_calls=frame(HOST_CALLS, host).sort("t0", "t1", "pid", "thread"),
        host_ranges=frame(HOST_RANGES, ranges).sort("t0", "t1", "pid", "thread", "name"),
        devices=_devices(db, gpu_ops),
        quality=quality,
        rank_of=_ranks(db, gpu_ops),
        thread_names=_thread_names(db),
        metadata=_facts(db),
    )


def _gpu_ops(db: Database, names: _Names, quality: Quality) -> list[dict[str, Any]]:
    common = {
        "start": UNKNOWN,
        "end": UNKNOWN,
        "deviceId": 0,
        "streamId": 0,
        "correlationId": UNKNOWN,
        "globalPid": UNKNOWN,
    }
    parts = []
    if kernels := db.integers(
        KERNEL, {**common, "demangledName": UNKNOWN, "shortName": UNKNOWN, "graphNodeId": 0}
    ):
        text = np.where(
            kernels["demangledName"] == UNKNOWN, kernels["shortName"], kernels["demangledName"]
        )
        name, kind = _strings(db, names, text, kernel_kind)
        parts.append(_op(kernels, name, kind, graph=kernels["graphNodeId"] > 0))
    if copies := db.integers(
        MEMCPY, {**common, "bytes": UNKNOWN, "copyKind": 0, "srcKind": 2, "dstKind": 2}
    ):
        labels = _COPY_LABELS | db.labels("ENUM_CUDA_MEMCPY_OPER")
        memory = _MEMORY_LABELS | db.labels("ENUM_CUDA_MEM_KIND")
        codes, inverse = np.unique(copies["copyKind"], return_inverse=True)
        name = np.array([names(f"Memcpy {labels.get(int(c), 'Unknown')}") for c in codes])[inverse]
        kind = np.array([copy_kind(labels.get(int(c), "")) for c in codes], dtype=np.int64)[inverse]
        paged = [code for code, label in memory.items() if label == "Pageable"]
        pageable = np.isin(copies["srcKind"], paged) | np.isin(copies["dstKind"], paged)
        pageable &= (kind == Kind.H2D) | (kind == Kind.D2H)
        parts.append(_op(copies, name, kind, pageable=pageable))
    if sets := db.integers(MEMSET, {**common, "bytes": UNKNOWN}):
        count = len(sets["start"])
        parts.append(_op(sets, np.full(count, names("Memset")), np.full(count, Kind.MEMSET)))
    if graphs := db.integers(GRAPH, {**common, "graphId": UNKNOWN}):
        ids, inverse = np.unique(graphs["graphId"], return_inverse=True)
        name = np.array([names(f"CUDA graph {i}") for i in ids])[inverse]
        count = len(name)
        parts.append(
            _op(graphs, name, np.full(count, Kind.KERNEL), graph=np.ones(count, dtype=bool))
        )
        quality.warn(
            "graph-level-capture",
            "CUDA graphs were traced as whole replays: the GPU counts as busy inside them, their "
            "kernels are not in the file. Capture with --cuda-graph-trace=node to see them.",
        )
    return [part for part in (_complete(part, quality) for part in parts) if len(part["t0"])]


def _complete(part: dict[str, Any], quality: Quality) -> dict[str, Any]:
    """Drop, and count, rows without a start or that end before they start."""
    keep = (part["t1"] >= part["t0"]) & ~((part["t0"] == UNKNOWN) & (part["t1"] == UNKNOWN))
    lost = int(len(keep) - np.count_nonzero(keep))
    quality.events_lost += lost
    return part if not lost else {c: v[keep] for c, v in part.items()}


def _op(
    rows: Table, name: Any, kind: Any, *, graph: Any = None, pageable: Any = None
) -> dict[str, Any]:
    count = len(rows["start"])
    no = np.zeros(count, dtype=bool)
    return {
        "pid": process(rows["globalPid"]),
        "device": rows["deviceId"],
        "stream": rows["streamId"],
        "kind": kind,
        "name": name,
        "t0": rows["start"],
        "t1": rows["end"],
        "bytes": rows.get("bytes", np.full(count, UNKNOWN, dtype=np.int64)),
        "pageable": no if pageable is None else pageable,
        "graph": no if graph is None else graph,
        "correlation": rows["correlationId"],
    }


def _strings(db: Database, names: _Names, ids: Any, value: Any) -> tuple[Any, Any]:
    """String ids to (name index, value of the name), once per distinct id."""
    distinct, inverse = np.unique(ids, return_inverse=True)
    texts = [db.strings.get(int(i), "unknown") for i in distinct]
    return (
        np.array([names(t) for t in texts], dtype=np.int64)[inverse],
        np.array([int(value(t)) for t in texts], dtype=np.int64)[inverse],
    )


def _host_calls(db: Database, names: _Names) -> dict[str, Any]:
    wanted = {
        "start": UNKNOWN,
        "end": UNKNOWN,
        "globalTid": UNKNOWN,
        "correlationId": UNKNOWN,
        "nameId": UNKNOWN,
    }
    rows = db.integers(RUNTIME, wanted) or {c: np.empty(0, dtype=np.int64) for c in wanted}
    distinct, inverse = np.unique(rows["nameId"], return_inverse=True)
    texts = [api_name(db.strings.get(int(i), "unknown")) for i in distinct]
    return {
        "pid": process(rows["globalTid"]),
        "thread": tid(rows["globalTid"]),
        "t0": rows["start"],
        "t1": np.maximum(rows["end"], rows["start"]),
        "name": np.array([names(t) for t in texts], dtype=np.int64)[inverse],
        "call": np.array([call_kind(t) for t in texts], dtype=np.int64)[inverse],
        "blocking": np.array([is_blocking(t) for t in texts], dtype=bool)[inverse],
        "correlation": rows["correlationId"],
    }


def _link(gpu: dict[str, Any], calls: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Give every GPU op the call with its (process, correlation id)."""
    if len(np.unique(calls["pid"])) == 1 and set(np.unique(gpu["pid"])) == {0}:
        gpu["pid"] = np.full(len(gpu["pid"]), calls["pid"][0])  # export without globalPid
    key = ["pid", "correlation"]
    call_frame = pl.DataFrame(
        {
            **{c: calls[c] for c in (*key, "t0", "t1", "thread", "call")},
            "row": np.arange(len(calls["t0"])),
        }
    ).filter(pl.col("correlation") > 0)
    # Of a runtime call and the driver call inside it, the one that is a launch comes first.
    best = call_frame.sort(pl.col("call") == int(Call.OTHER), "t0").unique(
        key, keep="first", maintain_order=True
    )
    joined = pl.DataFrame({c: gpu[c] for c in key}).join(
        best.rename({"t0": "launch_t0", "t1": "launch_t1"}),
        on=key,
        how="left",
        maintain_order="left",
    )
    linked = joined["launch_t0"].is_not_null().to_numpy()
    site = joined.select(pl.col("launch_t0", "launch_t1", "thread").fill_null(UNKNOWN))
    recorded = np.zeros(len(calls["t0"]), dtype=bool)
    recorded[joined["row"].drop_nulls().to_numpy()] = True
    role = np.full(len(linked), Role.UNKNOWN, dtype=np.int64)
    columns = {c: site[c].to_numpy() for c in site.columns}
    return {**gpu, **columns, "linked": linked, "role": role}, {**calls, "recorded": recorded}


def _ranges(db: Database, names: _Names, first: int, last: int, quality: Quality) -> dict[str, Any]:
    parts = [_nvtx(db, names, last, quality)]
    for table in ("PROFILER_OVERHEAD", "CUPTI_ACTIVITY_KIND_OVERHEAD"):
        wanted = {"start": UNKNOWN, "end": UNKNOWN, "globalTid": UNKNOWN, "nameId": UNKNOWN}
        if rows := db.integers(table, wanted):
            name, own = _strings(db, names, rows["nameId"], is_profiler)
            keep = own == 1
            parts.append(
                {
                    "pid": process(rows["globalTid"])[keep],
                    "thread": tid(rows["globalTid"])[keep],
                    "t0": rows["start"][keep],
                    "t1": rows["end"][keep],
                    "name": name[keep],
                    "source": np.full(int(keep.sum()), Source.PROFILER),
                }
            )
    return {c: np.concatenate([p[c] for p in parts]).astype(np.int64) for c in HOST_RANGES}


def _nvtx(db: Database, names: _Names, last: int, quality: Quality) -> dict[str, Any]:
    """NVTX ranges and marks; a range without an end is open and runs to the capture's end."""
    present = db.columns.get("NVTX_EVENTS", set())
    wanted = {"start": UNKNOWN, "end": int(_OPEN), "eventType": 0, "globalTid": UNKNOWN}
    types = (*_PUSH_POP, *_START_END, _MARK)
    where = f"WHERE eventType IN ({', '.join(map(str, types))}) AND start IS NOT NULL"
    rows = (
        db.integers("NVTX_EVENTS", wanted, where + " ORDER BY rowid")
        if "eventType" in present
        else None
    )
    if rows is None:
        return {c: np.empty(0, dtype=np.int64) for c in HOST_RANGES}
    text = db.nvtx_texts(where)
    distinct: dict[str, int] = {}
    codes = np.array([distinct.setdefault(t, len(distinct)) for t in text], dtype=np.int64)
    index = np.array([names(t) for t in distinct], dtype=np.int64)
    library = np.array([bool(_LIBRARY.search(t)) for t in distinct])
    mark = rows["eventType"] == _MARK
    is_open = (rows["end"] == _OPEN) & ~mark
    if is_open.any():
        quality.warn(
            "open-ranges",
            f"{int(is_open.sum())} NVTX ranges never closed; they are taken to run to the end "
            "of the capture.",
        )
    end = np.where(
        mark, rows["start"], np.where(is_open, max(last, int(rows["start"].max())), rows["end"])
    )
    return {
        "pid": process(rows["globalTid"]),
        "thread": tid(rows["globalTid"]),
        "t0": rows["start"],
        "t1": np.maximum(end, rows["start"]),
        "name": index[codes],
        "source": np.where(mark, int(Source.MARK), library[codes].astype(np.int64)),
    }


def _devices(db: Database, ops: pl.DataFrame) -> tuple[Device, ...]:
    """(pid, ordinal) to the hardware's name. Ordinals are local to a process."""
    gpus = db.rows("TARGET_INFO_GPU", ("id", "cuDevice", "name"))
    by_id = {i: str(name) for i, _, name in gpus if name}
    ordinals = [c for _, c, _ in gpus if c is not None]
    by_ordinal = {c: str(name) for _, c, name in gpus if name and c is not None}
    if len(set(ordinals)) < len(gpus):  # 2021 captures give every GPU ordinal 0
        by_ordinal = by_id
    exact = {
        (p, c): by_id.get(g)
        for g, c, p in db.rows("TARGET_INFO_CUDA_DEVICE", ("gpuId", "cudaId", "pid"))
    }
    found = ops.select("pid", "device").unique().sort("pid", "device").rows()
    return tuple(Device(p, d, exact.get((p, d)) or by_ordinal.get(d)) for p, d in found)


def _ranks(db: Database, ops: pl.DataFrame) -> dict[int, int]:
    """Ranks from MPI, or from the environment of a capture of one process."""
    mpi = {
        pid(int(str(g)) >> 24): int(str(r)) for g, r in db.rows("MPI_RANKS", ("globalTid", "rank"))
    }
    pids = ops["pid"].unique().sort().to_list()
    if mpi or len(pids) != 1:
        return {p: r for p, r in mpi.items() if p in pids}
    environment = _environment(db)
    rank = next((environment[k] for k in _RANK_KEYS if environment.get(k, "").isdigit()), None)
    return {} if rank is None else {pids[0]: int(rank)}


def _environment(db: Database) -> dict[str, str]:
    """The few environment variables that are read; the rest of the environment is private."""
    allowed = {*_RANK_KEYS, *_WORLD_KEYS}
    found: dict[str, str] = {}
    for name, value in db.rows("META_DATA_CAPTURE", ("name", "value")):
        if "ENVIRONMENT_VARIABLE" in str(name):
            key, _, text = str(value).partition("=")
            if key in allowed:
                found[key] = text
    return found


def _facts(db: Database) -> dict[str, Any]:
    environment = _environment(db)
    world = next((environment[k] for k in _WORLD_KEYS if environment.get(k, "").isdigit()), None)
    return {} if world is None else {"world_size": int(world)}


def _thread_names(db: Database) -> dict[tuple[int, int], str]:
    rows = db.rows("ThreadNames", ("globalTid", "nameId"))
    return {
        (pid(int(str(g)) >> 24), int(str(g)) & 0xFFFFFF): db.strings.get(int(str(n)), "")
        for g, n in rows
        if g is not None and n is not None
    }


def _warn_about_gaps(
    db: Database, ops: pl.DataFrame, host: dict[str, Any], quality: Quality
) -> None:
    metadata = db.metadata
    if metadata.get("EXPORT_PARAM_TIMES_TO_EXPORT") or "DERIVED_WINDOW_NS" in metadata:
        quality.warn(
            "filtered-export",
            "The file is an excerpt in time: work at its borders lost its launches.",
        )
    if "globalPid" not in db.columns.get(KERNEL, {"globalPid"}):
        quality.warn("no-process-ids", "The export has no process ids; it is read as one process.")
    graph_calls = (host["call"] == Call.GRAPH_LAUNCH) & ~host["recorded"]
    if graph_calls.any():
        quality.warn(
            "graph-launches-unrecorded",
            f"{int(graph_calls.sum())} CUDA graph launches have no GPU row: the GPU worked, the "
            "file does not say when. Export with a newer nsys, or capture with "
            "--cuda-graph-trace=node.",
        )


def _why_empty(db: Database) -> str:
    """The reason from the file's own diagnostics, else what is missing."""
    texts = [
        str(text)
        for severity, text in db.rows("DIAGNOSTIC_EVENT", ("severity", "text"))
        if isinstance(severity, int) and severity >= 2
    ]
    telling = [t for t in texts if re.search(r"CUDA|CUPTI|driver", t)] or texts
    if telling:
        return f"no GPU work in the export. Nsight Systems said: {' | '.join(telling[:3])[:600]}"
    if KERNEL not in db.columns:
        return (
            "no CUDA tables in the export: either CUDA was not traced (`nsys profile "
            "--trace=cuda,nvtx`) "
            "or the export was cut short (`nsys export --type sqlite --force-overwrite true`)"
        )
    return "no GPU work in the export; profile with `nsys profile --trace=cuda,nvtx`"
