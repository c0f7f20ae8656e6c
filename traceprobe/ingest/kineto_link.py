"""Kineto columns to the event model: GPU ops with their launch sites, calls, ranges.

A GPU op is linked to its launch by correlation id, then by the External id of the operator that
made it; what stays unlinked keeps its time and has no launch site. In a run without a GPU the
outermost operators of each thread are the device's work.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from traceprobe.ingest.classify import (
    api_name,
    call_kind,
    copy_kind,
    is_blocking,
    is_profiler,
    kernel_kind,
)
from traceprobe.ingest.kineto_columns import Table
from traceprobe.model import (
    GPU_OPS,
    HOST_CALLS,
    HOST_RANGES,
    UNKNOWN,
    Bools,
    Call,
    Device,
    EmptyTrace,
    Int64s,
    Kind,
    Origin,
    Quality,
    Role,
    Source,
    Trace,
    frame,
)

_FRAMEWORK = re.compile(
    r"^(ProfilerStep#|Optimizer\.|enumerate\(Data|DistributedDataParallel\.|DataParallel\."
    r"|FullyShardedDataParallel|FSDP::|nccl:|gloo:|mpi:|ucc:|c10d|## Call |Torch-Compiled|\[pl\])"
)
_STEP_OPERATOR = re.compile(
    r"^(ProfilerStep#|Optimizer\.(step|zero_grad)|enumerate\(Data|DistributedDataParallel\.forward"
    r"|DataParallel\.forward|FullyShardedDataParallel|FSDP::)"
)
_CPU_COLLECTIVE = re.compile(r"^(gloo|mpi|ucc|nccl):")


def build(
    tables: Mapping[str, Table],
    names: list[str],
    metadata: Mapping[str, Any],
    origin: Origin,
    quality: Quality,
    thread_names: Mapping[tuple[int, int], str],
    categories: set[str],
) -> Trace:
    """Assemble the trace.

    Raises:
        EmptyTrace: no GPU work, and no operators under a step or phase annotation either.
    """
    operators, calls = tables.get("operators"), tables.get("calls")
    pids = _host_pids(tables)
    if len(pids) > 1:
        quality.warn(
            "several-processes",
            f"The file holds {len(pids)} host processes; their GPU rows cannot be told apart.",
        )
    role = _roles(operators)
    host_calls = _host_calls(calls, names, role)
    ranges = _ranges(tables, names)
    kind = "gpu"
    if "gpu" in tables:
        gpu = _gpu_ops(tables["gpu"], names, host_calls, operators, pids)
    elif "legacy_gpu" in tables:
        gpu = _legacy_ops(tables, names)
    elif operators is not None and len(ranges["t0"]):
        gpu, kind = _cpu_work(operators, names, role), "cpu"
    else:
        raise EmptyTrace(f"{origin.name}: {_why_empty(metadata, operators)}")
    host_calls["recorded"] = np.isin(
        host_calls["correlation"], gpu["correlation"][gpu["linked"]]
    ) & (host_calls["correlation"] != UNKNOWN)
    ops = frame(GPU_OPS, gpu).sort("t0", "t1", "stream", "correlation", maintain_order=True)
    devices = [
        (int(p), int(d))
        for p, d in ops.select("pid", "device").unique().sort("pid", "device").rows()
    ]
    return Trace(
        origin=origin,
        names=names,
        gpu_ops=ops,
        host_calls=frame(HOST_CALLS, {c: host_calls[c] for c in HOST_CALLS}).sort(
            "t0", "t1", "thread"
        ),
        host_ranges=frame(HOST_RANGES, ranges).sort("t0", "t1", "thread", "name"),
        devices=tuple(
            Device(p, d, _device_name(metadata, d) if kind == "gpu" else "CPU", kind)
            for p, d in devices
        ),
        quality=quality,
        rank_of=_rank(metadata, pids),
        thread_names=thread_names,
        profiled=_profiled(metadata, categories),
        metadata=_facts(metadata),
    )


def _host_pids(tables: Mapping[str, Table]) -> list[int]:
    found = [tables[g]["pid"] for g in ("calls", "operators", "ranges") if g in tables]
    pids = np.unique(np.concatenate(found)) if found else np.array([0])
    return [int(pid) for pid in pids]


def _roles(operators: Table | None) -> Callable[[Int64s, Int64s], Int64s]:
    """A function (thread, time) to Role.

    Autograd gives a backward operator a non-zero `Fwd thread id`; a forward operator that runs
    inside one (activation recomputation) has a sequence number and `Fwd thread id` 0.
    """
    if operators is None:
        return lambda thread, time: np.full(len(time), Role.UNKNOWN, dtype=np.int64)
    backward = operators["forward_thread"] > 0
    forward = (operators["forward_thread"] <= 0) & (operators["sequence"] != UNKNOWN)
    covers = {
        (role, int(thread)): _union(operators, mask & (operators["thread"] == thread))
        for role, mask in ((Role.BACKWARD, backward), (Role.FORWARD, forward))
        for thread in np.unique(operators["thread"][mask])
    }

    def role(thread: Int64s, time: Int64s) -> Int64s:
        result = np.full(len(time), Role.UNKNOWN, dtype=np.int64)
        for (value, owner), (starts, ends) in covers.items():  # forward last: it is the inner one
            inside = np.searchsorted(starts, time, "right") - 1
            hit = (thread == owner) & (inside >= 0) & (ends[inside] > time)
            result[hit] = value
        return result

    return role


def _union(table: Table, mask: Bools) -> tuple[Int64s, Int64s]:
    order = np.argsort(table["t0"][mask], kind="stable")
    t0, t1 = table["t0"][mask][order], np.maximum.accumulate(table["t1"][mask][order])
    first = np.concatenate([[True], t0[1:] > t1[:-1]])
    last = np.concatenate([first[1:], [True]])
    return t0[first], t1[last]


def _host_calls(
    calls: Table | None, names: list[str], role: Callable[[Int64s, Int64s], Int64s]
) -> dict[str, Any]:
    if calls is None:
        return {
            **{c: np.empty(0, dtype=np.int64) for c in (*HOST_CALLS, "role")},
            "blocking": np.empty(0, dtype=bool),
            "recorded": np.empty(0, dtype=bool),
        }
    return {
        **calls,
        "call": _per_name(calls["name"], names, lambda name: call_kind(api_name(name))),
        "blocking": _per_name(calls["name"], names, is_blocking).astype(bool),
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
    call = _find(gpu["correlation"], calls["correlation"], order)
    linked = call != UNKNOWN
    site = {
        "launch_t0": _take(calls["t0"], call),
        "launch_t1": _take(calls["t1"], call),
        "thread": _take(calls["thread"], call),
        "role": np.where(linked, _take(calls["role"], call), Role.UNKNOWN),
        "pid": np.where(linked, _take(calls["pid"], call), pids[0]),
    }
    if operators is not None:
        # Before October 2024 an unlinked row carried its own correlation id as External id.
        bogus = gpu["external"] == gpu["correlation"]
        wanted = np.where(linked | bogus, UNKNOWN, gpu["external"])
        op = _find(wanted, operators["external"], np.argsort(operators["t0"], kind="stable"))
        found = (op != UNKNOWN) & (_take(operators["t0"], op) <= gpu["t0"])
        for column, source in (("launch_t0", "t0"), ("launch_t1", "t0"), ("thread", "thread")):
            site[column] = np.where(found, _take(operators[source], op), site[column])
        site["role"] = np.where(found, _role_of(operators, op), site["role"])
    return {
        **{c: gpu[c] for c in ("device", "stream", "name", "t0", "t1", "bytes", "correlation")},
        **site,
        "kind": _kinds(gpu, names),
        "pageable": _per_name(gpu["name"], names, lambda n: "pageable" in n.lower()).astype(bool),
        "graph": gpu["graph"] > 0,
        "linked": linked,
    }


def _role_of(operators: Table, op: Int64s) -> Int64s:
    backward = _take(operators["forward_thread"], op) > 0
    return np.where(backward, int(Role.BACKWARD), int(Role.UNKNOWN))


def _kinds(gpu: Table, names: list[str]) -> Int64s:
    copies = _per_name(gpu["name"], names, copy_kind)
    kernels = _per_name(gpu["name"], names, kernel_kind)
    category = (
        np.array([names[c] for c in gpu["category"]]) if len(gpu["category"]) else np.empty(0, "U1")
    )
    return np.select(
        [category == "memcpy", category == "memset"], [copies, int(Kind.MEMSET)], default=kernels
    ).astype(np.int64)


def _legacy_ops(tables: Mapping[str, Table], names: list[str]) -> dict[str, Any]:
    """Dialect A: a GPU row is linked by the arrow that ends at its start."""
    gpu = tables["legacy_gpu"]
    count = len(gpu["t0"])
    site = {c: np.full(count, UNKNOWN, dtype=np.int64) for c in ("launch_t0", "thread")}
    if "flow_s" in tables and "flow_f" in tables:
        start, finish = tables["flow_s"], tables["flow_f"]
        arrow = _find(gpu["t0"], finish["t0"], np.arange(len(finish["t0"])))
        origin = _find(_take(finish["id"], arrow), start["id"], np.arange(len(start["id"])))
        for column, source in (("launch_t0", "t0"), ("thread", "thread")):
            site[column] = _take(start[source], origin)
    unknown = np.full(count, UNKNOWN, dtype=np.int64)
    copies = _per_name(gpu["name"], names, copy_kind)
    kernels = _per_name(gpu["name"], names, kernel_kind)
    lower = _per_name(
        gpu["name"], names, lambda n: 1 * ("memcpy" in n.lower()) + 2 * ("memset" in n.lower())
    )
    host = tables.get("operators")
    return {
        **{c: gpu[c] for c in ("name", "t0", "t1")},
        **site,
        "launch_t1": site["launch_t0"],
        "pid": np.full(count, host["pid"][0] if host is not None else 0, dtype=np.int64),
        "device": gpu["thread"],
        "stream": np.zeros(count, dtype=np.int64),
        "kind": np.select([lower == 1, lower == 2], [copies, int(Kind.MEMSET)], default=kernels),
        "bytes": unknown,
        "correlation": unknown,
        "pageable": np.zeros(count, dtype=bool),
        "graph": np.zeros(count, dtype=bool),
        "linked": site["launch_t0"] != UNKNOWN,
        "role": np.full(count, Role.UNKNOWN, dtype=np.int64),
    }


def _cpu_work(
    operators: Table, names: list[str], role: Callable[[Int64s, Int64s], Int64s]
) -> dict[str, Any]:
    """The outermost operators of each thread as the work of a device called CPU."""
    steps = _per_name(operators["name"], names, lambda n: bool(_STEP_OPERATOR.search(n))).astype(
        bool
    )
    ops = {c: v[~steps] for c, v in operators.items()}
    order = np.lexsort((-ops["t1"], ops["t0"], ops["thread"]))
    ops = {c: v[order] for c, v in ops.items()}
    keep = np.ones(len(order), dtype=bool)
    for thread in np.unique(ops["thread"]):
        mine = np.flatnonzero(ops["thread"] == thread)
        end = np.maximum.accumulate(ops["t1"][mine])
        keep[mine[1:]] = ops["t0"][mine][1:] >= end[:-1]
    ops = {c: v[keep] for c, v in ops.items()}
    count = len(ops["t0"])
    collective = _per_name(ops["name"], names, lambda n: bool(_CPU_COLLECTIVE.search(n))).astype(
        bool
    )
    return {
        **{c: ops[c] for c in ("pid", "name", "t0", "t1", "thread")},
        "device": np.zeros(count, dtype=np.int64),
        "stream": ops["thread"],
        "kind": np.where(collective, int(Kind.COMM), int(Kind.KERNEL)),
        "bytes": np.full(count, UNKNOWN, dtype=np.int64),
        "correlation": np.full(count, UNKNOWN, dtype=np.int64),
        "pageable": np.zeros(count, dtype=bool),
        "graph": np.zeros(count, dtype=bool),
        "linked": np.ones(count, dtype=bool),
        "launch_t0": ops["t0"],
        "launch_t1": ops["t0"],
        "role": role(ops["thread"], ops["t0"]),
    }


def _ranges(tables: Mapping[str, Table], names: list[str]) -> dict[str, Any]:
    """User annotations, the few operators that mark a step, and the profiler's own rows."""
    columns = ("pid", "thread", "t0", "t1", "name")
    parts: list[dict[str, Any]] = []
    if "ranges" in tables:
        framework = _per_name(tables["ranges"]["name"], names, lambda n: bool(_FRAMEWORK.search(n)))
        parts.append({**tables["ranges"], "source": framework})  # Source.USER is 0, FRAMEWORK 1
    for group, pattern, source in (
        ("operators", lambda n: bool(_STEP_OPERATOR.search(n)), Source.FRAMEWORK),
        ("overhead", is_profiler, Source.PROFILER),
    ):
        if group in tables:
            table = tables[group]
            chosen = _per_name(table["name"], names, pattern).astype(bool)
            kept = {c: table[c][chosen] for c in columns}
            parts.append({**kept, "source": np.full(int(chosen.sum()), source, dtype=np.int64)})
    none = np.empty(0, dtype=np.int64)
    return {c: np.concatenate([none, *(p[c] for p in parts)]) for c in (*columns, "source")}


