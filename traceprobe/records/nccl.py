"""What dumps of PyTorch's flight recorder added to the collectives of a trace."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from traceprobe.formatting import counted
from traceprobe.records.texts import Name


class NcclRecords(msgspec.Struct, frozen=True, kw_only=True):
    """The dump of one rank, joined with the kernels of NCCL that its process launched."""

    rank: int
    dump: Name
    """Base name of the file."""
    calls: int
    """Calls in the dump that launch kernels of NCCL."""
    kernels: int
    """Kernels of NCCL in the trace; without those of CUDA graphs, which no recorder notes, and
    those whose launch is not in the trace."""
    covered: int
    """Kernels launched in the time of which the dump still has calls."""
    joined: int
    """Kernels with their call."""
    compared: int
    """Joined kernels whose message the trace has the size of too."""
    equal: int
    """Those of them with the same size in the dump."""
    score: float
    """Mean nearness of the covered launches to the calls, 0 to 1, on the clocks as joined."""
    rival: float
    """The same for the best other difference of the clocks; a join needs it to be well below."""

    def problems(self) -> Iterator[str]:
        """What it contradicts itself in."""
        if not 0 <= self.equal <= self.compared <= self.joined <= self.covered <= self.kernels:
            yield "quality.nccl_records: a part is more than the whole"
        if self.rank < 0 or self.calls < 0:
            yield "quality.nccl_records: a number is negative"
        if not (0 <= self.score <= 1 and 0 <= self.rival <= 1):
            yield "quality.nccl_records: a score is not within 0 and 1"


def joined_words(records: Sequence[NcclRecords]) -> str:
    """How much of the collectives the dumps of all ranks filled, in a line."""
    joined, kernels = (sum(r.joined for r in records), sum(r.kernels for r in records))
    said = f"{joined:,} of {counted(kernels, 'kernel')} of NCCL, {counted(len(records), 'dump')}"
    compared = sum(r.compared for r in records)
    if compared:
        equal = sum(r.equal for r in records)
        said += f"; of {compared:,} sizes that the trace has too, {equal:,} are equal"
    return said
