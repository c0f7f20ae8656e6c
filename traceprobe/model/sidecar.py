"""What a recording of traceprobe says about itself, in the trace or beside it.

Anybody may have written it, so the bounds are part of the types.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

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


class Sidecar(msgspec.Struct, frozen=True, kw_only=True):
    """The calibration of a recording, its program and its machine; UNSET is not recorded."""

    unprofiled_step_ms: Milliseconds | UnsetType | None = UNSET
    """Mean step without a profiler."""
    unprofiled_data_wait_ms: Waiting | UnsetType | None = UNSET
    """Mean waiting for the loader in such a step; None where nobody measured it."""
    calibration_steps: Count | UnsetType = UNSET
    calibration_step_ms: list[Waiting] | UnsetType = UNSET
    """Steps without a profiler by the host's clock; only their sum is exact."""
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
