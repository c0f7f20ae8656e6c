"""Steady iterations of a device that can be simulated with changes; see `traceprobe whatif`."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from msgspec.structs import replace

from traceprobe.records.texts import Name, PhaseName


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
    line: list[int] = msgspec.field(default_factory=list)
    """Thread that launches the row, or the line of threads that take turns; missing in older
    reports, as all that follows: then there is one."""
    group: list[int] = msgspec.field(default_factory=list)
    """Process group of a message, the same number on all ranks; -1 where none is known, -2 where it
    passes between two ranks of a group and is not known which."""
    start_ns: list[int] = msgspec.field(default_factory=list)
    """Recorded start of the row, from the origin of the rank's input."""
    end_ns: list[int] = msgspec.field(default_factory=list)
    """Recorded end of its last operation."""
    ops: list[int] = msgspec.field(default_factory=list)
    """Operations of the row."""
    slowed_ns: list[int] = msgspec.field(default_factory=list)
    """Of `duration_ns`, what collectives cost that ran beside the row."""
    packing_ns: list[int] = msgspec.field(default_factory=list)
    """Of `duration_ns`, operations that there are only for communication: copies of gradients into
    buckets."""
    packing_host_ns: list[int] = msgspec.field(default_factory=list)
    """Of `host_ns`, what they take."""
    pause_ns: list[int] = msgspec.field(default_factory=list)
    """Of `host_ns`, long stretches in the midst of a step in which the host launches nothing;
    missing where there are none."""
    stall_ns: list[int] = msgspec.field(default_factory=list)
    """Of `host_ns`, calls of the driver for memory, and compiling; missing where there are none."""
    names: list[Name] = msgspec.field(default_factory=list)
    """What `name` counts."""
    name: list[int] = msgspec.field(default_factory=list)
    """The operator with the most time of the row; the kernel's where none launched it."""
    more_rows: list[int] = msgspec.field(default_factory=list)
    """Rows that need further rows of other streams to end before they begin."""
    more_needs: list[int] = msgspec.field(default_factory=list)
    """Distance to such a row, of each of `more_rows`."""
    recorded_needs: int = 0
    """Dependencies between streams that the trace records; the others are inferred."""
    inferred_needs: int = 0
    unresolved_needs: int = 0
    """Waits in the trace for what was not found."""

    def last(self, count: int) -> Replay:
        """Its last iterations; distances that led to earlier ones lead to those before the first.

        Args:
            count: no more than there are. What it says of all needs stays.
        """
        left_out = self.iterations - count
        first = next(row for row, number in enumerate(self.iteration) if number >= left_out)
        kept = {name: getattr(self, name)[first:] for name in (*COLUMNS, *LATER_COLUMNS)}
        more = zip(self.more_rows, self.more_needs, strict=True)
        needs = [(row - first, distance) for row, distance in more if row >= first]
        return replace(
            self,
            **kept | {"iteration": [number - left_out for number in kept["iteration"]]},
            iterations=count,
            more_rows=[row for row, _ in needs],
            more_needs=[distance for _, distance in needs],
        )

    def problems(self) -> Iterator[str]:
        """What it contradicts itself in."""
        columns = [getattr(self, name) for name in COLUMNS]
        if len({len(column) for column in columns}) > 1 or not self.kind:
            yield "the replay has columns of different lengths"
        elif not 0 <= min(self.kind) <= max(self.kind) < len(self.kinds):
            yield "the replay has an unknown kind"
        elif self.iterations != 1 + max(self.iteration):
            yield "the replay has other iterations than it says"
        else:
            yield from self._later_problems()

    def _later_problems(self) -> Iterator[str]:
        """Of the columns that older reports lack."""
        count = len(self.kind)
        lengths = {len(getattr(self, name)) for name in LATER_COLUMNS}
        if lengths - {0, count} or len(self.more_rows) != len(self.more_needs):
            yield "the replay has columns of different lengths"
        elif self.name and not 0 <= min(self.name) <= max(self.name) < len(self.names):
            yield "the replay has an unknown name"
        elif self.more_rows and not 0 <= min(self.more_rows) <= max(self.more_rows) < count:
            yield "the replay has needs of unknown rows"
        elif not all(0 <= min(p, s) <= p + s <= host for p, s, host in self._parts()):
            yield "the replay has pauses that are no part of the host's time"
        elif min((*self.awaits, *self.needs, *self.more_needs)) < 0:
            yield "the replay has rows that wait for later ones"

    def _parts(self) -> Iterator[tuple[int, int, int]]:
        """Pause, stall and the host's time of each row."""
        nothing = [0] * len(self.kind)
        return zip(self.pause_ns or nothing, self.stall_ns or nothing, self.host_ns, strict=True)


COLUMNS = Replay.__struct_fields__[3:15]
"""Names of the columns that every replay has, in their order."""
LATER_COLUMNS = (
    *("line", "group", "start_ns", "end_ns", "ops", "slowed_ns", "packing_ns", "packing_host_ns"),
    *("pause_ns", "stall_ns", "name"),
)
"""Names of those that may be empty."""
