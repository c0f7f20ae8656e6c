"""How far ahead of its device a host launches, and short kernels that it launches in a row."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from traceprobe.records.texts import Name, PhaseName

MOST_SEQUENCES = 5
"""Sequences of kernels that a report lists."""


class LaunchQueue(msgspec.Struct, frozen=True, kw_only=True):
    """Launches that were called and have not started, over the time of the summary."""

    p50: int
    """What it is at or below for half the time."""
    p90: int
    longest: int
    empty_ns: int
    """Time in which nothing is outstanding."""
    starved_ns: int
    """Of that, time in which the device idles."""

    def problems(self, window_ns: int) -> Iterator[str]:
        """What it contradicts itself in."""
        if not 0 <= self.p50 <= self.p90 <= self.longest:
            yield "the lengths of the launch queue are out of order"
        if not 0 <= self.starved_ns <= self.empty_ns <= window_ns:
            yield "the launch queue is empty for longer than there is time"


class Launches(msgspec.Struct, frozen=True, kw_only=True):
    """Kernels, copies and memsets of the summary that have a launch call of their own."""

    count: int
    call_us_p50: float
    call_us_p90: float
    delay_us_p50: float
    """From the end of the call to the start on the device, 0 where it starts before."""
    delay_us_p90: float
    outlasting: int
    """Calls that are longer than what they launch."""
    queue: LaunchQueue

    def problems(self, window_ns: int) -> Iterator[str]:
        """What it contradicts itself in."""
        calls, delays = (self.call_us_p50, self.call_us_p90), (self.delay_us_p50, self.delay_us_p90)
        if not (0 <= calls[0] <= calls[1] and 0 <= delays[0] <= delays[1]):
            yield "the times of launches are out of order"
        if not 0 <= self.outlasting <= self.count:
            yield "more launches than there are outlast their kernels"
        yield from self.queue.problems(window_ns)


class KernelSequence(msgspec.Struct, frozen=True, kw_only=True):
    """Short kernels that follow each other on a stream, again and again."""

    kernels: list[Name]
    operators: list[Name | None]
    """What launched each, in most of the repetitions; None outside of any operator."""
    phase: PhaseName
    count: int
    """Repetitions that do not overlap."""
    total_ns: int
    """Durations of all their kernels."""
    gap_ns: int
    """Time between the kernels of a repetition in which the device idles."""
    launch_ns: int
    """Host time from the first launch of a repetition to its last; 0 of what a graph replays."""
    bound_ns: int
    """The most that launching each repetition at once takes off the summary's time, as captured."""
    line: Name | None = None
    """Of the program, where most of the repetitions are launched."""
    within: Name | None = None
    """The module, or else the range, of most of them."""

    @property
    def saved_launches(self) -> int:
        """Launches that there would not be if each repetition were one kernel."""
        return self.count * (len(self.kernels) - 1)

    def problems(self, idle_ns: int) -> Iterator[str]:
        """What it contradicts itself in.

        Args:
            idle_ns: time of the summary in which the device idles for the host or for latency.
        """
        if len(self.kernels) < 2 or len(self.operators) != len(self.kernels):
            yield "a sequence of kernels is none"
        if min(self.count - 1, self.total_ns, self.gap_ns, self.launch_ns, self.bound_ns) < 0:
            yield "a sequence of kernels has less than nothing"
        if self.bound_ns > min(self.gap_ns + self.launch_ns, idle_ns):
            yield "a sequence of kernels saves more than there is"
