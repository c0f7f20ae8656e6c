"""A scenario as a `Trace`, without a file in between: what any reader should make of it."""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Iterable

from msgspec.structs import replace

from tests.builders import truth
from tests.builders.scenario import Op, Operator, Scenario
from traceprobe.model.codes import UNKNOWN, Operation, Role, Source
from traceprobe.model.events import (
    GPU_OPS,
    HOST_CALLS,
    HOST_RANGES,
    HOST_WORK,
    Device,
    Origin,
    Trace,
    frame,
)
from traceprobe.model.quality import Quality

ORIGIN = Origin("memory", "0" * 64, "kineto", "E", "tests", 0)
OPERATIONS = {
    "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)".lower(): Operation.SEND_RECV,
    "allgather": Operation.ALL_GATHER,
    "send": Operation.SEND_RECV,
    "recv": Operation.SEND_RECV,
}
"""Of collectives that are no all-reduces, by the name in a script."""
_FRAMEWORK = re.compile(r"^(ProfilerStep#|Optimizer\.|enumerate\(Data|\[DALI\])")


def trace(scenario: Scenario, profiled: Iterable[str] = (), **metadata: object) -> Trace:
    """The columns of a scenario; `profiled` and `metadata` are those of `Trace`."""
    index: dict[str, int] = {}

    def number(name: str) -> int:
        return index.setdefault(name, len(index))

    ops = [
        row
        | {"name": number(op.label), "role": _role(scenario, row)}
        | _message(op)
        | {"grid": op.blocks or UNKNOWN, "occupancy": UNKNOWN}
        for op, row in _ops(scenario)
    ]
    calls = [row | {"name": number(row["name"])} for row in truth.host_calls(scenario)]
    ranges = [
        row | {"name": number(row["name"]), "source": _source(row)}
        for row in truth.host_ranges(scenario)
    ]
    ranges += [
        {
            "pid": row.pid,
            "thread": row.thread,
            "t0": row.t0,
            "t1": row.t1,
            "name": number(row.name),
            "source": int(Source.PROFILER),
        }
        for row in scenario.overheads
        if not row.driver
    ]
    known = {(p.pid, i): n for p in scenario.processes for i, n in enumerate(p.devices)}
    if scenario.world_size is not None:
        metadata = {"world_size": scenario.world_size, **metadata}
    return Trace(
        # Traces of one content are copies of one file.
        origin=replace(ORIGIN, sha256=hashlib.sha256(repr(scenario).encode()).hexdigest()),
        names=list(index),
        gpu_ops=_frame(GPU_OPS, ops).sort("t0", "t1", "stream", "correlation", maintain_order=True),
        host_calls=_frame(HOST_CALLS, calls).sort("t0", "t1", "thread"),
        host_ranges=_frame(HOST_RANGES, ranges).sort("t0", "t1", "thread", "name"),
        devices=tuple(
            Device(pid, device, known.get((pid, device)))
            for pid, device in sorted({(op.pid, op.device) for op in scenario.ops})
        ),
        quality=Quality(),
        rank_of={p.pid: p.rank for p in scenario.processes if p.rank is not None},
        thread_names=scenario.thread_names,
        profiled=frozenset(profiled),
        metadata=metadata,
        host_work=_frame(HOST_WORK, _work(scenario)),
    )


def _work(scenario: Scenario):
    """A row for each operator; readers join those that follow each other."""
    return [
        {"pid": o.pid, "thread": o.thread, "t0": o.t0, "t1": o.t1}
        for o in sorted(scenario.operators, key=lambda o: (o.pid, o.thread, o.t0))
    ]


def _ops(scenario: Scenario):
    """Each op with its row; rows come back ordered, so they are made one at a time."""
    for op in scenario.ops:
        (row,) = truth.gpu_ops(Scenario(ops=(op,)))
        yield op, row


def _message(op: Op):
    """The columns of a collective: an all-reduce unless its name says another."""
    operation = {"comm": Operation.ALL_REDUCE, "p2p": Operation.COPY}.get(op.kind, UNKNOWN)
    note = op.message
    name = op.name.removeprefix("nccl_") if note is None else note.name
    operation = OPERATIONS.get(name.lower(), operation)
    if note is None:
        return {"operation": int(operation), "group": UNKNOWN, "group_size": UNKNOWN}
    return {
        "operation": int(operation),
        "group": zlib.crc32(f"{note.group} {note.ranks}".encode()),
        "group_size": len(note.ranks),
    }


def _frame(schema, rows):
    return frame(schema, {c: [row[c] for row in rows] for c in schema})


def _source(row: truth.Row) -> int:
    return int(Source.FRAMEWORK) if _FRAMEWORK.search(row["name"]) else row["source"]


def _role(scenario: Scenario, row: truth.Row) -> int:
    """What autograd says: a forward operator inside a backward one is the inner one."""
    around = [
        o
        for o in scenario.operators
        if (o.pid, o.thread) == (row["pid"], row["thread"])
        and o.t0 <= row["launch_t0"] < o.t1
        and row["linked"]
    ]
    if any(_is_forward(o) for o in around):
        return int(Role.FORWARD)
    return int(Role.BACKWARD if any(o.forward_thread for o in around) else Role.UNKNOWN)


def _is_forward(operator: Operator) -> bool:
    return operator.sequence is not None and not operator.forward_thread
