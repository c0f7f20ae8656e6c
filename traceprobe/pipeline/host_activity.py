"""What the host of a rank asked of its device, to the record of the report."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
from msgspec import UNSET

from traceprobe.model.codes import UNKNOWN, Call, Int64s, Kind
from traceprobe.model.events import rows_named
from traceprobe.model.taxonomy import Phase
from traceprobe.pipeline.host_stalls import collected, gives_back, host_stalls
from traceprobe.records.host_activity import HostActivity, SetUpCalls, Updates
from traceprobe.timeline.cold_start import SetUp, find_set_up
from traceprobe.timeline.compiled_code import compilations
from traceprobe.timeline.device_timeline import DeviceTimeline
from traceprobe.timeline.intervals import per_window, union
from traceprobe.timeline.kernel_period import is_update
from traceprobe.timeline.stalls import memory_calls

MAX_CALLS = 5
"""Names of calls that are listed."""
CLOSE_NS = 50_000
"""A call so soon after the launch of a copy waits for it; in PyTorch's `copy_` some µs pass."""
_IN_PROCESS = "_SingleProcessDataLoaderIter"
"""In the range that PyTorch writes around each batch of a loader without workers."""
_IN_WORKERS = "_MultiProcessingDataLoaderIter"
"""In that of a loader with workers."""
_API = re.compile(r"(cu|cuda|hip)[A-Z][A-Za-z]{3,60}")


def host_activity(
    account: DeviceTimeline,
    chosen: Int64s,
    inside: pl.DataFrame,
    names: Sequence[str],
    *,
    on_cpu: bool,
) -> HostActivity:
    """Launches, kernels and waiting calls per used step, or over the whole capture.

    Args:
        chosen: indices of the windows that the summary covers. inside: the ops that start in them.
    """
    steps = max(int(account.used.sum()), 1)
    is_kernel, launched = pl.col("kind") == int(Kind.KERNEL), pl.col("thread") != UNKNOWN
    kernels, duration, delay = inside.select(
        is_kernel.sum().alias("kernels"),
        (pl.col("t1") - pl.col("t0")).filter(is_kernel).mean().alias("duration"),
        (pl.col("t0") - pl.col("launch_t1")).filter(is_kernel & launched).median().alias("delay"),
    ).row(0)
    launched_kernels = inside.filter(is_kernel & launched).sort(
        "thread", "launch_t1", maintain_order=True
    )
    process = account.process
    calls = process.calls.select("thread", "t0", "call", "name", "blocking")
    if process.marker is not None and len(account.index):
        at = process.marker.iteration_at(calls["t0"].to_numpy())
        calls = calls.filter(np.isin(at, account.index[chosen]))
    launches = int(calls["call"].is_in([int(Call.LAUNCH), int(Call.GRAPH_LAUNCH)]).sum())
    return HostActivity(
        launches_per_step=round(launches / steps, 3),
        kernels_per_step=round(kernels / steps, 3),
        mean_kernel_us=round(float(duration) / 1e3, 3) if isinstance(duration, float) else None,
        launch_to_start_us_p50=round(float(delay) / 1e3, 3) if isinstance(delay, float) else None,
        syncs_per_step=round(int(calls["blocking"].sum()) / steps, 3),
        idle_after_sync_ns=int(account.host_late_after_sync[chosen].sum()),
        sync_cost_ns=int(account.sync_cost[chosen].sum()),
        pause_ns=int(account.pauses[chosen].sum()),
        held_idle_ns=int(account.held[chosen].sum()),
        awaits_device_ns=_awaited(account, chosen) or UNSET,
        data_wait_inferred_ns=int(account.inferred[chosen].sum()),
        blocking_calls=_blocking(calls, names, steps) or UNSET,
        awaited_copies=_awaited_copies(calls, process.ops, steps) or UNSET,
        garbage_collections=collected(account, chosen, names) or UNSET,
        phase_kernels=_phase_kernels(inside, steps) or UNSET,
        blocks_per_step=_blocks(inside, steps) or UNSET,
        phase_launch_ns=_phase_launches(launched_kernels) or UNSET,
        updates=UNSET if on_cpu else _updates(launched_kernels, names, steps) or UNSET,
        loader_in_process=any(
            _IN_PROCESS in names[i] for i in process.ranges["name"].unique().to_list()
        ),
        loader_in_workers=_takes_from_workers(account, names) or UNSET,
        **({} if on_cpu else _of_gpu(account, chosen, inside, names)),
    )


