"""Captures that show no training: GPU work was not recorded, or most of it is a cold start.

Nothing that such a capture says of a step is true of training, so neither a bound nor a finding
about the step is given.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import UNSET

from traceprobe.formatting import percent
from traceprobe.model.taxonomy import COMPUTE_PHASES
from traceprobe.records.rank import LongIterations, Rank
from traceprobe.records.report import Quality
from traceprobe.verdict.thresholds import FIXED

_WARM_UP = "let it warm up before the capture begins (`schedule(wait=1, warmup=2, active=6)`"
_WITH_NSIGHT = ", or with Nsight Systems `--capture-range=cudaProfilerApi`"


def why_no_training(ranks: Sequence[Rank], quality: Quality) -> list[str]:
    """What is missing of a training run, with what to do; empty where nothing is."""
    missing = []
    unrecorded = unrecorded_ranks(ranks, quality)
    if unrecorded and kernels_counted(quality):
        missing.append(
            f"{_of(unrecorded, ranks)}the profiler counted what kernels do, and noted no times: "
            "profile again without `profiler_metrics`"
        )
    elif unrecorded:
        missing.append(
            f"{_of(unrecorded, ranks)}kernels were launched, but the capture has no GPU rows of "
            "them: profile again (`activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]`) and "
            "let no other profiler use the GPU meanwhile"
        )
    elif without_kernels(ranks):
        missing.append(
            "the GPU ran no kernel, only copies and memsets: nothing was computed while the "
            "capture ran; capture the training loop"
        )
    cold = [rank for rank in ranks if cold_share(rank) > FIXED.cold_start]
    if cold:
        most = max(map(cold_share, cold))
        missing.append(
            f"{_of(cold, ranks)}{percent(most, 0)} of the time is a cold start, in which the GPU "
            f"waits until it is set up: {warm_up(cold)}"
        )
    return missing


def warm_up(ranks: Sequence[Rank]) -> str:
    """What to do about a cold start, as the end of a sentence."""
    by_nvidia = all(rank.device.vendor != "amd" for rank in ranks)
    return f"{_WARM_UP}{_WITH_NSIGHT if by_nvidia else ''})"


def unrecorded_ranks(ranks: Sequence[Rank], quality: Quality) -> list[Rank]:
    """The ranks whose kernels were not recorded, by their launches or by what ingest noticed."""
    codes = {warning.code for warning in quality.warnings}
    noticed = not codes.isdisjoint({"gpu-rows-missing", "kernels-counted"})
    return [r for r in ranks if gpu_rows_missing(r) or (noticed and r.device.kind == "cpu")]


def kernels_counted(quality: Quality) -> bool:
    """Whether the profiler was in the mode in which it counts what kernels do."""
    return any(warning.code == "kernels-counted" for warning in quality.warnings)


def is_cut(quality: Quality) -> bool:
    """Whether the file was cut off: what is missing from the capture may be in the rest."""
    return any(warning.code in ("truncated-file", "missing-pages") for warning in quality.warnings)


def runs_on_cpu(ranks: Sequence[Rank]) -> bool:
    """Whether the run used no GPU; one whose GPU rows are missing did."""
    return all(rank.device.kind == "cpu" and not gpu_rows_missing(rank) for rank in ranks)


def steps_are_ranges(ranks: Sequence[Rank]) -> bool:
    """Whether steps are marked by ranges, which have something between them."""
    markers = {rank.step_marker.kind for rank in ranks if rank.step_marker is not None}
    return bool(markers & {"user", "range"})


def gpu_rows_missing(rank: Rank) -> bool:
    """Whether launches were recorded and no kernel was. A run on a CPU launches nothing."""
    if rank.device.kind == "cpu":
        return rank.summary.coverage is not None
    return without_kernels([rank]) and rank.summary.host.launches_per_step > 0


def without_kernels(ranks: Sequence[Rank]) -> bool:
    """Whether no device ran a kernel, those of communication included."""
    classes = (*COMPUTE_PHASES, "communication")
    return all(not rank.summary.busy_ns[name] for rank in ranks for name in classes)


def cold_share(rank: Rank) -> float:
    """Part of the time that is judged in which the device idles inside calls of set-up.

    None of it where steps timed without the profiler are long, too: a process is set up once.
    """
    if isinstance(rank.long, LongIterations) and rank.long.timed_long is not UNSET:
        return 0.0
    return rank.summary.host.set_up_idle_ns / max(rank.summary.window_ns, 1)


def _of(some: Sequence[Rank], ranks: Sequence[Rank]) -> str:
    """Which of several ranks, as the beginning of a sentence."""
    if len(ranks) == 1 or len(some) == len(ranks):
        return ""
    return f"on rank {some[0].rank} " if len(some) == 1 else f"on {len(some)} of the ranks "
