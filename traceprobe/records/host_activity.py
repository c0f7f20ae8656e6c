"""What the host of a device did in the time of a summary."""

from __future__ import annotations

import msgspec

from traceprobe.records.host_stalls import (
    Compilations,
    CompiledRegions,
    DeviceAllocations,
    GarbageCollections,
)
from traceprobe.records.texts import Sentence, Word


class SetUpCalls(msgspec.Struct, frozen=True, kw_only=True):
    """Calls of one name that set something up; see `HostActivity.set_up`."""

    name: Sentence
    count: int
    longest_ns: int


class Updates(msgspec.Struct, frozen=True, kw_only=True):
    """Kernels of the optimizer from the first to the last that is named like an update.

    What it has before, as norms of gradients that are logged or clipped, no other form of the
    optimizer makes cheaper.
    """

    kernels_per_step: float
    launch_ns: int
    """Host time between their launches."""


class HostActivity(msgspec.Struct, frozen=True, kw_only=True):
    """What a partition cannot say, per used iteration or over the whole capture."""

    launches_per_step: float
    kernels_per_step: float
    mean_kernel_us: float | None
    launch_to_start_us_p50: float | None
    syncs_per_step: float
    idle_after_sync_ns: int
    """Host-late idle from a synchronisation until the host is ahead of the GPU again."""
    sync_cost_ns: int = 0
    """Idle in and after waiting calls that would be saved without them: never longer in all than
    the calls themselves."""
    pause_ns: int = 0
    """Part of idle_host in long stretches of a step in which no thread that launches makes a call
    or runs an operator."""
    held_idle_ns: int = 0
    """Part of idle_latency that is far longer than launches take: the device had its work, and what
    held it up is not in the trace. The verdict does not hold it to be overhead."""
    awaits_device_ns: dict[Word, int] | msgspec.UnsetType = msgspec.UNSET
    """By cause, idle time in which another device of the process computed what is waited for: part
    of idle_latency, as long as in `held_idle_ns`, of idle_sync, and of idle_host in copies to the
    host; no more than the device of the process has that waits least, and not there without."""
    data_wait_inferred_ns: int
    """Part of idle_data_wait that no range names: the step thread was between the step ranges."""
    blocking_calls: dict[Sentence, float] | msgspec.UnsetType = msgspec.UNSET
    """Calls of CUDA that wait for the GPU, per step by name, those with most first; not there
    where there are none."""
    awaited_copies: dict[Word, float] | msgspec.UnsetType = msgspec.UNSET
    """Of these, those right after the launch of a copy, per step by what they wait for: `d2h`,
    `h2d_pinned`, `h2d_pageable`; not there where there are none."""
    phase_kernels: dict[Word, float] | msgspec.UnsetType = msgspec.UNSET
    """Kernels per step of each phase of computation, without collectives; not there without."""
    blocks_per_step: float | msgspec.UnsetType = msgspec.UNSET
    """Thread blocks of these kernels per step: equal work on equal GPUs has equally many. Not there
    where a kernel has no grid."""
    set_up: list[SetUpCalls] | msgspec.UnsetType = msgspec.UNSET
    """Calls in which the device idles as they set something up, the longest first; not there
    without."""
    set_up_idle_ns: int = 0
    """Idle time of the device inside them."""
    head_idle_ns: int | msgspec.UnsetType = msgspec.UNSET
    """Idle time of the device from the beginning of the only used iteration on the host to its
    window, which begins with its first op; not there where several iterations are used."""
    device_allocations: DeviceAllocations | msgspec.UnsetType = msgspec.UNSET
    """Not there where the driver allocates and frees nothing."""
    compilations: Compilations | msgspec.UnsetType = msgspec.UNSET
    """Not there where nothing is compiled, or only as the program gets warm."""
    garbage_collections: GarbageCollections | msgspec.UnsetType = msgspec.UNSET
    """Not there where no range is around one."""
    compiled_regions: CompiledRegions | msgspec.UnsetType = msgspec.UNSET
    """Not there where the trace shows no calls of compiled functions."""
    phase_launch_ns: dict[Word, int] | msgspec.UnsetType = msgspec.UNSET
    """Host time between the launches of kernels of one phase that follow each other; not there
    without such kernels."""
    updates: Updates | msgspec.UnsetType = msgspec.UNSET
    """Not there where no kernel is named like an update, and in older reports."""
    loader_in_process: bool = False
    """A `DataLoader` with `num_workers=0` loads on the step thread, as the name of its range says;
    false where no name tells."""
    loader_in_workers: bool | msgspec.UnsetType = msgspec.UNSET
    """Workers of a `DataLoader` make batches ahead, as the name of its range says; not there where
    no name tells."""

    def awaiting_device_ns(self, *causes: str) -> int:
        """Waiting for another device of the process, of some causes, or of all."""
        known = {} if self.awaits_device_ns is msgspec.UNSET else self.awaits_device_ns
        return sum(ns for cause, ns in known.items() if not causes or cause in causes)

    def launching_ns(self, phase: str) -> int:
        """Time between launches of a phase; of the optimizer of its update, where it is known."""
        if phase == "optimizer" and self.updates is not msgspec.UNSET:
            return self.updates.launch_ns
        return self.phase_launching_ns(phase)

    def phase_launching_ns(self, phase: str) -> int:
        """Time between all launches of a phase; 0 where it has none."""
        known = self.phase_launch_ns
        return 0 if known is msgspec.UNSET else known.get(phase, 0)
