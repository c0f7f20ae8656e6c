"""What an Nsight export says of the run: devices, ranks, threads, and what it warns of.

Only whitelisted rows are read: the metadata holds the environment of the profiled process.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from traceprobe.ingest.joins import distinct_rows
from traceprobe.ingest.nsight.ids import pid
from traceprobe.ingest.nsight.tables import KERNEL, RUNTIME, Database
from traceprobe.ingest.profiler_messages import quote_messages
from traceprobe.ingest.sidecar import checked
from traceprobe.ingest.untrusted_values import (
    FARTHEST_NS,
    bounded_text,
    compute_capability,
    device_amount,
    integer,
    json_object,
    rank_number,
)
from traceprobe.model.codes import UNKNOWN, Call
from traceprobe.model.events import Device
from traceprobe.model.numbering import numbered
from traceprobe.model.quality import Quality
from traceprobe.model.sidecar import MAX_RANKS

if TYPE_CHECKING:
    import polars as pl

_RANK_KEYS = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
_WORLD_KEYS = ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE")
WHY_MISSING = (
    " Look for another profiler or monitor that uses the GPU (DCGM, a second nsys), and for a "
    "driver newer than nsys; let the program end by itself, then profile it again"
)
"""Said after the reason that the file gives, if it gives one: that alone helps nobody."""
_OF_GPU = ("name", "computeMajor", "computeMinor", "smCount", "totalMemory", "threadsPerWarp")


def devices(db: Database, ops: pl.DataFrame) -> tuple[Device, ...]:
    """What is known of the hardware of each (pid, ordinal). Ordinals are local to a process."""
    gpus = [row for row in db.rows("TARGET_INFO_GPU", ("id", "cuDevice", *_OF_GPU)) if row[2]]
    by_id = {row[0]: row[2:] for row in gpus}
    ordinals = [row[1] for row in gpus if row[1] is not None]
    by_ordinal = {row[1]: row[2:] for row in gpus if row[1] is not None}
    if len(set(ordinals)) < len(gpus):  # 2021 captures give every GPU ordinal 0
        by_ordinal = by_id
    seen = db.rows("TARGET_INFO_CUDA_DEVICE", ("gpuId", "cudaId", "pid", "numMultiprocessors"))
    exact = {(p, c): by_id.get(g) for g, c, p, _ in seen}
    own = {(p, c): device_amount(count) for _, c, p, count in seen}
    places = distinct_rows(ops["pid"].to_numpy(), ops["device"].to_numpy())
    found = zip(*(column.tolist() for column in places), strict=True)
    return tuple(
        _device(p, d, exact.get((p, d)) or by_ordinal.get(d), own.get((p, d))) for p, d in found
    )


def _device(process: int, ordinal: int, gpu: tuple[object, ...] | None, own: int | None) -> Device:
    """A device with what its row of `_OF_GPU` says.

    Args:
        own: multiprocessors that the process sees: of a slice fewer than the GPU has.
    """
    if gpu is None:
        return Device(process, ordinal, None, multiprocessors=own)
    name, major, minor, multiprocessors, memory, warp = gpu
    return Device(
        process,
        ordinal,
        bounded_text(name),
        capability=compute_capability(major, minor),
        multiprocessors=own or device_amount(multiprocessors),
        memory_bytes=device_amount(memory),
        warp_size=device_amount(warp),
    )


def rank_of_pid(db: Database, ops: pl.DataFrame) -> dict[int, int]:
    """Ranks from MPI, or from the environment of a capture of one process."""
    mpi = {
        pid(g >> 24): number
        for g, r in db.rows("MPI_RANKS", ("globalTid", "rank"))
        if isinstance(g, int) and (number := rank_number(r)) is not None
    }
    pids = numbered(ops["pid"].to_numpy())[0].tolist()
    if mpi or len(pids) != 1:
        return {p: r for p, r in mpi.items() if p in pids}
    rank = _number_in_environment(db, _RANK_KEYS)
    return {} if rank is None else {pids[0]: rank}


def _shared(db: Database, ops: Mapping[str, Any]) -> list[int]:
    """GPUs on which several processes have work."""
    places = db.rows("TARGET_INFO_CUDA_DEVICE", ("gpuId", "cudaId", "pid"))
    users: Counter[int] = Counter()
    for gpu, ordinal, process in set(places):
        if isinstance(gpu, int) and isinstance(ordinal, int) and isinstance(process, int):
            users[gpu] += bool(np.any((ops["pid"] == process) & (ops["device"] == ordinal)))
    return sorted(gpu for gpu, count in users.items() if count > 1)


def _number_in_environment(db: Database, keys: Sequence[str]) -> int | None:
    """The first of these environment variables that is a number; all others are private."""
    found: dict[str, int | None] = {}
    for name, value in db.rows("META_DATA_CAPTURE", ("name", "value")):
        key, _, text = str(value).partition("=")
        if "ENVIRONMENT_VARIABLE" in str(name) and key in keys:
            found[key] = rank_number(text)
    return next((found[key] for key in keys if found.get(key) is not None), None)


def trace_metadata(db: Database, quality: Quality) -> dict[str, Any]:
    """`Trace.metadata` of the export."""
    world = _number_in_environment(db, _WORLD_KEYS)
    found: dict[str, Any] = {} if world is None else {"world_size": world}
    sidecars = db.rows("traceprobe", ("rank", "json"))
    if sidecars:
        # The first rank speaks for the run: its ranks step together.
        numbered = [(rank_number(rank), text) for rank, text in sidecars]
        _, first = min(numbered, key=lambda row: MAX_RANKS if row[0] is None else row[0])
        recorded = checked(json_object(str(first).encode()), quality)
        if recorded is not None:
            found["traceprobe"] = recorded
            ranks = rank_number(recorded.get("workload", {}).get("ranks"))
            if ranks:
                found.setdefault("world_size", ranks)
    return found


def session_start_ns(db: Database) -> int | None:
    """UTC when the capture began, which its times count from."""
    rows = db.rows("TARGET_INFO_SESSION_START_TIME", ("utcEpochNs",))
    start = integer(rows[0][0]) if rows else UNKNOWN
    return start if 0 < start < FARTHEST_NS else None


def thread_names(db: Database) -> dict[tuple[int, int], str]:
    r"""(pid, tid) to the thread's name."""
    rows = db.rows("ThreadNames", ("globalTid", "nameId"))
    return {
        (pid(g >> 24), g & 0xFFFFFF): bounded_text(db.strings.get(n, ""))
        for g, n in rows
        if isinstance(g, int) and isinstance(n, int)
    }