def _awaited(account: DeviceTimeline, chosen: Int64s) -> dict[str, int]:
    """Time of waiting for another device of the process, by cause."""
    waits = {
        cause: int(per_window(waiting, account.edges)[chosen].sum())
        for cause, waiting in account.awaits_device.items()
    }
    return {cause: ns for cause, ns in waits.items() if ns}


def _takes_from_workers(account: DeviceTimeline, names: Sequence[str]) -> bool:
    """Whether the step thread takes batches from a loader's workers in the device's windows."""
    taken = rows_named(account.process.ranges, names, lambda name: _IN_WORKERS in name)
    inside = pl.col("t0").is_between(int(account.edges[0]), int(account.edges[-1]))
    on_step_thread = pl.col("thread") == account.process.host.step_thread
    return not taken.filter(on_step_thread & inside).is_empty()


def _of_gpu(
    account: DeviceTimeline, chosen: Int64s, inside: pl.DataFrame, names: Sequence[str]
) -> dict[str, Any]:
    """What only the host of a GPU does."""
    process = account.process
    stages = compilations(process, names)
    compiling = union(stages["t0"].to_numpy(), stages["t1"].to_numpy())
    memory = memory_calls(process, names)
    paced = memory if gives_back(memory, account, chosen) else memory.clear()
    found = find_set_up(
        process.calls, process.ops, compiling, account.gaps, account.edges, chosen, paced
    )
    return {
        **_set_up(account, chosen, found, names),
        **_head(account),
        **host_stalls(account, chosen, inside, stages, memory, found.calls, names),
    }


def _head(account: DeviceTimeline) -> dict[str, int]:
    """How long the device idles at the head of the only used iteration.

    The window of each holds the head of the next. That of a single one holds none, unless another
    follows that is not used.
    """
    marker, at = account.process.marker, np.flatnonzero(account.used)
    if marker is None or len(at) != 1 or at[0] + 2 < len(account.edges):
        return {}
    head = np.array([marker.starts[account.index[at[0]]], account.edges[at[0]]])
    busy = union(account.ops["t0"].to_numpy(), account.ops["t1"].to_numpy())
    return {"head_idle_ns": max(0, int(head[1] - head[0] - per_window(busy, head)[0]))}


def _set_up(
    account: DeviceTimeline, chosen: Int64s, found: SetUp, names: Sequence[str]
) -> dict[str, Any]:
    """What kept the device waiting as it was set up, in the chosen windows."""
    idle = per_window(found.idle, account.edges)
    at = np.searchsorted(account.edges, found.calls["t1"].to_numpy(), "right") - 1
    calls: dict[str, list[int]] = {}
    for name, t0, t1 in found.calls.filter(np.isin(at, chosen)).select("name", "t0", "t1").rows():
        api = _API.match(names[name])
        calls.setdefault(api[0] if api else "another call", []).append(t1 - t0)
    stages = (found.compiling.t0, found.compiling.t1)
    at = np.searchsorted(account.edges, stages[1], "right") - 1
    if np.isin(at, chosen).any():
        calls["compilation"] = (stages[1] - stages[0])[np.isin(at, chosen)].tolist()
    listed = [
        SetUpCalls(name=name, count=len(lengths), longest_ns=max(lengths))
        for name, lengths in sorted(calls.items(), key=lambda item: (-max(item[1]), item[0]))
    ]
    return {
        "set_up": listed[:MAX_CALLS] or UNSET,
        "set_up_idle_ns": int(idle[chosen].sum()),
    }


