"""Kernels of NCCL in a trace, in the terms in which calls are compared with them."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec
import numpy as np
import polars as pl

from traceprobe.ingest.collective_metadata import OF_MESSAGES
from traceprobe.ingest.communication_kernels import own_name
from traceprobe.ingest.joins import per_name
from traceprobe.model.codes import UNKNOWN, Int64s, Kind, Operation
from traceprobe.model.events import Trace
from traceprobe.pipeline.reduced_types import reduced_type

_NCCL = re.compile(r"(?i)nccl|rccl")
_SAME_KERNEL = {
    **dict.fromkeys((int(o) for o in OF_MESSAGES), int(Operation.SEND_RECV)),
    int(Operation.BARRIER): int(Operation.ALL_REDUCE),
    int(Operation.OTHER): UNKNOWN,
}
"""Operations by the kernel that runs them, where it is not their own; any may run OTHER."""
_UTC = 10**17
"""Times beyond this many ns count from 1970, and not from the start of a capture."""


class KernelsOfProcess(msgspec.Struct, frozen=True):
    """Kernels of NCCL of a process, in the order of their launches.

    Args:
        row: in GPU ops. launched_ns: in UTC if `utc`.
        kernel: what runs (see `_SAME_KERNEL`). dtype: index into `REDUCED_TYPES`, or
            UNKNOWN.
        communicator: number that NCCL itself gave it; UNKNOWN where the trace does not say.
    """

    pid: int
    row: Int64s
    launched_ns: Int64s
    utc: bool
    kernel: Int64s
    dtype: Int64s
    communicator: Int64s


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
                "launch, so no call can be found for them; profile some steps without graphs"
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
            kernel=kernels_of(rows["operation"].to_numpy().astype(np.int64)),
            dtype=per_name(rows["name"].to_numpy(), names, reduced_type).astype(np.int64),
            communicator=_communicators(trace, rows),
        )


def _communicators(trace: Trace, rows: pl.DataFrame) -> Int64s:
    """Only Nsight numbers groups as NCCL does; PyTorch's profiler has names of its own."""
    of_nccl = trace.origin.format == "nsys"
    return (rows["group"] if of_nccl else pl.repeat(UNKNOWN, len(rows), eager=True)).to_numpy()


def kernels_of(operation: Int64s) -> Int64s:
    """What runs operations (see `_SAME_KERNEL`)."""
    found = operation.copy()
    for of, kernel in _SAME_KERNEL.items():
        found[operation == of] = kernel
    return found
