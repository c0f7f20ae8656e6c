"""Steady iterations of a device that can be simulated with changes; see `traceprobe whatif`."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from traceprobe.records.texts import PhaseName


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    """Operations in launch order, neighbours of a kind joined: parallel columns, a row each.

    How they are simulated is in `docs/whatif.md`. Distances are numbers of rows back, 0 for none;
    those that lead before the first row mean rows of the iterations before.
    """

    iterations: int
    latency_ns: int
    """From the end of a launch to the start of its operation on an idle device."""
    kinds: list[PhaseName]
    """What `kind` counts: phases, and what moves."""
    iteration: list[int]
    kind: list[int]
    stream: list[int]
    first_host_ns: list[int]
    """Host time until the first launch of the row was made."""
    host_ns: list[int]
    """Host time until its last launch was made."""
    duration_ns: list[int]
    """Of its operations, without what lies between them."""
    lag_ns: list[int]
    """Time before its operations that neither launches nor predecessors explain."""
    tail_ns: list[int]
    """Duration and lag of its last operation."""
    data_wait_ns: list[int]
    """Time that the host waits for data before the row."""
    awaits: list[int]
    """Distance to the row that must end before the host goes on."""
    needs: list[int]
    """Distance to the row of another stream that must end before this one begins."""
    bytes: list[int]
    """Size of a message; -1 where it is none, or not in the trace."""

    def problems(self) -> Iterator[str]:
        """What it contradicts itself in."""
        columns = [getattr(self, name) for name in COLUMNS]
        if len({len(column) for column in columns}) > 1 or not self.kind:
            yield "the replay has columns of different lengths"
        elif not 0 <= min(self.kind) <= max(self.kind) < len(self.kinds):
            yield "the replay has an unknown kind"
        elif self.iterations != 1 + max(self.iteration):
            yield "the replay has other iterations than it says"


COLUMNS = Replay.__struct_fields__[3:]
"""Names of the columns, in their order."""
