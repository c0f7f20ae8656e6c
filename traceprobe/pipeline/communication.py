"""Collectives of a rank to the records of the report."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import UNSET

from traceprobe.model.codes import Operation
from traceprobe.records import summary
from traceprobe.records.summary import Operation as OperationName
from traceprobe.timeline.collectives import CollectiveGroup, bus_factor

_NO_SIZE = {
    "nsys": "Nsight Systems writes the bytes of NCCL's messages only into exports made with `nsys "
    "export --include-blobs=true`; a trace of `torch.profiler` has them, and so have dumps of "
    "PyTorch's flight recorder and logs of NCCL Inspector (`--nccl-records`). Those of kernels in "
    "CUDA graphs are in none of them.",
    "kineto": "PyTorch notes it with NCCL kernels from 2.2 on, but not in CUDA graphs, nor of "
    "other libraries or in a CPU run. Dumps of PyTorch's flight recorder and logs of NCCL "
    "Inspector have it (`--nccl-records`), but not in CUDA graphs.",
}
_NO_RANKS = (
    "the file does not say how many ranks take part, which bus bandwidths depend on, and the sizes "
    "of what is gathered or scattered, of which NCCL notes one rank's part."
)


def collective_record(
    group: CollectiveGroup, steps: int, *, channels: bool
) -> summary.CollectiveGroup:
    """One group as a record.

    Bandwidth counts as measured only where all ranks of the group were matched. Otherwise the
    shortest duration that is known may still hold waiting, so it gives a lower bound.

    Args:
        steps: iterations of the summary; 0 where the whole capture is one window.
        channels: whether the blocks of its kernels are counted.
    """
    factor = bus_factor(group.operation, group.group_size)
    shortest = group.rate(group.transfer_ns, group.matched)
    exact = shortest if group.complete else None
    least = shortest if shortest is not None else group.rate(group.duration_ns, group.count)
    return summary.CollectiveGroup(
        operation=msgspec.convert(group.operation.name.lower(), OperationName),
        dtype=msgspec.convert(group.dtype, summary.ReducedType | None),
        bytes=group.bytes,
        group_size=group.group_size,
        count=group.count,
        count_per_step=round(group.count / steps, 3) if steps else None,
        total_ns=group.busy_ns,
        exposed_ns=group.exposed_ns,
        overlapped_ns=group.overlapped_ns,
        duration_ns=group.duration_ns,
        matched=group.matched,
        transfer_ns=group.transfer_ns,
        skew_ns=group.skew_ns,
        algbw_gbps=_scaled(exact, 1.0),
        busbw_gbps=_scaled(exact, factor),
        algbw_at_least_gbps=_scaled(least, 1.0),
        busbw_at_least_gbps=_scaled(least, factor),
        channels=group.channels if channels and group.channels is not None else UNSET,
        forward=group.forward or UNSET,
    )


def _scaled(rate: float | None, factor: float | None) -> float | None:
    return None if rate is None or factor is None else round(rate * factor, 3)


def all_reduces(groups: Sequence[CollectiveGroup], steps: int) -> float | None:
    """All-reduces per step; None where some collective does not say what it does."""
    if not steps or any(g.operation == Operation.OTHER and g.count for g in groups):
        return None
    counted = sum(g.count for g in groups if g.operation == Operation.ALL_REDUCE)
    return round(counted / steps, 3)


def total_bytes(groups: Sequence[CollectiveGroup], steps: int) -> int | None:
    """Bytes of all messages, per step or in the whole capture; None where any is unknown."""
    sizes = [g.bytes for g in groups if g.count]
    if not sizes or None in sizes:
        return None
    total = sum((g.bytes or 0) * g.count for g in groups)
    return round(total / max(steps, 1))


def why_unknown(groups: Sequence[CollectiveGroup], form: str) -> str | None:
    """Why messages have no size, or groups no number of ranks; None where all have."""
    calls = [g for g in groups if g.operation != Operation.COPY]
    count = sum(g.count for g in calls)
    without = sum(g.count for g in calls if g.bytes is None)
    if without and (form != "nsys" or without == count):
        return f"{without} of {count} collectives have no size: {_NO_SIZE[form]}"
    apart = sum(g.count for g in calls if g.group_size is None)
    return f"{apart} of {count} collectives: {_NO_RANKS}" if apart else None