def _blocking(calls: pl.DataFrame, names: Sequence[str], steps: int) -> dict[str, float]:
    """Blocking calls per step by the name of CUDA's or HIP's API, its version left out."""
    counts: Counter[str] = Counter()
    for name, count in calls.filter("blocking").group_by("name").len().rows():
        api = _API.match(names[name])
        if api is not None:  # any job may write what it likes into its trace
            counts[api[0]] += count
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return {name: round(count / steps, 3) for name, count in ordered[:MAX_CALLS]}


def _awaited_copies(calls: pl.DataFrame, ops: pl.DataFrame, steps: int) -> dict[str, float]:
    """Blocking calls per step that are, or come right after, the launch of a copy, by its way."""
    launches = (
        ops.lazy()
        .filter(pl.col("thread") != UNKNOWN)
        .select("thread", "kind", "pageable", pl.col("launch_t0").alias("t0"), "launch_t1")
        .sort("t0")
    )
    close = (
        calls.lazy()
        .filter("blocking")
        .sort("t0")
        .join_asof(launches, on="t0", by="thread", strategy="backward", check_sortedness=False)
        .filter(pl.col("t0") - pl.col("launch_t1") <= CLOSE_NS)
        .collect()
    )
    to_device = close.filter(pl.col("kind") == int(Kind.H2D))["pageable"]
    counts = {
        "d2h": int((close["kind"] == int(Kind.D2H)).sum()),
        "h2d_pageable": int(to_device.sum()),
        "h2d_pinned": int((~to_device).sum()),
    }
    return {way: round(count / steps, 3) for way, count in counts.items() if count}


def _phase_launches(launched: pl.DataFrame) -> dict[str, int]:
    """Host time between the launches of kernels of the same phase that follow each other, ns.

    Args:
        launched: kernels by thread and launch.
    """
    thread, phase, at = (launched[c].to_numpy() for c in ("thread", "phase", "launch_t1"))
    same = (thread[:-1] == thread[1:]) & (phase[:-1] == phase[1:])
    apart, phase = np.diff(at)[same], phase[1:][same]
    return {
        each.name.lower(): int(apart[phase == each].sum())
        for each in Phase
        if (phase == each).any()
    }


def _updates(launched: pl.DataFrame, names: Sequence[str], steps: int) -> Updates | None:
    """Of each stretch of the optimizer's launches those from the first update to the last.

    Args:
        launched: as in `_phase_launches`.
    """
    thread, phase, at = (launched[c].to_numpy() for c in ("thread", "phase", "launch_t1"))
    optimizer = phase == int(Phase.OPTIMIZER)
    named = optimizer & is_update(launched["name"].to_numpy(), names, of_tensors=True)
    if not named.any():
        return None
    changes = (np.diff(optimizer, prepend=False) != 0) | (np.diff(thread, prepend=thread[0]) != 0)
    stretch, rows = np.cumsum(changes)[named], np.flatnonzero(named)
    _, first, count = np.unique(stretch, return_index=True, return_counts=True)
    begin, end = rows[first], rows[first + count - 1]
    return Updates(
        kernels_per_step=round(int((end - begin + 1).sum()) / steps, 3),
        launch_ns=int((at[end] - at[begin]).sum()),
    )


def _blocks(inside: pl.DataFrame, steps: int) -> float | None:
    """Thread blocks of kernels that compute; None where one of them has no grid."""
    blocks = inside["grid"].to_numpy()[inside["kind"].to_numpy() == int(Kind.KERNEL)]
    if not blocks.size or blocks.min() == UNKNOWN:
        return None
    return round(int(blocks.sum(dtype=np.int64)) / steps, 3)


def _phase_kernels(inside: pl.DataFrame, steps: int) -> dict[str, float]:
    kernels = inside["phase"].to_numpy()[inside["kind"].to_numpy() == int(Kind.KERNEL)]
    counts = {phase: int((kernels == phase).sum()) for phase in Phase}
    return {phase.name.lower(): round(count / steps, 3) for phase, count in counts.items() if count}
