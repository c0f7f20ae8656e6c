"""What a recording of traceprobe says about itself, in the trace or beside it.

Anybody may have written it, so the bounds are part of the types.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from traceprobe.model.owner_limits import (
    LONGEST_OWNER,
    MOST_BREAKS,
    MOST_CALLS,
    MOST_DOUBLE,
    MOST_GRAPHS,
    MOST_NODES,
    MOST_OWNERS,
    MOST_REPLAYS,
)

RECORDED = "traceprobe"
"""Of a trace's metadata, what holds this."""
STEP_MS = (1e-3, 86_400_000.0)
"""The shortest and the longest training step, ms: a microsecond and a day."""
MOST_FLOPS = 1e30
"""No step has more operations: a million of the fastest GPUs take a century for them."""
MAX_RANKS = 1 << 24

Milliseconds = Annotated[float, Meta(ge=STEP_MS[0], le=STEP_MS[1])]
Waiting = Annotated[float, Meta(ge=0, le=STEP_MS[1])]
Count = Annotated[int, Meta(ge=0, le=1 << 62)]
Rate = Annotated[float, Meta(ge=0, le=1e18)]
Facts = dict[str, Any]


Index = Annotated[int, Meta(ge=-1, le=1 << 20)]
"""A place in a list; -1 for none."""
OwnerText = Annotated[str, Meta(max_length=LONGEST_OWNER)]
Call = Annotated[list[Index], Meta(min_length=2, max_length=2)]


class CapturedGraph(msgspec.Struct, frozen=True, kw_only=True):
    """A CUDA graph as it was captured.

    Args:
        names: of its nodes in order, in `texts`: a kernel's, empty where the driver does not tell
            it, "memcpy", "memset"; -1 of a node that leaves no row.
        calls: nodes and owner of each call in order.
    """

    names: Annotated[list[Index], Meta(max_length=MOST_NODES)]
    calls: Annotated[list[Call], Meta(max_length=MOST_NODES)]


