"""Kernels that do little more than start and end."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from traceprobe.records.texts import Name


class TinyKernels(msgspec.Struct, frozen=True, kw_only=True):
    """Those of the summary that are not the optimizer's; totals."""

    count: int
    total_ns: int
    """Sum of their durations."""
    gap_ns: int
    """Idle time of the device right after them, no longer each than such a kernel."""
    names: dict[Name, int]
    """Which they are, ns, at most three, the most first."""
    lines: dict[Name, int]
    """Lines of the program, ns, at most three, the most first; empty where the trace has none."""

    @property
    def cost_ns(self) -> int:
        """What the device takes for them."""
        return self.total_ns + self.gap_ns

    def problems(self) -> Iterator[str]:
        """What it contradicts itself in."""
        if self.count < 1 or min(self.total_ns, self.gap_ns) < 0:
            yield "tiny kernels take less than no time"
