"""The chain of work and waiting that a step is as long as: nothing off it makes it longer."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from traceprobe.records.texts import Name, PhaseName


class PathPart(msgspec.Struct, frozen=True, kw_only=True):
    """Time of a step on the critical path, of one kind on one rank."""

    part: PhaseName
    """A phase or a transfer; `host`: the host's own time; `data-wait`; `launch`: from a launch to
    the start of its operation; `delay`: late for no reason that the trace shows."""
    rank: int
    ms: float


class PathOperator(msgspec.Struct, frozen=True, kw_only=True):
    """Time of a step on the critical path in one operator (a kernel where none launched it)."""

    operator: Name
    part: PhaseName
    rank: int
    ms: float


class Slack(msgspec.Struct, frozen=True, kw_only=True):
    """Work of a step that is nowhere on the critical path."""

    part: PhaseName
    rank: int
    busy_ms: float
    slack_ms: float
    """By so much all of it may get longer without making the step longer; at most a step."""


class Stretch(msgspec.Struct, frozen=True, kw_only=True):
    """Where the path runs in the recorded iteration that it is drawn on."""

    rank: int
    part: PhaseName
    start_ns: int
    """From the origin of the rank's input, as its iterations."""
    end_ns: int


class Blocking(msgspec.Struct, frozen=True, kw_only=True):
    """Collectives of a kind: how much sooner a step would end if they took no time."""

    group: int
    """Process group, as in `Replay.group`."""
    bytes: int
    """Size of a message; -1 where it is not in the trace."""
    count_per_step: float
    busy_ms: float
    blocking_ms: float


class Edges(msgspec.Struct, frozen=True, kw_only=True):
    """Where the dependencies between streams come from."""

    recorded: int
    """Waits for an event whose record is in the trace, or is told by the wait."""
    inferred: int
    """Told by times, or by what such operations need."""
    unresolved: int
    """Waits in the trace whose record was not found."""


class CriticalPath(msgspec.Struct, frozen=True, kw_only=True):
    """The critical path of a steady step over all ranks that are played, without a profiler."""

    step_ms: float
    parts: list[PathPart]
    """The most time first; they add up to the step."""
    operators: list[PathOperator]
    """The most time first, at most twelve."""
    slack: list[Slack]
    stretches: list[Stretch]
    blocking: list[Blocking]
    blocking_ms: float | None
    """How much sooner a step would end if no collective took any time; null without any."""
    edges: Edges
    host_factor: float
    """Of the host's recorded time, what is left without the profiler."""

    def problems(self) -> Iterator[str]:
        """What it contradicts itself in."""
        total = sum(part.ms for part in self.parts)
        if abs(total - self.step_ms) > 1e-3 + 1e-4 * self.step_ms:
            yield "the parts of the critical path do not add up to the step"
        if any(part.ms < 0 for part in self.parts):
            yield "a part of the critical path is negative"
