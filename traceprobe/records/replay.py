"""Steady iterations of a device that can be played again with changes; see `traceprobe whatif`."""

from __future__ import annotations

from collections.abc import Iterator

from traceprobe.records.cleaning import Columns

_COLUMNS = (
    *("iteration", "kind", "stream", "first_host_ns", "host_ns", "duration_ns", "lag_ns"),
    *("tail_ns", "data_wait_ns", "awaits", "needs", "bytes"),
)


class Replay(Columns, frozen=True, kw_only=True):
    """Operations in launch order, neighbours of a kind joined: parallel columns, a row each.

    A column is a text of integers between spaces. There are thousands, which as a list would be
    most of the lines of a report.

    How they are played is in `docs/whatif.md`. Distances are numbers of rows back, 0 for none;
    those that lead before the first row mean rows of the iterations played before.
    """

    iterations: int
    latency_ns: int
    """From the end of a launch to the start of its operation on an idle device."""
    kinds: list[str]
    """What `kind` counts: phases, and what moves."""
    iteration: str
    kind: str
    stream: str
    first_host_ns: str
    """Host time until the first launch of the row was made."""
    host_ns: str
    """Host time until its last launch was made."""
    duration_ns: str
    """Of its operations, without what lies between them."""
    lag_ns: str
    """Time before its operations that neither launches nor predecessors explain."""
    tail_ns: str
    """Duration and lag of its last operation."""
    data_wait_ns: str
    """Time that the host waits for data before the row."""
    awaits: str
    """Distance to the row that must end before the host goes on."""
    needs: str
    """Distance to the row of another stream that must end before this one begins."""
    bytes: str
    """Size of a message; -1 where it is none, or not in the trace."""

    def problems(self) -> Iterator[str]:
        """What it contradicts itself in."""
        try:
            columns = {name: [*map(int, getattr(self, name).split())] for name in _COLUMNS}
        except ValueError:
            yield "a column of the replay is no column of numbers"
            return
        if len({len(column) for column in columns.values()}) > 1 or not columns["kind"]:
            yield "the replay has columns of different lengths"
        elif not all(0 <= kind < len(self.kinds) for kind in columns["kind"]):
            yield "the replay has an unknown kind"
        elif self.iterations != 1 + max(columns["iteration"]):
            yield "the replay has other iterations than it says"
