"""What a recording read of the machine's cores: whether the program had those that it wanted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from traceprobe.formatting import percent
from traceprobe.model.sidecar import Block, BlockCpu
from traceprobe.verdict.thresholds import FIXED


class RecordedCores(msgspec.Struct, frozen=True):
    """Means over the steps of a rank without a profiler; `BlockCpu` has the fields."""

    ran: float
    waited: float
    loop_waited: float
    others: float | None
    cores: int

    @property
    def shared(self) -> bool:
        """Whether it is other programs that had them."""
        return self.others is not None and self.others >= FIXED.cores_of_others * self.waited

    @property
    def busy(self) -> bool:
        """Whether other programs had them so long that all times are of a busy machine."""
        return self.shared and self.loop_waited >= FIXED.busy_machine

    @property
    def sentence(self) -> str:
        """What of it is worth saying."""
        return (
            f"the loop's thread had no core {percent(self.loop_waited)} of the time, in steps "
            f"without the profiler: on average {self.ran:.1f} threads of the process ran, and "
            f"{self.waited:.1f} waited for a core"
        )


def recorded_cores(blocks: Sequence[Block]) -> RecordedCores | None:
    """What the blocks of a rank that count say of the cores; None where they say nothing."""
    counted = [b for b in blocks if b.plain]
    read = [(b.cpu, b.steps * b.step_ms) for b in counted if isinstance(b.cpu, BlockCpu)]
    ms = sum(length for _, length in read)
    if not ms:
        return None

    def mean(name: str) -> float:
        return float(sum(getattr(cpu, name) * length for cpu, length in read)) / ms

    known = all(cpu.others is not None for cpu, _ in read)
    return RecordedCores(
        ran=mean("ran"),
        waited=mean("waited"),
        loop_waited=mean("loop_waited"),
        others=mean("others") if known else None,
        cores=min(cpu.cores for cpu, _ in read),
    )


def taken(blocks: Iterable[Sequence[Block]]) -> float:
    """For how much of the time other programs had the core of a loop on a busy machine.

    Args:
        blocks: of each rank; the mean of those that were read counts.
    """
    each = [found for read in blocks if (found := recorded_cores(read)) is not None]
    lost = sum(found.loop_waited for found in each if found.busy)
    return lost / len(each) if each else 0.0
