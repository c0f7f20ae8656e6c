"""What NCCL's own records added to the collectives of a trace."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from traceprobe.formatting import counted
from traceprobe.records.texts import Name

Source = Literal["flight_recorder", "inspector"]
"""What notes collectives: PyTorch's flight recorder in dumps, NCCL Inspector in logs."""


class NcclRecords(msgspec.Struct, frozen=True, kw_only=True):
    """The dump or log of one rank, joined with the kernels of NCCL that its process launched."""

    rank: int
    source: Source
    dump: Name
    """Base name of the file."""
    calls: int
    """Calls in the dump that launch kernels of NCCL."""
    damaged: int
    """Lines of a log that could not be read; a dump that is damaged is not joined."""
    kernels: int
    """Kernels of NCCL in the trace; without those of CUDA graphs, which no recorder notes, and
    those whose launch is not in the trace."""
    covered: int
    """Kernels launched in the time of which the dump still has calls."""
    joined: int
    """Kernels with their call."""
    compared: int
    """Joined kernels whose message the trace, or a dump before a log, has the size of too."""
    equal: int
    """Those of them with the same size in the dump."""
    score: float
    """Mean nearness of the covered launches to the calls, 0 to 1, on the clocks as joined. Of a
    log, which leaves out small messages, over the calls if these are fewer."""
    rival: float
    """The same for the best other difference of the clocks; a join needs it to be well below."""

    def problems(self) -> Iterator[str]:
        """What it contradicts itself in."""
        if not 0 <= self.equal <= self.compared <= self.joined <= self.covered <= self.kernels:
            yield "quality.nccl_records: a part is more than the whole"
        if min(self.rank, self.calls, self.damaged) < 0:
            yield "quality.nccl_records: a number is negative"
        if not (0 <= self.score <= 1 and 0 <= self.rival <= 1):
            yield "quality.nccl_records: a score is not within 0 and 1"


def joined_words(records: Sequence[NcclRecords]) -> str:
    """How much of the collectives the records of all ranks filled, in a line."""
    said = [
        _words(own, what)
        for source, what in (("flight_recorder", "dump"), ("inspector", "log"))
        if (own := [record for record in records if record.source == source])
    ]
    return "; ".join(said)


def _words(records: Sequence[NcclRecords], what: str) -> str:
    joined, kernels = (sum(r.joined for r in records), sum(r.kernels for r in records))
    said = f"{joined:,} of {counted(kernels, 'kernel')} of NCCL, {counted(len(records), what)}"
    compared = sum(r.compared for r in records)
    if compared:
        equal = sum(r.equal for r in records)
        said += f"; of {compared:,} sizes that were known, {equal:,} are equal"
    damaged = sum(r.damaged for r in records)
    if damaged:
        said += f"; {counted(damaged, 'line')} damaged"
    return said
