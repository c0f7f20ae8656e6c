"""What a Kineto trace's metadata says: rank, devices, what the profiler recorded."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any

import numpy as np

from traceprobe.ingest.joins import Table
from traceprobe.ingest.kineto.categories import MEMORY, OPERATORS, STACKS
from traceprobe.ingest.profiler_messages import quote_messages
from traceprobe.ingest.sidecar import checked
from traceprobe.ingest.untrusted_values import (
    bounded_text,
    compute_capability,
    device_amount,
    rank_number,
)
from traceprobe.model.codes import UNKNOWN, Ints
from traceprobe.model.events import Device
from traceprobe.model.quality import Quality


def rank_of_pid(
    metadata: Mapping[str, Any], pids: list[int], noted: Mapping[int, Set[int]]
) -> dict[int, int]:
    """Rank of each process, where the file records it.

    Args:
        noted: ranks that the notes of collectives name, by process.
    """
    by_pid = {pid: next(iter(ranks)) for pid, ranks in noted.items() if len(ranks) == 1}
    rank = rank_number(_distributed(metadata).get("rank"))
    if rank is not None and len(pids) == 1:
        return {pids[0]: rank}
    return by_pid if len(set(by_pid.values())) == len(by_pid) else {}


def _distributed(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    """What is noted of the process group; tools that rewrite traces spell its key as they like."""
    for key, info in metadata.items():
        if key.replace("_", "").lower() == "distributedinfo" and isinstance(info, dict):
            return info
    return {}


def gpu_device(metadata: Mapping[str, Any], pid: int, index: int) -> Device:
    """A GPU of a process, with what `deviceProperties` says of it."""
    properties = metadata.get("deviceProperties")
    for gpu in properties if isinstance(properties, list) else []:
        if isinstance(gpu, dict) and gpu.get("id") == index:
            return Device(
                pid,
                index,
                bounded_text(gpu.get("name") or "") or None,
                capability=compute_capability(gpu.get("computeMajor"), gpu.get("computeMinor")),
                multiprocessors=device_amount(gpu.get("numSms")),
                memory_bytes=device_amount(gpu.get("totalGlobalMem")),
                warp_size=device_amount(gpu.get("warpSize")),
            )
    return Device(pid, index, None)


def block_counts(grid: Ints, device: Ints, metadata: Mapping[str, Any]) -> Ints:
    """Blocks of kernels, on devices whose multiprocessors `deviceProperties` counts.

    Args:
        grid: thousandths of a block for each multiprocessor, which is what the profiler notes of a
            grid in any version; they stay what they are on other devices, or UNKNOWN.
    """
    blocks = grid.copy()
    for index in np.unique(device).tolist():
        count = gpu_device(metadata, 0, index).multiprocessors
        if count:
            known = (device == index) & (grid != UNKNOWN)
            blocks[known] = np.rint(grid[known] * (count / 1000))
    return blocks


def profiled(metadata: Mapping[str, Any], categories: set[str]) -> frozenset[str]:
    """Which of the things that slow the host the profiler recorded."""
    marks = {
        "operators": categories.intersection(OPERATORS),
        "stacks": categories.intersection(STACKS) or metadata.get("with_stack"),
        "memory": categories.intersection(MEMORY) or metadata.get("profile_memory"),
        "shapes": metadata.get("record_shapes"),
    }
    return frozenset(mark for mark, present in marks.items() if present)


def trace_metadata(metadata: Mapping[str, Any], quality: Quality) -> dict[str, Any]:
    """`Trace.metadata`: whitelisted, since any job may write private keys into its trace."""
    facts: dict[str, Any] = {}
    world = rank_number(_distributed(metadata).get("world_size"))
    if world is not None:
        facts["world_size"] = world
    recorded = checked(metadata.get("traceprobe"), quality)
    if recorded is not None:
        facts["traceprobe"] = recorded
    return facts


def why_missing(metadata: Mapping[str, Any], launches: int, only_on_gpu: str | None = None) -> str:
    """A sentence about a GPU of which there is no row, with what the profiler said, if anything.

    Args:
        only_on_gpu: name of an operator that runs on a GPU only.
    """
    said = _said(metadata)
    shown = f"{launches} kernels were launched" if launches else f"`{only_on_gpu}` ran"
    return (
        f"{shown} and the trace has not one GPU row: the profiler did not "
        f"record the GPU.{f' It said: {said}' if said else ''}"
    )


def why_empty(metadata: Mapping[str, Any], operators: Table | None, launches: int) -> str:
    """The reason from the file itself where it has one.

    Args:
        launches: calls that launch a kernel.
    """
    if launches:
        return why_missing(metadata, launches)
    said = _said(metadata)
    if said:
        return f"no GPU work in the trace. The profiler said: {said}"
    if operators is None:
        return (
            "no GPU work and no operators in the trace; profile with "
            "`activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]`"
        )
    if metadata.get("deviceProperties"):
        return (
            "no GPU work, though the machine has a GPU; if the program uses it, profile with "
            "`activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]`, else mark its steps "
            "(`prof.step()` each iteration)"
        )
    return (
        "no GPU work, and no step or phase annotations to describe a CPU run; call `prof.step()` "
        'each iteration or wrap it in `record_function("step N")`'
    )


def _said(metadata: Mapping[str, Any]) -> str:
    """The first of what the profiler noted of itself, errors before warnings."""
    for level in ("ERROR", "WARNING"):
        messages = metadata.get(level)
        if isinstance(messages, list) and messages:
            return quote_messages(messages[:1])
    return ""
