"""Hardware counters that a profiler sampled, as means over steps, phases and iterations."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from traceprobe.records.texts import PhaseName


class Utilisations(msgspec.Struct, frozen=True, kw_only=True):
    """Means of the counters, parts of what each unit could do; None where too little is sampled."""

    sm_active: float | None
    """Multiprocessors with at least one warp."""
    tensor_active: float | None
    """Tensor cores at work."""
    dram_read: float | None
    """Cycles in which the memory's interface reads."""
    dram_write: float | None
    nvlink_rx: float | None
    """Bytes received, with those of the protocol."""
    nvlink_tx: float | None
    pcie_rx: float | None
    """Bytes received, with those of the protocol."""
    pcie_tx: float | None

    @property
    def dram(self) -> float | None:
        """Part of its cycles in which the memory's interface reads or writes."""
        if self.dram_read is None or self.dram_write is None:
            return None
        return min(self.dram_read + self.dram_write, 1.0)

    def problems(self) -> Iterator[str]:
        """What it contradicts itself in."""
        values = [getattr(self, name) for name in self.__struct_fields__]
        if not all(0 <= v <= 1 for v in values if isinstance(v, float)):
            yield "a counter of the GPU is no part of 1"


class PhaseUtilisations(Utilisations, frozen=True, kw_only=True):
    """The same over the time of a class of work."""

    phase: PhaseName


class IterationUtilisations(Utilisations, frozen=True, kw_only=True):
    """The same over the window of an iteration."""

    index: int


class GpuMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """What the counters say of the windows of the summary."""

    interval_us: float
    """Usual time between two samples."""
    step: Utilisations
    phases: list[PhaseUtilisations]
    iterations: list[IterationUtilisations]

    def problems(self) -> Iterator[str]:
        """What it contradicts itself in."""
        if not self.interval_us > 0:
            yield "counters of the GPU are sampled all the time"
        for each in (self.step, *self.phases, *self.iterations):
            yield from each.problems()
