"""One device of one process: its iterations, gaps and pictures. Times are ns, see `Iteration`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Literal

import msgspec

from traceprobe.model.taxonomy import IDLE_CAUSES
from traceprobe.records.picture import Picture
from traceprobe.records.replay import Replay
from traceprobe.records.summary import Nanoseconds, Summary, partition_problems
from traceprobe.records.texts import Name, Sentence, Word
from traceprobe.records.tree import Tree

DeviceKind = Literal["gpu", "cpu"]
Vendor = Literal["nvidia", "amd"]
_AMD = re.compile(r"(amd|radeon|instinct)\b", re.IGNORECASE)
_WAVEFRONT = 64
"""Threads that AMD's GPUs for training run together; NVIDIA's run 32."""


class DeviceInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU, or the CPU of a run without one, as the trace describes it."""

    index: int
    name: Sentence | None
    kind: DeviceKind
    capability: Word | None = None
    multiprocessors: int | None = None
    memory_bytes: int | None = None
    warp_size: int | None = None

    @property
    def vendor(self) -> Vendor | None:
        """Whose GPU it is, of the two whose traces are read; None for a CPU.

        AMD's say so in their names, which ROCm 7 leaves empty, and by their wavefronts. Their
        compute capabilities do not tell: NVIDIA has the same numbers.
        """
        if self.kind == "cpu":
            return None
        amd = self.warp_size == _WAVEFRONT or _AMD.match(self.name or "")
        return "amd" if amd else "nvidia"

    @property
    def facts(self) -> tuple[str | None, str | None, int | None, int | None, int | None]:
        """What the device says of itself: name, capability, multiprocessors, memory, warp size."""
        return (
            self.name,
            self.capability,
            self.multiprocessors,
            self.memory_bytes,
            self.warp_size,
        )


class StepMarker(msgspec.Struct, frozen=True, kw_only=True):
    """What tells the iterations apart; `per_iteration` marks make one of them."""

    kind: Literal["user", "range", "optimizer", "dataloader", "kernels"]
    pattern: Name
    count: int
    confidence: float
    per_iteration: int = 1


