"""Device work of traces without today's GPU rows: legacy autograd lists, and runs on a CPU."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from traceprobe.ingest.collective_metadata import collective_operations
from traceprobe.ingest.event_kinds import copy_kind, kernel_kind
from traceprobe.ingest.joins import (
    Table,
    find_rows,
    keep_rows,
    per_name,
    take_rows,
    union_of_rows,
)
from traceprobe.ingest.kineto.cpu_operators import cpu_operators
from traceprobe.model.codes import UNKNOWN, Ints, Kind, Role

LOADING = re.compile(r"^enumerate\(Data")
OF_GPU = re.compile(r"^aten::(?!.*is_acceptable).*(cudnn|miopen|cublas)|^nccl:")
"""Operators and ranges that only a run on a GPU has; whether cuDNN would do, a CPU asks too."""
OF_CPU = re.compile(r"^aten::(mkldnn_(convolution|linear|rnn)|_?nnpack|\w+_for_cpu$)")
"""Operators of libraries that compute on a CPU only."""
PRODUCT = re.compile(r"^aten::(add|badd)?b?mm$")
"""Operators that compute products of matrices themselves, on whatever device."""
COLLECTIVE = re.compile(r"^(gloo|mpi|ucc|nccl):")


def legacy_ops(tables: Mapping[str, Table], names: list[str]) -> dict[str, Any]:
    """Dialect A: a GPU row is linked by the arrow that ends at its start."""
    gpu = tables["legacy_gpu"]
    count = len(gpu["t0"])
    site = {c: np.full(count, UNKNOWN, dtype=np.int64) for c in ("launch_t0", "thread")}
    if "flow_s" in tables and "flow_f" in tables:
        start, finish = tables["flow_s"], tables["flow_f"]
        arrow = find_rows(gpu["t0"], finish["t0"], np.arange(len(finish["t0"])))
        origin = find_rows(take_rows(finish["id"], arrow), start["id"], np.arange(len(start["id"])))
        for column, source in (("launch_t0", "t0"), ("thread", "thread")):
            site[column] = take_rows(start[source], origin)
    copies = per_name(gpu["name"], names, copy_kind)
    kernels = per_name(gpu["name"], names, kernel_kind)
    lower = per_name(
        gpu["name"], names, lambda n: 1 * ("memcpy" in n.lower()) + 2 * ("memset" in n.lower())
    )
    host = tables.get("operators")
    kind = np.select([lower == 1, lower == 2], [copies, int(Kind.MEMSET)], default=kernels)
    return {
        **_unknown_ops(count),
        **{c: gpu[c] for c in ("name", "t0", "t1")},
        **site,
        "launch_t1": site["launch_t0"],
        "pid": np.full(count, host["pid"][0] if host is not None else 0, dtype=np.int64),
        "device": gpu["thread"],
        "stream": np.zeros(count, dtype=np.int64),
        "kind": kind,
        "operation": collective_operations(kind, gpu["name"], names),
        "linked": site["launch_t0"] != UNKNOWN,
        "role": np.full(count, Role.UNKNOWN, dtype=np.int64),
    }


def cpu_work(
    operators: Table,
    ranges: Mapping[str, Any],
    names: list[str],
    role: Callable[[Ints, Ints], Ints],
) -> tuple[dict[str, Any], Table]:
    """The operators of each thread as the work of a device called CPU.

    What runs inside `DataLoader.__next__` is the input pipeline, which the device waits for.

    Returns:
        Columns of `GPU_OPS`, and the operators around some of them that are no work by themselves.
    """
    loading = per_name(ranges["name"], names, lambda n: bool(LOADING.search(n))).astype(bool)
    inside = np.zeros(len(operators["t0"]), dtype=bool)
    for thread in np.unique(ranges["thread"][loading]):
        starts, ends = union_of_rows(ranges, loading & (ranges["thread"] == thread))
        at = np.searchsorted(starts, operators["t0"], "right") - 1
        inside |= (operators["thread"] == thread) & (at >= 0) & (ends[at] > operators["t0"])
    ops, in_backward, around = cpu_operators(keep_rows(operators, ~inside), ranges, names)
    # Gloo's collectives are annotations on threads of its own.
    wire = per_name(ranges["name"], names, lambda n: bool(COLLECTIVE.search(n))).astype(bool)
    columns = ("pid", "name", "t0", "t1", "thread")
    ops = {c: np.concatenate([ops[c], ranges[c][wire]]) for c in columns}
    count = len(ops["t0"])
    known = np.append(in_backward, np.full(int(wire.sum()), UNKNOWN))
    collective = per_name(ops["name"], names, lambda n: bool(COLLECTIVE.search(n))).astype(bool)
    kind = np.where(collective, int(Kind.COMM), int(Kind.KERNEL))
    work = {
        **_unknown_ops(count),
        **{c: ops[c] for c in columns},
        "device": np.zeros(count, dtype=np.int64),
        "stream": ops["thread"],
        "kind": kind,
        "operation": collective_operations(kind, ops["name"], names),
        "linked": np.ones(count, dtype=bool),
        "launch_t0": ops["t0"],
        "launch_t1": ops["t0"],
        "role": np.where(known == UNKNOWN, role(ops["thread"], ops["t0"]), known),
    }
    return work, around


def gpu_operator(operators: Table, ranges: Mapping[str, Any], names: list[str]) -> str | None:
    """The name of an operator or a range that only a run on a GPU has; None without one."""
    used = np.union1d(operators["name"], ranges["name"]).tolist()
    return next((names[i] for i in used if OF_GPU.search(names[i])), None)


def _unknown_ops(count: int) -> dict[str, Any]:
    """Columns of `GPU_OPS` that such traces say nothing of."""
    unknown, no = np.full(count, UNKNOWN, dtype=np.int64), np.zeros(count, dtype=bool)
    return {
        **dict.fromkeys(("bytes", "correlation", "group", "group_size", "grid"), unknown),
        "occupancy": unknown,
        **dict.fromkeys(("pageable", "graph"), no),
    }
