"""The record of a watched run: its pace over time, and what held it up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from traceprobe.records.base import Record
from traceprobe.records.report import Bound
from traceprobe.records.texts import Name, Sentence

Cause = Literal[
    "start",
    "checkpoint",
    "evaluation",
    "garbage-collection",
    "loader",
    "loader-worker",
    "loader-pass",
    "compilation",
    "allocator",
    "cpu-busy",
    "gpu-busy",
    "clock",
    "unknown",
]
FEWEST = 50
"""Steps of a run that can be called steady."""
WAITS = 0.2
"""Part of the time for which a loop waits for its loader, from which on that comes first; as of a
verdict."""
MOST_POINTS, MOST_PLACES = 600, 500
"""Of a strip, and steps of an event that are listed."""
Points = Annotated[list[float], Meta(max_length=MOST_POINTS)]
Gaps = Annotated[list[float | None], Meta(max_length=MOST_POINTS)]


class WatchedRank(msgspec.Struct, frozen=True, kw_only=True):
    """A process that trained.

    Args:
        device: name of its GPU; None on a CPU.
        ended: whether it came to its own end; else the last second may be missing.
        step_ms: median. wait_share: part of the run in which the loop waited for its loader.
        paused_s: collections of garbage, in all.
        sm_mhz, lowest_sm_mhz: clock of the GPU, mean and lowest; None where it is not known.
        peak_bytes: most that tensors took on the GPU. rss_bytes: most memory of the host.
    """

    rank: int
    device: Name | None
    ended: bool
    steps: int
    step_ms: float
    wait_share: float
    paused_s: float
    sm_mhz: float | None = None
    lowest_sm_mhz: float | None = None
    peak_bytes: int | None = None
    rss_bytes: int | None = None


def most_waiting(ranks: Sequence[WatchedRank]) -> WatchedRank:
    """The rank that waited for its loader for the largest part of the time."""
    return max(ranks, key=lambda rank: rank.wait_share)


class PaceStretch(msgspec.Struct, frozen=True, kw_only=True):
    """Steps of one pace: `first` to `last`, their median, and why it is not that of those before.

    Args:
        lost_s: time that they took longer than at the run's best lasting pace.
        cause: of the change; None for the first stretch.
    """

    first: int
    last: int
    at_s: float
    step_ms: float
    lost_s: float
    cause: Cause | None = None
    why: Sentence = ""


class RunEvent(msgspec.Struct, frozen=True, kw_only=True):
    """What made single steps longer, all of one cause and rhythm.

    Args:
        what: in words, with the rhythm and the length.
        count: how often. steps: the first of them. at_s: when, after the first step.
        every_steps, every_s: the rhythm; None where there is none.
        lost_s: time lost in all; 0 where the device had enough to do meanwhile.
        longest_ms, longest_step: the longest of them.
        rank: whose it was, where it was of one of several.
    """

    cause: Cause
    what: Sentence
    count: int
    steps: Annotated[list[int], Meta(max_length=MOST_PLACES)]
    at_s: Annotated[list[float], Meta(max_length=MOST_PLACES)]
    lost_s: float
    longest_ms: float
    longest_step: int
    every_steps: int | None = None
    every_s: float | None = None
    rank: int | None = None


class StepStrip(msgspec.Struct, frozen=True, kw_only=True):
    """Stretches of time of equal numbers of steps: shortest, median and longest step of each.

    Args:
        at_s: when each ended. first: number of its first step.
        wait_ms: mean time in which a step waited for its loader.
    """

    at_s: Points
    first: Annotated[list[int], Meta(max_length=MOST_POINTS)]
    least_ms: Points
    median_ms: Points
    most_ms: Points
    wait_ms: Points


class ReadingStrip(msgspec.Struct, frozen=True, kw_only=True):
    """Readings over time, means of equal stretches; None where there was none.

    Args:
        sm_mhz, power_w, temperature_c: of the GPU.
        reserved_bytes: by the allocator of the GPU. rss_bytes: of the host.
    """

    at_s: Points
    sm_mhz: Gaps = []
    power_w: Gaps = []
    temperature_c: Gaps = []
    reserved_bytes: Gaps = []
    rss_bytes: Gaps = []


class ShortCapture(msgspec.Struct, frozen=True, kw_only=True):
    """A few steps under a profiler, and what they are bound by.

    Args:
        step: the first that was profiled. steps: how many, with those that are thrown away.
        reason: a long step before, one that was expected, or the interval that was asked for.
        why: the same in words.
        file: name of the trace in the folder of the captures.
        bound, confidence, headline: of its report; None and why not where there is none.
        advice: what that says to do first; empty where it has nothing.
    """

    step: int
    steps: int
    reason: Literal["spike", "rhythm", "interval"]
    why: Sentence
    file: Name
    headline: Sentence
    bound: Bound | None = None
    confidence: float | None = None
    advice: Sentence = ""


class Watch(Record, frozen=True, kw_only=True):
    """As `traceprobe watch` writes it; times of the lowest rank where there are several."""

    kind: Literal["watch"] = "watch"
    program: Name
    headline: Sentence
    ended: Sentence
    exit_code: int
    seconds: float
    """Of the whole program."""
    watched_s: float
    """From the end of the first step to that of the last."""
    steps: int
    step_ms: float
    ranks: list[WatchedRank]
    pace: list[PaceStretch]
    events: list[RunEvent]
    """What cost most first."""
    strip: StepStrip
    readings: ReadingStrip
    captures: list[ShortCapture]
    """In order of time."""
    captures_lost_s: float
    """Time that the run took longer by them, about."""
    notes: list[Sentence]

    def problems(self) -> Iterator[str]:
        """What it contradicts itself in."""
        if self.steps < 1 or min(self.step_ms, self.seconds, self.watched_s) < 0:
            yield "a run of no steps, or of negative time"
        if not self.ranks or len({rank.rank for rank in self.ranks}) < len(self.ranks):
            yield "a rank is there twice, or none is"
        for strip in (self.strip, self.readings):
            lengths = {
                len(column) for column in msgspec.structs.astuple(strip) if column or strip.at_s
            }
            if lengths - {len(strip.at_s), 0} or (strip is self.strip and 0 in lengths):
                yield "the columns of a strip differ in length"
        edges = [edge for stretch in self.pace for edge in (stretch.first, stretch.last)]
        if not edges or edges != sorted(edges):
            yield "stretches of the pace are out of order"
        for capture in self.captures:
            if capture.steps < 1 or not 0 <= (capture.confidence or 0.0) <= 1:
                yield f"the capture at step {capture.step} contradicts itself"
        for event in self.events:
            if event.count < 1 or event.lost_s < 0 or len(event.steps) != len(event.at_s):
                yield f"an event of {event.cause} contradicts itself"
