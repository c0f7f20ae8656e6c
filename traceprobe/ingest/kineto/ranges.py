"""Host ranges of a Kineto trace: annotations, step-marking operators, the profiler's own rows."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from traceprobe.ingest.event_kinds import overhead_source
from traceprobe.ingest.joins import Table, per_name, union_of_rows
from traceprobe.model.codes import Ints, Source
from traceprobe.model.events import HOST_WORK
from traceprobe.model.step_names import counts_the_loop

_FRAMEWORK = re.compile(
    r"^(ProfilerStep#|Optimizer\.|enumerate\(Data|DistributedDataParallel\.|DataParallel\."
    r"|FullyShardedDataParallel|FSDP::|nccl:|gloo:|mpi:|ucc:|c10d|## Call |Torch-Compiled|\[pl\])"
)
_STEP_OPERATOR = re.compile(
    r"^(ProfilerStep#|Optimizer\.(step|zero_grad)|enumerate\(Data|DistributedDataParallel\.forward"
    r"|DataParallel\.forward|FullyShardedDataParallel|FSDP::)"
)
_PHASE_OPERATOR = re.compile(r"^(forward|backward|optimizer|h2d|data_?load\w*)$", re.I)
PAUSE_NS = 100_000
"""Between two operators of a thread, what Python takes in passing; waits that matter are longer."""
_COLUMNS = ("pid", "thread", "t0", "t1", "name")


def operator_sources(operators: Table, names: list[str], categories: set[str]) -> Ints:
    """`Source` of each operator row that is really an annotation, -1 for operators.

    Dialects A and B have no category for a user's annotations; there their names must tell.
    """
    anonymous = not categories & {"user_annotation", "User"}

    def source(name: str) -> int:
        if _STEP_OPERATOR.search(name):
            return Source.FRAMEWORK
        is_annotation = _PHASE_OPERATOR.search(name) or counts_the_loop(name)
        return Source.USER if anonymous and is_annotation else -1

    return per_name(operators["name"], names, source)


def host_ranges(
    tables: Mapping[str, Table], names: list[str], operator_source: Ints | None, pids: Sequence[int]
) -> dict[str, Any]:
    """Columns of HOST_RANGES.

    Args:
        operator_source: of the operators, as `operator_sources` has it. pids: of host processes.
    """
    parts: list[dict[str, Any]] = []
    if "ranges" in tables:
        found = per_name(tables["ranges"]["name"], names, lambda n: bool(_FRAMEWORK.search(n)))
        parts.append({**tables["ranges"], "source": found})  # USER is 0, FRAMEWORK is 1
    if operator_source is not None:
        parts.append(_chosen(tables["operators"], operator_source))
    if "overhead" in tables:
        # Kineto writes them without a process.
        rows = tables["overhead"]
        if len(pids) == 1:
            rows = {**rows, "pid": np.full(len(rows["pid"]), pids[0], dtype=np.int64)}
        parts.append(_chosen(rows, per_name(rows["name"], names, overhead_source)))
    none = np.empty(0, dtype=np.int64)
    return {c: np.concatenate([none, *(p[c] for p in parts)]) for c in (*_COLUMNS, "source")}


def host_work(operators: Table | None) -> dict[str, Any]:
    """Columns of HOST_WORK: when each thread runs operators, pauses below `PAUSE_NS` left out."""
    none = np.empty(0, dtype=np.int64)
    parts: list[dict[str, Any]] = []
    if operators is not None:
        longer = {"t0": operators["t0"], "t1": operators["t1"] + PAUSE_NS}
        for pid in np.unique(operators["pid"]).tolist():
            own = operators["pid"] == pid
            for thread in np.unique(operators["thread"][own]).tolist():
                t0, t1 = union_of_rows(longer, own & (operators["thread"] == thread))
                same = {"pid": np.full(len(t0), pid), "thread": np.full(len(t0), thread)}
                parts.append({**same, "t0": t0, "t1": t1 - PAUSE_NS})
    return {c: np.concatenate([none, *(p[c] for p in parts)]) for c in HOST_WORK}


def _chosen(rows: Table, source: Ints) -> dict[str, Any]:
    keep = source >= 0
    return {**{c: rows[c][keep] for c in _COLUMNS}, "source": source[keep]}