class CompiledCalls(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of code that torch.compile made.

    Args:
        key: what profilers call it; empty where that is not known.
        calls: name of the kernel or operator, in `texts`, and owner of each call in order.
    """

    key: OwnerText
    calls: Annotated[list[Call], Meta(max_length=MOST_CALLS)]


class KernelOwners(msgspec.Struct, frozen=True, kw_only=True):
    """Owners of kernels that nothing encloses when they are launched.

    Args:
        owners: operator, line and modules from the outermost on, each a place in `texts`.
        replays: graph of each replay, up to the end of the recording; -1 of an unknown one.
        reasons: why something is missing.
    """

    texts: Annotated[list[OwnerText], Meta(max_length=MOST_OWNERS)]
    owners: Annotated[
        list[Annotated[list[Index], Meta(min_length=2, max_length=100)]],
        Meta(max_length=MOST_OWNERS),
    ]
    graphs: Annotated[list[CapturedGraph], Meta(max_length=MOST_GRAPHS)]
    compiled: Annotated[list[CompiledCalls], Meta(max_length=MOST_GRAPHS)]
    replays: Annotated[list[Index], Meta(max_length=MOST_REPLAYS)]
    reasons: Annotated[list[OwnerText], Meta(max_length=10)]


class CompilerNotes(msgspec.Struct, frozen=True, kw_only=True):
    """What torch.compile did in the program, as far as profilers do not tell.

    Args:
        marked: whether compilations in the recorded steps have ranges of ours.
        breaks: places where graphs broke, since the program began.
        lines: those of them that are the program's own.
        double: names of compiled kernels that compute with 64 bits; earlier recordings have none.
    """

    marked: bool
    breaks: Count
    lines: Annotated[list[OwnerText], Meta(max_length=MOST_BREAKS)]
    double: Annotated[list[OwnerText], Meta(max_length=MOST_DOUBLE)] | UnsetType = UNSET


class BlockClock(msgspec.Struct, frozen=True, kw_only=True):
    """The device during a block of steps; None where it did not tell.

    Args:
        sm_mhz, memory_mhz: mean clocks. lowest_sm_mhz: the lowest that was read.
        spin_mhz: clock by a kernel of known cycles after the block.
        power_w, temperature_c: means.
        throttled: reasons for a lower clock that were read, by NVML's names.
        others_percent: mean utilisation by other processes, which may be one of a longer time that
            ends with the block.
        samples: readings.
    """

    sm_mhz: Rate | None = None
    lowest_sm_mhz: Rate | None = None
    memory_mhz: Rate | None = None
    spin_mhz: Rate | None = None
    power_w: Rate | None = None
    temperature_c: Rate | None = None
    throttled: Annotated[list[OwnerText], Meta(max_length=20)] = []
    others_percent: Rate | None = None
    samples: Count = 0


class BlockCpu(msgspec.Struct, frozen=True, kw_only=True):
    """The machine's cores during a block of steps, and those that led to it.

    Args:
        ran, waited: threads of the process, mean over the time: that ran, and that could have and
            had no core. loop_waited: share of the time in which the loop's thread had none.
        others: cores that other programs used; None where nobody knows.
        cores: that the process has the time of.
    """

    ran: Rate
    waited: Rate
    loop_waited: Rate
    others: Rate | None = None
    cores: Count


class Block(msgspec.Struct, frozen=True, kw_only=True):
    """Steps of a recording in a row, synchronised at both ends.

    Args:
        profiled: whether the profiler ran. kept: whether it counts; of a block that was made again
            only the last does.
        steps: how many. step_ms: their mean. data_wait_ms: mean waiting for the loader in one.
    """

    profiled: bool
    steps: Count
    step_ms: Waiting
    data_wait_ms: Waiting | None = None
    kept: bool = True
    clock: BlockClock | UnsetType = UNSET
    cpu: BlockCpu | UnsetType = UNSET

    @property
    def plain(self) -> bool:
        """Whether its steps count as those without the profiler."""
        return self.kept and not self.profiled


class Warmup(msgspec.Struct, frozen=True, kw_only=True):
    """How a loop came to its pace before it was recorded.

    Args:
        steps: made before anything counted. steady: whether their pace no longer changed.
        period: steps after which the loop repeats itself.
        reason: why the pace is not steady, or the period not known.
    """

    steps: Count
    steady: bool
    period: Annotated[int, Meta(ge=1, le=1 << 20)] = 1
    reason: OwnerText | UnsetType = UNSET


class Sidecar(msgspec.Struct, frozen=True, kw_only=True):
    """The calibration of a recording, its program and its machine; UNSET is not recorded."""

    unprofiled_step_ms: Milliseconds | UnsetType | None = UNSET
    """Mean step without a profiler."""
    unprofiled_data_wait_ms: Waiting | UnsetType | None = UNSET
    """Mean waiting for the loader in such a step; None where nobody measured it."""
    unprofiled_other_wait_ms: Waiting | UnsetType = UNSET
    """The same for loaders that do not feed the steps, as that of an evaluation; UNSET for none."""
    calibration_steps: Count | UnsetType = UNSET
    calibration_step_ms: list[Waiting] | UnsetType = UNSET
    """Steps without a profiler by the host's clock; only their sum is exact."""
    warmup: Warmup | UnsetType = UNSET
    blocks: Annotated[list[Block], Meta(max_length=64)] | UnsetType = UNSET
    """With and without the profiler, in order of time."""
    peak_memory_bytes: Count | UnsetType | None = UNSET
    samples_per_second: Rate | UnsetType = UNSET
    """Without a profiler, of all ranks."""
    tokens_per_second: Rate | UnsetType = UNSET
    workload: Facts | UnsetType = UNSET
    """What the program says of itself; `Workload` has the numbers that are reckoned with."""
    hardware: Facts | UnsetType = UNSET
    flags: Facts | UnsetType = UNSET
    """Of PyTorch, such as `cudnn_allow_tf32`."""
    libraries: Facts | UnsetType = UNSET
    """Versions by name."""
    memory: Facts | UnsetType = UNSET
    """As `traceprobe.records.memory.Memory`."""
    kernel_owners: KernelOwners | UnsetType = UNSET
    compiler: CompilerNotes | UnsetType = UNSET
    """Not recorded where nothing was compiled."""
    blame: Facts | UnsetType = UNSET
    """How names came into the trace from a second capture: `steps` of that, `named_steps` of this,
    the mean share of their events that was `matched`, numbers of `lines`, `modules` and `shapes`;
    or the `reason` why there are none."""
    loader: Facts | UnsetType = UNSET
    """As `traceprobe.records.loader.Loader`; not recorded where none feeds the steps."""


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of a workload that are reckoned with."""

    flops_per_step: Annotated[float, Meta(ge=0, le=MOST_FLOPS)] | UnsetType | None = UNSET
    """Of the model, in a step of all ranks."""
    ranks: Annotated[int, Meta(ge=1, le=MAX_RANKS)] | UnsetType | None = UNSET
    samples_per_step: Rate | UnsetType | None = UNSET
    tokens_per_step: Rate | UnsetType | None = UNSET