class Iteration(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU window. `index` counts markers from 0; times are ns after the report's time zero."""

    index: int
    label: Name
    start_ns: int | None
    end_ns: int | None
    coverage: float | None
    used: bool
    skip_reason: Sentence | None
    collectives: int
    launches: int
    partition_ns: Nanoseconds | None
    busy_ns: Nanoseconds | None
    skew_exposed_ns: int | None = None
    """Exposed time spent waiting for the slowest rank; None where that cannot be told."""

    def problems(self) -> Iterator[str]:
        """What it contradicts itself in."""
        name = f"iteration {self.index}"
        if self.used == (self.skip_reason is not None):
            yield f"{name} is used and skipped, or neither"
        if self.used and self.start_ns is None:
            yield f"{name} is used without a window"
        start, end = self.start_ns, self.end_ns
        if start is None or end is None or self.partition_ns is None or self.busy_ns is None:
            if {start, end} != {None} or self.partition_ns or self.busy_ns:
                yield f"{name} has half a window"
        elif end <= start:
            yield f"{name} ends before it begins"
        else:
            yield from partition_problems(name, self.partition_ns, self.busy_ns, end - start)


class LongIterations(msgspec.Struct, frozen=True, kw_only=True):
    """Iterations that do more than the others (an evaluation, a checkpoint)."""

    indices: list[int]
    every: int | None
    """Distance between them, where at least three recur at it without an exception."""
    once: bool
    extra_ns: int
    """Beyond as many regular ones, together; `extra_partition_ns` is what that consists of."""
    extra_partition_ns: dict[Word, int]
    regular_ms: float
    """Mean of the others."""
    more_work: dict[Word, int] | msgspec.UnsetType = msgspec.UNSET
    """Operations that they have more of, together, by class of the partition: of classes of which
    each of them has more than any other iteration. Missing in older reports."""
    timed_long: int | msgspec.UnsetType = msgspec.UNSET
    """Steps without the profiler that are long by about as much; not there where none is."""
    timed_steps: int | msgspec.UnsetType = msgspec.UNSET
    """Among how many, as `timed_long`."""
    period: int | msgspec.UnsetType = msgspec.UNSET
    """Steps after which the loop repeats itself, where that alone tells that they recur."""
    mean_step_ms: float | msgspec.UnsetType = msgspec.UNSET
    """Step without the profiler, mean, where that alone tells that they recur: it is longer than
    the others are with it."""

    def share(self, among: int) -> float:
        """Part of the steps that are long, of those recorded and those timed without the profiler.

        Args:
            among: the used iterations, regular ones too.
        """
        timed = 0 if self.timed_steps is msgspec.UNSET else self.timed_steps
        more = 0 if self.timed_long is msgspec.UNSET else self.timed_long
        return (len(self.indices) + more) / (among + timed)


class SpeedChange(msgspec.Struct, frozen=True, kw_only=True):
    """A change of the GPU's speed within the capture, by how long the same kernels take."""

    slow: list[int]
    """Indices of the iterations in which they take longer."""
    ratio: float
    kernels: int
    """How many of an iteration were compared."""
    left_out: list[int]
    """Indices of the iterations that do not count for it."""


class TimeSlices(msgspec.Struct, frozen=True, kw_only=True):
    """Kernels that were stopped while another process had the GPU, by how much longer they take."""

    count: int
    """Kernels of the used iterations that were stopped."""
    kinds: int
    """How many different ones, by name."""
    slice_ns: int
    """The median of what they take longer by; half of them are within 15 % of each other."""
    extra_ns: int
    """All together."""


class Gap(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of time in which the device idles, ns after the time zero of its input."""

    start_ns: int
    end_ns: int
    iteration: int | None
    cause: Word
    evidence: Sentence
    before: Name | None
    after: Name | None


class Rank(msgspec.Struct, frozen=True, kw_only=True):
    """One device of one process."""

    rank: int
    pid: int
    device: DeviceInfo
    step_marker: StepMarker | None
    iterations: list[Iteration]
    summary: Summary
    gaps: list[Gap]
    picture: Picture | msgspec.UnsetType = msgspec.UNSET
    """Whole iterations with every operation; not there in older reports, and in large runs only of
    the ranks with details."""
    input: int = 0
    """Index of the input this rank came from; its times count from that input's origin."""
    replay: Replay | msgspec.UnsetType = msgspec.UNSET
    """Not there without at least two used iterations in a row whose launches are in the trace."""
    long: LongIterations | msgspec.UnsetType = msgspec.UNSET
    """Not there where no iteration does more than the others."""
    speed: SpeedChange | msgspec.UnsetType = msgspec.UNSET
    """Not there where the GPU was equally fast in all iterations."""
    slices: TimeSlices | msgspec.UnsetType = msgspec.UNSET
    """Not there where nothing shows another process on the GPU."""
    tree: Tree | msgspec.UnsetType = msgspec.UNSET
    """Who owns the time of the summary; not there in older reports, and in large runs only of the
    ranks with details."""
    timed_wait_ms: float | msgspec.UnsetType = msgspec.UNSET
    """Waiting for the loader in a step without the profiler; not there where nobody timed it."""

    @property
    def iteration_count(self) -> int:
        """Iterations, whether the report lists them or not."""
        listed = len(self.iterations)
        return listed or (0 if self.step_marker is None else self.step_marker.count)

    @property
    def windows(self) -> list[Iteration]:
        """The iterations that have a window, used or not."""
        return [i for i in self.iterations if i.start_ns is not None]

    def problems(self) -> Iterator[str]:
        """What it contradicts itself in; of a rank that keeps its details."""
        marker = self.step_marker
        yield from self._iteration_problems()
        if (marker is None) != (not self.iterations):
            yield "iterations without a marker, or a marker without iterations"
        if marker is not None and marker.count != len(self.iterations):
            yield "the marker counts other iterations than there are"
        yield from self.summary.problems()
        yield from self._total_problems()
        yield from self._gap_problems()
        if isinstance(self.picture, Picture):
            yield from self.picture.problems()
        if isinstance(self.replay, Replay):
            yield from self.replay.problems()
        if isinstance(self.tree, Tree):
            yield from self.tree.problems(self.summary.partition_ns)

    def problems_without_details(self) -> Iterator[str]:
        """The same of a rank of a large run of which only the summary stays."""
        yield from self.summary.problems()
        details = [self.iterations, self.gaps, self.summary.collectives, self.summary.top_kernels]
        packed = isinstance(self.picture, Picture) or isinstance(self.tree, Tree)
        if any(details) or packed or self.summary.operators:
            yield "has details although it is not listed as detailed"

    def _iteration_problems(self) -> Iterator[str]:
        for place, iteration in enumerate(self.iterations):
            if iteration.index != place:
                yield f"iteration {iteration.index} is the one at {place}"
            yield from iteration.problems()
        for before, after in pairwise(self.windows):
            if (before.end_ns or 0) > (after.start_ns or 0):
                yield f"the windows of iterations {before.index} and {after.index} overlap"
        if self.summary.iterations_used != sum(i.used for i in self.iterations):
            yield "iterations_used is not the number of used iterations"

    def _total_problems(self) -> Iterator[str]:
        """Totals are those of the iterations that the summary is about."""
        summary = self.summary
        covered = [i for i in self.iterations if i.used] or self.windows
        if not covered:
            return
        if summary.window_ns != sum((i.end_ns or 0) - (i.start_ns or 0) for i in covered):
            yield "window_ns is not the sum of its iterations"
        for kind in ("partition_ns", "busy_ns"):
            records = [record for i in covered if (record := getattr(i, kind)) is not None]
            for key, total in getattr(summary, kind).items():
                if (total or 0) != sum(record.get(key) or 0 for record in records):
                    yield f"summary.{kind}.{key} is not the sum of its iterations"
        waited = [i.skew_exposed_ns for i in covered if i.skew_exposed_ns is not None]
        in_total = summary.communication and summary.communication.skew_exposed_ns
        if waited and sum(waited) != (in_total or 0):
            yield "skew_exposed_ns is not the sum of its iterations"

    def _gap_problems(self) -> Iterator[str]:
        """Gaps are inside the idle time of their iteration."""
        windows = {i.index: i for i in self.windows}
        idle: dict[int | None, int] = {}
        for gap in self.gaps:
            length = gap.end_ns - gap.start_ns
            idle[gap.iteration] = idle.get(gap.iteration, 0) + length
            window = windows.get(gap.iteration) if gap.iteration is not None else None
            if length <= 0:
                yield "a gap is empty"
            if gap.cause not in IDLE_CAUSES:
                yield "a gap has an unknown cause"
            if windows and (
                window is None
                or not (window.start_ns or 0) <= gap.start_ns < gap.end_ns <= (window.end_ns or 0)
            ):
                yield "a gap is outside of its iteration"
        for index, spent in idle.items():
            window = windows.get(index) if index is not None else None
            part = self.summary.partition_ns if window is None else window.partition_ns or {}
            if spent > sum(part.get(cause) or 0 for cause in IDLE_CAUSES):
                yield "gaps are longer than the idle time that they are in"


def mean_step_ms(ranks: Sequence[Rank]) -> float | None:
    """Mean step of several ranks, ms; None where none of them has steps."""
    means = [rank.summary.step_ms.mean for rank in ranks if rank.summary.step_ms is not None]
    return sum(means) / len(means) if means else None


def mean_class_ms(ranks: Sequence[Rank], classes: Iterable[str]) -> float:
    """Time of classes per step, mean of several ranks, ms; see `Summary.class_ns`."""
    chosen = tuple(classes)
    each = [sum(map(r.summary.class_ns, chosen)) / r.summary.steps for r in ranks]
    return sum(each) / len(each) / 1e6


def removable_ms(ranks: Sequence[Rank], classes: Iterable[str], straggler: int | None) -> float:
    """What a step can get shorter by, at most, where the time of classes goes, ms.

    It is the mean of the ranks. Where all wait for one of them it is that of the rank with most of
    the time: either that rank is late because of it, or it is what the others wait in.

    Args:
        straggler: number of the rank that all others wait for, None without one.
    """
    chosen = tuple(classes)
    if straggler is None:
        return mean_class_ms(ranks, chosen)
    return max(mean_class_ms([rank], chosen) for rank in ranks)