def _per_name(ids: Int64s, names: list[str], value: Callable[[str], Any]) -> Int64s:
    """Apply a function to each distinct name and spread the result over the rows."""
    distinct, inverse = np.unique(ids, return_inverse=True)
    return np.array([int(value(names[i])) for i in distinct], dtype=np.int64)[inverse]


def _find(wanted: Int64s, keys: Int64s, order: Int64s) -> Int64s:
    """For each wanted id the first row of `keys` in `order` that has it, or UNKNOWN."""
    if not len(keys) or not len(wanted):
        return np.full(len(wanted), UNKNOWN, dtype=np.int64)
    by_key = order[np.argsort(keys[order], kind="stable")]
    at = np.minimum(np.searchsorted(keys[by_key], wanted), len(keys) - 1)
    rows = by_key[at]
    return np.where((keys[rows] == wanted) & (wanted != UNKNOWN), rows, UNKNOWN)


def _take(column: Int64s, rows: Int64s) -> Int64s:
    if not len(column):
        return np.full(len(rows), UNKNOWN, dtype=np.int64)
    return np.where(rows == UNKNOWN, UNKNOWN, column[rows])


def _rank(metadata: Mapping[str, Any], pids: list[int]) -> dict[int, int]:
    info = metadata.get("distributedInfo")
    rank = info.get("rank") if isinstance(info, dict) else None
    return {pids[0]: rank} if isinstance(rank, int) and len(pids) == 1 else {}


