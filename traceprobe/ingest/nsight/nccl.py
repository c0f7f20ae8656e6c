"""What NCCL's own NVTX ranges say of its kernels: operation, message, communicator.

A kernel is launched inside the range of the call that asked for it, or inside the end of a group of
calls. Sizes are in the payloads of the ranges, which `nsys export` writes on demand only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from traceprobe.ingest.collective_metadata import (
    OF_ONE_RANK,
    collective_operation,
    collective_operations,
)
from traceprobe.ingest.nsight.ids import NameTable
from traceprobe.ingest.nsight.payloads import payloads
from traceprobe.ingest.nsight.tables import MISSING, Database
from traceprobe.ingest.plausibility import plausible_sizes
from traceprobe.ingest.untrusted_values import MOST_BYTES
from traceprobe.model.codes import UNKNOWN, Bools, Int64s, Kind, Operation
from traceprobe.model.quality import Quality
from traceprobe.model.sidecar import MAX_RANKS

_TABLE = "NVTX_EVENTS"
_CALL = re.compile(r"nccl[A-Z]")
_MOST_CALLS = 10_000
"""Registered names of calls, of which NCCL has 30; a query can hold only so much text."""
_MANY_MISSING = 0.1
"""Part of the calls: a capture that ends within a step lacks the kernels of the last ones."""
_NESTING = {"ncclGroupStart": 1, "ncclGroupEnd": -1}
_FIELDS = {
    "message": re.compile(r"message size", re.IGNORECASE),
    "communicator": re.compile(r"communicator", re.IGNORECASE),
    "ranks": re.compile(r"(no\.|number) of ranks", re.IGNORECASE),
}
_PART = [int(operation) for operation in OF_ONE_RANK]
_SAID = ("operation", "message", "communicator", "group_size")


def collective_columns(
    db: Database,
    gpu: Mapping[str, Any],
    names: NameTable,
    world_size: int | None,
    quality: Quality,
) -> dict[str, Int64s]:
    """Columns `operation`, `group`, `group_size` and `bytes` of GPU ops.

    Args:
        gpu: columns of GPU ops with their launch sites; `pid` is the serialised process.
        world_size: ranks of the run, if known.
        quality: is warned where processes lack kernels that they asked for.
    """
    unknown = np.full(len(gpu["kind"]), UNKNOWN, dtype=np.int64)
    found = {
        "operation": collective_operations(gpu["kind"], gpu["name"], list(names.index)),
        "group": unknown,
        "group_size": unknown.copy(),
        "bytes": gpu["bytes"].astype(np.int64),
    }
    comm = np.flatnonzero(gpu["kind"] == int(Kind.COMM))
    calls = _calls(db) if len(comm) else None
    if calls is None:
        return found
    sites = _sites(_sized(calls, world_size))
    _warn_of_missing_kernels(sites, gpu, comm, quality)
    rows, call = _launched_by(sites, gpu, comm)
    has_operation, has_size = call["operation"] != int(Operation.OTHER), _is_size(call["message"])
    found["operation"][rows[has_operation]] = call["operation"][has_operation]
    found["bytes"][rows[has_size]] = call["message"][has_size]
    found["group_size"][rows] = call["group_size"]
    # A hash of 64 bits that all ranks agree on; without its sign it is a number of a group.
    has_communicator = call["communicator"] != UNKNOWN
    found["group"] = unknown.copy()
    found["group"][rows[has_communicator]] = (
        call["communicator"][has_communicator] & np.iinfo(np.int64).max
    )
    return found


def _is_size(message: Int64s) -> Bools:
    return np.asarray(plausible_sizes(message) != UNKNOWN, dtype=np.bool_)


def _calls(db: Database) -> pl.DataFrame | None:
    """NCCL's ranges by thread and start, with their payloads; None where there are none."""
    present = db.columns.get(_TABLE, set())
    registered = [str(i) for i, text in db.strings.items() if _CALL.match(text)][:_MOST_CALLS]
    conditions = []
    if "textId" in present and registered:
        conditions.append(f"textId IN ({', '.join(registered)})")
    if "text" in present:
        conditions.append("text GLOB 'nccl[A-Z]*'")
    if not conditions or "eventType" not in present:
        return None
    chosen = (
        f"eventType = 59 AND typeof(start) IN ('integer', 'real') AND ({' OR '.join(conditions)})"
    )
    wanted = {"start": MISSING, "end": UNKNOWN, "globalTid": UNKNOWN, "domainId": UNKNOWN}
    rows, names = db.named(_TABLE, wanted, chosen)
    if rows is None or not len(rows["start"]):
        return None
    texts = [names[number] for number in rows["text"].tolist()]
    distinct = {text: int(collective_operation(text)) for text in names}
    return pl.DataFrame(
        {
            "thread": rows["globalTid"],
            "start": rows["start"],
            "end": rows["end"],
            "nesting": [_NESTING.get(text, 0) for text in texts],
            "operation": [distinct[text] for text in texts],
            "receives": [text.startswith("ncclRecv") for text in texts],
            **payloads(db, _TABLE, chosen, rows["domainId"], _FIELDS),
        }
    ).sort("thread", "start", maintain_order=True)