def warn_of_gaps(
    db: Database, gpu: Mapping[str, Any], host: Mapping[str, Any], quality: Quality
) -> None:
    """Warn of what the export itself says is missing.

    Args:
        gpu: columns of GPU_OPS. host: of HOST_CALLS.
    """
    metadata = db.metadata
    if metadata.get("EXPORT_PARAM_TIMES_TO_EXPORT") or "DERIVED_WINDOW_NS" in metadata:
        quality.warn(
            "filtered-export",
            "The file is an excerpt in time: work at its borders lost its launches.",
        )
    shared = _shared(db, gpu)
    if shared:
        quality.warn(
            "shared-gpu",
            f"Several processes use GPU {shared[0]}: each is accounted for itself, and what it "
            "waits for may be another one's work.",
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


def diagnostics(db: Database) -> tuple[tuple[int, str], ...]:
    """(severity, text) of what Nsight Systems complained of: 2 warnings, 3 errors."""
    return tuple(
        (severity, str(text))
        for severity, text in db.rows("DIAGNOSTIC_EVENT", ("severity", "text"))
        if isinstance(severity, int) and severity >= 2
    )


def why_empty(db: Database, launches: int) -> str:
    """The reason from the file's own diagnostics, else what is missing.

    Args:
        launches: calls that launch a kernel.
    """
    texts = [text for _, text in diagnostics(db)]
    telling = [t for t in texts if re.search(r"CUDA|CUPTI|driver", t)] or texts
    said = f" Nsight Systems said: {quote_messages(telling)}" if telling else ""
    if launches:
        return (
            f"{launches:,} kernels were launched and the export has not one GPU row: the GPU's "
            f"work was not recorded.{said}{WHY_MISSING}"
        )
    if said:
        return f"no GPU work in the export.{said}"
    if KERNEL not in db.columns and RUNTIME not in db.columns:
        return (
            "no CUDA tables in the export: either CUDA was not traced (`nsys profile "
            "--trace=cuda,nvtx`) "
            "or the export was cut short (`nsys export --type sqlite --force-overwrite true`)"
        )
    return "no GPU work in the export; profile with `nsys profile --trace=cuda,nvtx`"