def _device_name(metadata: Mapping[str, Any], index: int) -> str | None:
    properties = metadata.get("deviceProperties")
    for device in properties if isinstance(properties, list) else []:
        if isinstance(device, dict) and device.get("id") == index:
            return str(device.get("name") or "") or None
    return None


def _profiled(metadata: Mapping[str, Any], categories: set[str]) -> frozenset[str]:
    marks = {
        "operators": categories & {"cpu_op", "Operator"},
        "stacks": categories & {"python_function", "Python"} or metadata.get("with_stack"),
        "memory": categories & {"cpu_instant_event"} or metadata.get("profile_memory"),
        "shapes": metadata.get("record_shapes"),
    }
    return frozenset(mark for mark, present in marks.items() if present)


def _facts(metadata: Mapping[str, Any]) -> dict[str, Any]:
    info = metadata.get("distributedInfo")
    facts: dict[str, Any] = {}
    if isinstance(info, dict) and isinstance(info.get("world_size"), int):
        facts["world_size"] = info["world_size"]
    if isinstance(metadata.get("traceprobe"), dict):
        facts["traceprobe"] = metadata["traceprobe"]
    return facts


def _why_empty(metadata: Mapping[str, Any], operators: Table | None) -> str:
    """The reason from the file itself where it has one."""
    for level in ("ERROR", "WARNING"):
        messages = metadata.get(level)
        if isinstance(messages, list) and messages:
            return f"no GPU work in the trace. The profiler said: {str(messages[0])[:300]}"
    if operators is None:
        return (
            "no GPU work and no operators in the trace; profile with "
            "`activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]`"
        )
    return (
        "no GPU work, and no step or phase annotations to describe a CPU run; call `prof.step()` "
        'each iteration or wrap it in `record_function("step N")`'
    )
