"""What a log of NCCL Inspector notes of the launches of NCCL's kernels."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby

import polars as pl

from traceprobe.ingest.collective_metadata import OF_ONE_RANK, collective_operation
from traceprobe.ingest.nccl.inspector_log import InspectorLog, NotedOperation
from traceprobe.ingest.nccl.noted_calls import NOTED_CALLS
from traceprobe.ingest.untrusted_values import FARTHEST_NS, MOST_BYTES, integer
from traceprobe.model.codes import UNKNOWN, Int64s, Operation

_NAME = re.compile(r"0x[0-9a-f]{1,14}")
_DIGITS = 14
"""Hexadecimal digits of a communicator's hash that the log has room for."""
_UNEVEN = "AllGatherV"
"""Gathers parts of different sizes, so that one rank's tells nothing of the whole."""
_NONE_OF_THESE = -2
"""Communicator of a kernel of which the log has none."""


def inspected_calls(log: InspectorLog) -> pl.DataFrame:
    """The launches that a log notes, as `NOTED_CALLS`, in the order of their times.

    NCCL tells the plugin when it launches a kernel: of all operations in it that they begin, then
    of all that they end (`hostStreamPlanTask` in src/enqueue.cc). So operations of a communicator
    whose times overlap are one kernel. Without operations that have no times.
    """
    timed = [
        noted
        for noted in log.operations
        if 0 < noted.began_us <= noted.ended_us < FARTHEST_NS // 1000 and noted.ranks != 1
    ]
    timed.sort(key=lambda noted: (noted.communicator, noted.began_us))
    rows = [
        _row(kernel)
        for _, own in groupby(timed, key=lambda noted: noted.communicator)
        for kernel in _kernels(own)
    ]
    calls = pl.DataFrame(rows, schema=dict(NOTED_CALLS), orient="row")
    return calls.sort("created_ns", maintain_order=True)


def communicator_number(name: str) -> int:
    """A number for a communicator, the same in the logs of all its ranks."""
    return int(name, 16) if _NAME.fullmatch(name) else UNKNOWN


def communicators_of_log(groups: Int64s, numbers: Int64s) -> Int64s:
    """Numbers in a log of communicators that NCCL's NVTX ranges name.

    The ranges have the hash without its sign (see `nsight.nccl`), the log has its first digits.

    Args:
        groups: as in GPU ops, UNKNOWN where the trace does not say.
        numbers: those of the log.
    """
    known = set(numbers.tolist()) - {UNKNOWN}
    found = groups.copy()
    for group in set(groups.tolist()) - {UNKNOWN}:
        hashes = (group, group | 1 << 63)
        heads = (int(f"{each:x}"[:_DIGITS], 16) for each in hashes)
        found[groups == group] = next((head for head in heads if head in known), _NONE_OF_THESE)
    return found


def _kernels(own: Iterator[NotedOperation]) -> Iterator[list[NotedOperation]]:
    """Operations of one communicator by kernel, of which the plugin heard at once."""
    together: list[NotedOperation] = []
    ends = UNKNOWN
    for noted in own:
        if together and noted.began_us > ends:
            yield together
            together, ends = [], UNKNOWN
        together.append(noted)
        ends = max(ends, noted.ended_us)
    yield together


def _row(kernel: Sequence[NotedOperation]) -> tuple[object, ...]:
    first = kernel[0]
    kinds = {collective_operation(noted.operation) for noted in kernel}
    kind = kinds.pop() if len(kinds) == 1 else Operation.OTHER
    return (
        first.began_us * 1000,
        int(kind),
        "",
        UNKNOWN if kind == Operation.OTHER else _message(kernel, kind),
        communicator_number(first.communicator),
        first.ranks,
        integer(first.sequence),
        False,
    )


def _message(kernel: Sequence[NotedOperation], kind: Operation) -> int:
    """Bytes of the message. Of messages to and fro NCCL counts what is sent."""
    counted = [noted for noted in kernel if noted.operation != "Recv"] or kernel
    # Of types that the plugin does not know it writes a size that no message has.
    plausible = all(
        0 < noted.bytes <= MOST_BYTES and noted.operation != _UNEVEN for noted in counted
    )
    parts = counted[0].ranks if kind in OF_ONE_RANK else 1
    total = sum(noted.bytes for noted in counted) * parts
    return total if plausible and 0 < total <= MOST_BYTES else UNKNOWN
