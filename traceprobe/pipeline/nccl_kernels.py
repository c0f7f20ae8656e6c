"""Kernels of NCCL in a trace and calls in a dump, in the terms in which they are compared."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from traceprobe.ingest.collective_metadata import OF_MESSAGES
from traceprobe.ingest.communication_kernels import own_name
from traceprobe.ingest.joins import per_name
from traceprobe.ingest.nccl.flight_recorder import read_flight_record
from traceprobe.ingest.nccl.noted_calls import noted_calls
from traceprobe.model.events import UNKNOWN, Bools, Int64s, Kind, Operation, Trace
from traceprobe.timeline.record_alignment import Fits

_NCCL = re.compile(r"(?i)nccl|rccl")
_SAME_KERNEL = {
    **dict.fromkeys((int(o) for o in OF_MESSAGES), int(Operation.SEND_RECV)),
    int(Operation.BARRIER): int(Operation.ALL_REDUCE),
    int(Operation.OTHER): UNKNOWN,
}
"""Operations by the kernel that runs them, where it is not their own; any may run OTHER."""
_REDUCED = re.compile(
    r"(?:reduce_?scatter|reduce)\w*?_(?:(f32|float)|(f16|half)|(\w*bf(?:loat)?16)|(f64|double))(?:_|$)",
    re.IGNORECASE,
)
_REDUCED_TYPES = ("float", "half", "bfloat16", "double")
_UTC = 10**17
"""Times beyond this many ns count from 1970, and not from the start of a capture."""


@dataclass(frozen=True)
class KernelsOfProcess:
    """Kernels of NCCL of a process, in the order of their launches.

    Args:
        row: in GPU ops. launched_ns: in UTC if `utc`.
        kernel: what runs (see `_SAME_KERNEL`). dtype: index into `_REDUCED_TYPES`, or UNKNOWN.
    """

    pid: int
    row: Int64s
    launched_ns: Int64s
    utc: bool
    kernel: Int64s
    dtype: Int64s


@dataclass(frozen=True)
class Dump:
    """Calls of a dump in the order of their times.

    Args:
        kernel, dtype: as of a process; also UNKNOWN where it is of several.
    """

    rank: int
    name: str
    calls: pl.DataFrame
    kernel: Int64s
    dtype: Int64s


def kernels_of_processes(trace: Trace, problems: list[str]) -> Iterator[KernelsOfProcess]:
    """Processes that launched kernels of NCCL; the times of the trace's clock in UTC if it can."""
    names = trace.names
    ops = trace.gpu_ops.with_row_index("row").filter(pl.col("kind") == int(Kind.COMM))
    own = np.array([bool(_NCCL.search(own_name(name))) for name in names], dtype=np.bool_)
    ops = ops.filter(pl.Series(own[ops["name"].to_numpy()], dtype=pl.Boolean))
    if not len(ops):
        problems.append(f"{trace.origin.name}: has no kernel of NCCL")
    for (pid,), found in ops.partition_by("pid", as_dict=True, maintain_order=True).items():
        rows = found.filter(pl.col("linked") & ~pl.col("graph")).sort("launch_t0", "t0")
        if not len(rows):
            problems.append(
                f"{trace.origin.name}: its kernels of NCCL are of CUDA graphs or without their "
                "launch, which the recorder does not note"
            )
            continue
        if rows["device"].n_unique() > 1:
            problems.append(f"{trace.origin.name}: one process drives several GPUs")
            continue
        launched = rows["launch_t0"].to_numpy()
        since = 0 if launched[0] > _UTC else trace.origin.utc_ns
        yield KernelsOfProcess(
            pid=pid,
            row=rows["row"].to_numpy().astype(np.int64),
            launched_ns=launched + (since or 0),
            utc=since is not None,
            kernel=_kernels(rows["operation"].to_numpy().astype(np.int64)),
            dtype=per_name(rows["name"].to_numpy(), names, _reduced_type).astype(np.int64),
        )


def _kernels(operation: Int64s) -> Int64s:
    found = operation.copy()
    for of, kernel in _SAME_KERNEL.items():
        found[operation == of] = kernel
    return found


def _reduced_type(name: str) -> int:
    found = _REDUCED.search(own_name(name))
    return UNKNOWN if found is None or found.lastindex is None else found.lastindex - 1


def read_dump(rank: int, path: Path) -> Dump:
    """The calls of a rank's dump. Errors are those of `read_flight_record`."""
    record = read_flight_record(path)
    calls = noted_calls(record).sort("created_ns", maintain_order=True)
    types = {name: number for number, name in enumerate(_REDUCED_TYPES)}
    # NCCL reduces complex numbers as pairs of numbers; a type that is no such one is none of them.
    named = calls["dtype"].str.to_lowercase().str.strip_prefix("complex")
    dtype = [UNKNOWN if not name else types.get(name, len(types)) for name in named.to_list()]
    return Dump(
        rank=rank,
        name=record.name,
        calls=calls,
        kernel=_kernels(calls["operation"].to_numpy()),
        dtype=np.array(dtype, dtype=np.int64),
    )


def same_work(process: KernelsOfProcess, dump: Dump) -> Fits:
    """Which kernels may be of which calls: by the operation, and by the type that is reduced."""

    def agree(ours: Int64s, theirs: Int64s) -> Bools:
        found: Bools = (ours == theirs) | (ours == UNKNOWN) | (theirs == UNKNOWN)
        return found

    def fits(launch: Int64s, call: Int64s) -> Bools:
        return agree(process.kernel[launch], dump.kernel[call]) & agree(
            process.dtype[launch], dump.dtype[call]
        )

    return fits
