"""How much of the GPU the kernels of a trace fill, by what the profiler notes of each of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from traceprobe.model.codes import UNKNOWN, Int64s, Ints

Floats = NDArray[np.float64]


class Occupancy(msgspec.Struct):
    """Sums over kernels of ns, and of ns times a part of the GPU.

    Args:
        kernel_ns: durations of the kernels that say how many blocks they have.
        covered_ns: times the part of the multiprocessors that has a block.
        occupied_ns: times the part of all threads that the GPU can hold.
    """

    kernel_ns: float = 0.0
    covered_ns: float = 0.0
    occupied_ns: float = 0.0

    def add(self, duration: Int64s, blocks: Floats, occupancy: Floats) -> None:
        """Take kernels in.

        Args:
            duration: ns. blocks: per multiprocessor. occupancy: percent of the whole GPU, so that
                an idle multiprocessor counts as empty. NaN where a kernel does not say.
        """
        known = np.isfinite(blocks) & (blocks >= 0) & np.isfinite(occupancy) & (duration > 0)
        known &= (occupancy >= 0) & (occupancy <= 100)
        if known.any():
            length = duration[known].astype(np.float64)
            self.kernel_ns += float(length.sum())
            self.covered_ns += float(length @ np.minimum(blocks[known], 1.0))
            self.occupied_ns += float(length @ occupancy[known]) / 100

    def merge(self, other: Occupancy) -> None:
        """Take in the kernels of another part of the trace."""
        self.kernel_ns += other.kernel_ns
        self.covered_ns += other.covered_ns
        self.occupied_ns += other.occupied_ns

    def facts(self) -> dict[str, Any]:
        """Means over the kernels' time, as parts of 1; empty where no kernel says anything."""
        if not self.kernel_ns:
            return {}
        means = (self.covered_ns / self.kernel_ns, self.occupied_ns / self.kernel_ns)
        return dict(zip(NAMES, (round(mean, 6) for mean in means), strict=True))


def percent(occupancy: Floats) -> Ints:
    """The profiler's numbers as whole percent; UNKNOWN of kernels without a plausible one."""
    known = (occupancy >= 0) & (occupancy <= 100)
    return np.where(known, np.rint(np.where(known, occupancy, 0)), UNKNOWN).astype(np.int8)


NAMES: Sequence[str] = ("multiprocessors_covered", "occupancy")
"""Keys of `Trace.metadata`."""
