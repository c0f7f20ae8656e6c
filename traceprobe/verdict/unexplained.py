"""Time of unknown cause, in the words of a verdict that it leaves open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl
from msgspec import UnsetType

from traceprobe.formatting import frame_place, percent
from traceprobe.model.taxonomy import SHARE_LABELS
from traceprobe.records.rank import Rank
from traceprobe.records.report import Bound
from traceprobe.records.sites import find_sites, owners_of
from traceprobe.verdict.thresholds import FIXED, Thresholds

_HELD = "the GPU idles though its work was launched in time, and no recorded operation holds it up"
_LOOK_FOR = (
    "look for another process on the GPU (`nvidia-smi`), and for kernels and graph nodes that the "
    "profiler left out"
)


def unexplained(idle: float, waiting: float, ranks: Sequence[Rank]) -> str:
    """How much time has no known cause, what is seen of it, and what to do.

    Args:
        idle, waiting: shares of idle time, and of waiting for other ranks.
    """
    if idle < waiting:
        return (
            f"{percent(waiting, 0)} of the time is ranks waiting for each other with no visible "
            "cause; record the host's calls and ranges on every rank"
        )
    if mostly_held(ranks):
        return f"{percent(idle, 0)} of the time {_HELD}: {_LOOK_FOR}"
    if _has_host_rows(ranks):
        silent = _silent(ranks)
        if _in_long_iterations(ranks):
            return (
                f"{percent(idle, 0)} of the time {silent}, mostly in long iterations: annotate "
                "what the loop does in them (`torch.profiler.record_function(…)`)"
            )
        sites = find_sites(owners_of(ranks), pl.col("class") == "idle_unexplained")
        if sites and sites[0].line is not None and not sites[0].before:
            return (
                f"{percent(idle, 0)} of the time {silent}, mostly {frame_place(sites[0].line)}: "
                + _what_it_is(ranks)
            )
        if _loader_is_known(ranks):
            return (
                f"{percent(idle, 0)} of the time {silent}, outside of the ranges of the data "
                "loader: nothing tells what the program does (starting the loader's workers, "
                "logging, …); annotate it (`torch.profiler.record_function(…)`)"
            )
        return (
            f"{percent(idle, 0)} of the time {silent}, and nothing tells what the program does: "
            'annotate it, loading as `data_load` (`torch.profiler.record_function("data_load")`, '
            '`torch.cuda.nvtx.range("data_load")`)'
        )
    return (
        f"{percent(idle, 0)} of the time is idle that no host rows explain; record the CPU too "
        "(`ProfilerActivity.CPU`, `nsys profile --trace=cuda,nvtx`)"
    )


def either(
    shares: Mapping[str, float],
    rival: Bound,
    idle: float,
    waiting: float,
    ranks: Sequence[Rank],
    thresholds: Thresholds,
) -> str:
    """Which two verdicts are left, and by which shares, where little is unexplained.

    Args:
        rival: the candidate that may reach its threshold.
        idle, waiting: as of `unexplained`.
    """
    if idle < waiting:
        seen = "in which ranks wait for each other with no visible cause"
        remedy = "record the host's calls and ranges on every rank"
    elif mostly_held(ranks):
        seen, remedy = f"in which {_HELD}", _LOOK_FOR
    elif _has_host_rows(ranks):
        seen = f"in which {_silent(ranks)}"
        loading = "" if _loader_is_known(ranks) else ", loading as `data_load`"
        remedy = (
            f"annotate what the program does there{loading} (`torch.profiler.record_function(…)`)"
        )
    else:
        seen = "of idle time that no host rows explain"
        remedy = "record the CPU too (`ProfilerActivity.CPU`, `nsys profile --trace=cuda,nvtx`)"
    return (
        f"compute-bound ({percent(shares['compute'])}), unless the {percent(idle + waiting)} "
        f"{seen} belongs to {SHARE_LABELS[rival]} ({percent(shares[rival])}) too, which from "
        f"{percent(thresholds.bound, 0)} on would be the bound; {remedy}"
    )


def mostly_held(ranks: Sequence[Rank]) -> bool:
    """Whether most of the idle time without a cause is that of devices which had their work."""
    held = sum(rank.summary.host.held_idle_ns for rank in ranks)
    idle = sum(rank.summary.partition_ns["idle_unexplained"] or 0 for rank in ranks)
    return held > FIXED.mostly_held * (held + idle)


def _has_host_rows(ranks: Sequence[Rank]) -> bool:
    return any(rank.summary.partition_ns["idle_host"] is not None for rank in ranks)


def _in_long_iterations(ranks: Sequence[Rank]) -> bool:
    """Whether most of it is in iterations that do more than the others, on a CPU.

    An owner there is the operator that comes next, which is one of the regular work.
    """
    total = sum(rank.summary.partition_ns["idle_unexplained"] or 0 for rank in ranks)
    more = sum(
        rank.long.extra_partition_ns.get("idle_unexplained", 0)
        for rank in ranks
        if not isinstance(rank.long, UnsetType)
    )
    return all(rank.device.kind == "cpu" for rank in ranks) and 2 * more > total


def _silent(ranks: Sequence[Rank]) -> str:
    """What is seen of time in which the host does nothing that is recorded."""
    on_cpu = all(rank.device.kind == "cpu" for rank in ranks)
    return "no operator runs" if on_cpu else "the GPU idles while the host makes no call"


def _loader_is_known(ranks: Sequence[Rank]) -> bool:
    """Whether a range told some of the waiting for data, so that the rest is something else."""
    return any(
        rank.summary.host.loader_in_process
        or (rank.summary.partition_ns["idle_data_wait"] or 0)
        > rank.summary.host.data_wait_inferred_ns
        for rank in ranks
    )


def _what_it_is(ranks: Sequence[Rank]) -> str:
    """What to do about a place whose purpose nothing tells."""
    if _loader_is_known(ranks):
        return "nothing tells what that is for; annotate it (`torch.profiler.record_function(…)`)"
    return (
        "nothing tells whether that loads data or computes; annotate it, loading as "
        '`data_load` (`torch.profiler.record_function("data_load")`)'
    )