def _sized(calls: pl.DataFrame, world_size: int | None) -> pl.DataFrame:
    """Ranks of each communicator, and with them the whole message.

    The call that makes a communicator says how many ranks it has. Where the capture began later,
    one that as many processes use as the run has ranks has that many.
    """
    known = pl.col("communicator") != UNKNOWN
    users = (pl.col("thread") // (1 << 24)).n_unique().over("communicator")
    stated = pl.when(pl.col("ranks") < MAX_RANKS).then(pl.col("ranks")).otherwise(UNKNOWN)
    ranks = stated.max().over("communicator")
    size = (
        pl.when(known & (ranks > 0))
        .then(ranks)
        .when(known & (users == (UNKNOWN if world_size is None else world_size)))
        .then(users)
        .otherwise(UNKNOWN)
        .cast(pl.Int64)
    )
    message, part = pl.col("message"), pl.col("operation").is_in(_PART)
    return calls.with_columns(group_size=size).with_columns(
        message=pl.when(~part | (message == UNKNOWN))
        .then(message)
        # What no message can have is not multiplied: it might end among those that one can.
        .when((pl.col("group_size") > 0) & (message <= MOST_BYTES // pl.col("group_size")))
        .then(message * pl.col("group_size"))
        .otherwise(UNKNOWN)
    )


def _sites(calls: pl.DataFrame) -> pl.DataFrame:
    """Ranges in which kernels are launched: calls, and the outer end of a group for all of its."""
    depth = pl.col("nesting").cum_sum().over("thread")
    below = pl.col("depth").cum_min().clip(upper_bound=0).over("thread")
    # A capture may begin inside a group: its end then closes nothing.
    nested = calls.with_columns(depth=depth).with_columns(depth=pl.col("depth") - below)
    opens = (pl.col("nesting") == 1) & (pl.col("depth") == 1)
    nested = nested.with_columns(
        number=opens.cum_sum().over("thread"),
        before=pl.col("depth").shift(1, fill_value=0).over("thread"),
    )
    is_call = pl.col("operation") != int(Operation.OTHER)
    grouped = nested.filter(is_call & (pl.col("depth") > 0))
    ends = nested.filter((pl.col("nesting") == -1) & (pl.col("before") == 1)).drop(_SAID)
    closed = ends.join(_together(grouped), on=["thread", "number"])
    columns = ["thread", "start", "end", *_SAID]
    alone = nested.filter(is_call & (pl.col("depth") == 0))
    return pl.concat([alone.select(columns), closed.select(columns)]).sort("thread", "start")


def _together(calls: pl.DataFrame) -> pl.DataFrame:
    """One row for each group of calls; of sends and receives the sends count."""

    def shared(column: str, otherwise: int) -> pl.Expr:
        return (
            pl.when(pl.col(column).n_unique() == 1)
            .then(pl.col(column).first())
            .otherwise(otherwise)
            .alias(column)
        )

    message, sends = pl.col("message"), ~pl.col("receives")
    total = pl.when(sends.any()).then(message.filter(sends).sum()).otherwise(message.sum())
    mixed = pl.col("operation").n_unique() > 1
    return calls.group_by("thread", "number").agg(
        shared("operation", int(Operation.OTHER)),
        shared("communicator", UNKNOWN),
        shared("group_size", UNKNOWN),
        pl.when(mixed | (message == UNKNOWN).any()).then(UNKNOWN).otherwise(total).alias("message"),
    )


def _warn_of_missing_kernels(
    sites: pl.DataFrame, gpu: Mapping[str, Any], comm: Int64s, quality: Quality
) -> None:
    """Warn of processes with fewer kernels than calls, where another one has all of its own.

    Ranges are kept apart from what CUPTI records, of which a process can lose what was not yet
    handed over. Seen with Nsight Systems 2025.3 where two ranks ended by `os._exit` right after
    `cudaProfilerStop`; not where both waited before and after it.
    """
    launched = gpu["launch_t0"][gpu["linked"]]
    if not len(launched):
        return
    process, start, end = sites["thread"].to_numpy() >> 24, sites["start"], sites["end"]
    asked = process[(end >= launched.min()) & (start <= launched.max())]
    seen = gpu["pid"][comm]
    # What is captured for a graph runs at its replays.
    replaying = np.unique(gpu["pid"][gpu["graph"]])
    counts = {
        int(one): (int((asked == one).sum()), int((seen == one).sum()))
        for one in np.setdiff1d(asked, replaying)
    }
    if not any(kernels >= calls for calls, kernels in counts.values()):
        return
    lost = {
        one & 0xFFFFFF: calls - kernels
        for one, (calls, kernels) in counts.items()
        if kernels < (1 - _MANY_MISSING) * calls
    }
    if lost:
        processes = f"process{'es' if len(lost) > 1 else ''} {', '.join(map(str, sorted(lost)))}"
        quality.damaged(
            "calls-unrecorded",
            sum(lost.values()),
            "calls of NCCL have no kernel, while another process has all of its own: the profiler "
            f"lost part of what {processes} did, and idle time there may be work. Let all ranks "
            "make their last step, and a second or two pass, before one ends the capture range or "
            "itself.",
        )


def _launched_by(
    sites: pl.DataFrame, gpu: Mapping[str, Any], comm: Int64s
) -> tuple[Int64s, dict[str, Int64s]]:
    """Kernels with a site, and what it says of each; a message shared by several is nobody's."""
    start, end, owner = (sites[c].to_numpy() for c in ("start", "end", "thread"))
    launch = gpu["launch_t0"][comm]
    thread = gpu["pid"][comm].astype(np.int64) * (1 << 24) + gpu["thread"][comm]
    site = np.full(len(comm), UNKNOWN, dtype=np.int64)
    for number in np.unique(owner):
        first, last = (int(np.searchsorted(owner, number, side)) for side in ("left", "right"))
        of_thread = np.flatnonzero((thread == number) & gpu["linked"][comm])
        at = first + np.searchsorted(start[first:last], launch[of_thread], "right") - 1
        inside = (at >= first) & (end[np.maximum(at, 0)] >= launch[of_thread])
        site[of_thread[inside]] = at[inside]
    has = site != UNKNOWN
    calls = {c: sites[c].to_numpy()[site[has]] for c in _SAID}
    several = np.bincount(site[has], minlength=len(sites))[site[has]] > 1
    calls["message"] = np.where(several, UNKNOWN, calls["message"])
    return comm[has], calls
