"""What the host of a rank asked of its device, to the record of the report."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
from msgspec import UNSET

from traceprobe.model.events import UNKNOWN, Call, Int64s, Kind
from traceprobe.model.taxonomy import Phase
from traceprobe.records.summary import HostActivity, SetUpCalls
from traceprobe.timeline.cold_start import compilation, find_set_up
from traceprobe.timeline.device_timeline import DeviceTimeline
from traceprobe.timeline.intervals import per_window, union

MAX_CALLS = 5
"""Names of calls that are listed."""
_IN_PROCESS = "_SingleProcessDataLoaderIter"
"""In the range that PyTorch writes around each batch of a loader without workers."""
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
    process = account.process
    calls = process.calls.select("t0", "call", "name", "blocking")
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
        data_wait_inferred_ns=int(account.inferred[chosen].sum()),
        blocking_calls=_blocking(calls, names, steps) or UNSET,
        phase_kernels=_phase_kernels(inside, steps) or UNSET,
        phase_launch_ns=_phase_launches(inside) or UNSET,
        loader_in_process=any(
            _IN_PROCESS in names[i] for i in process.ranges["name"].unique().to_list()
        ),
        **({} if on_cpu else _set_up(account, chosen, names) | _head(account)),
    )


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


def _set_up(account: DeviceTimeline, chosen: Int64s, names: Sequence[str]) -> dict[str, Any]:
    """What kept the device waiting as it was set up, in the chosen windows."""
    process = account.process
    compiling = compilation(process.ranges, names)
    found = find_set_up(process.calls, process.ops, compiling, account.gaps, account.edges, chosen)
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


def _phase_launches(inside: pl.DataFrame) -> dict[str, int]:
    """Host time between the launches of kernels of the same phase that follow each other, ns."""
    is_kernel, launched = pl.col("kind") == int(Kind.KERNEL), pl.col("thread") != UNKNOWN
    ordered = inside.select("kind", "thread", "launch_t1", "phase").filter(is_kernel & launched)
    ordered = ordered.sort("thread", "launch_t1", maintain_order=True)
    same = (pl.col("thread") == pl.col("thread").shift(1)) & (
        pl.col("phase") == pl.col("phase").shift(1)
    )
    apart = ordered.select("phase", apart=pl.col("launch_t1").diff()).filter(
        ordered.select(same).to_series()
    )
    spent = dict(apart.group_by("phase").agg(pl.col("apart").sum()).rows())
    return {phase.name.lower(): int(spent[int(phase)]) for phase in Phase if int(phase) in spent}


def _phase_kernels(inside: pl.DataFrame, steps: int) -> dict[str, float]:
    kernels = inside.filter(pl.col("kind") == int(Kind.KERNEL))
    counts = dict(kernels.group_by("phase").len().rows())
    return {
        phase.name.lower(): round(counts[int(phase)] / steps, 3)
        for phase in Phase
        if int(phase) in counts
    }
