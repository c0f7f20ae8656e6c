"""The result of comparing two runs: plain records that serialise to JSON.

Times are ms per step, or per sample where the steps of the two runs differ in size
(`Comparison.per`). A quantity that one of the runs does not show is None, never 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

import msgspec

from traceprobe.model.taxonomy import PARTITION, SHARES
from traceprobe.records.base import Record
from traceprobe.records.numbers import ROUNDING, agree, positive
from traceprobe.records.report import Bound, Message
from traceprobe.records.texts import PRIVATE, Name, PhaseName, Sentence, Word

Per = Literal["step", "sample"]
Basis = Literal["unprofiled", "traced"]
Direction = Literal["slower", "faster", "unchanged", "unknown"]
Decision = Literal["pass", "regression", "inconclusive"]
KernelState = Literal["appeared", "vanished", "slower", "faster"]
OperatorState = Literal["appeared", "vanished", "more", "fewer", "same"]
NOTABLE_SHARE = 0.005
"""Part of the base's step from which on a change is worth a row or a sentence."""


class RunSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One run, as all comparisons show it. Means over its used steps and its ranks."""

    label: Name
    inputs: list[Name]
    """Base names of the traces."""
    formats: list[Word]
    devices: list[Sentence]
    """Names of the devices, each once."""
    world_size: int
    steps: int
    samples_per_step: float | None
    """Of all ranks together; None where the capture did not record it."""
    tokens_per_step: float | None
    basis: Basis
    """Where `step_ms` comes from: timed without a profiler, or out of the trace."""
    step_ms: float
    traced_step_ms: float
    unprofiled_step_ms: float | None
    samples_per_second: float | None
    tokens_per_second: float | None
    partition_ms: dict[Word, float | None]
    """Exclusive classes of a traced step; they sum to `traced_step_ms`."""
    shares: dict[Word, float]
    """Those of the verdict, corrected for the profiler."""
    bound: Bound
    secondary: Word | None
    confidence: float
    settings: Annotated[dict[str, Any], PRIVATE]
    """What the capture recorded of the program, flattened."""

    def problems(self) -> Iterator[str]:
        """What it contradicts itself in."""
        name = f"run {self.label}"
        if not positive([self.step_ms, self.traced_step_ms, self.unprofiled_step_ms]):
            yield f"{name}: a step takes no time"
        if min(self.world_size, self.steps) < 1 or not 0 <= self.confidence <= 1:
            yield f"{name}: no steps, no ranks, or a confidence that is no part of 1"
        rates = (self.samples_per_second, self.tokens_per_second)
        if not positive([self.samples_per_step, self.tokens_per_step, *rates]):
            yield f"{name}: no samples in a step"
        times = [ms or 0 for ms in self.partition_ms.values()]
        if set(self.partition_ms) - set(PARTITION) or any(ms < 0 for ms in times):
            yield f"{name}: its partition has an unknown class, or one of less than no time"
        elif not agree(sum(times), self.traced_step_ms):
            yield f"{name}: its partition does not sum to the step"
        if set(self.shares) != set(SHARES) or not agree(sum(self.shares.values()), 1):
            yield f"{name}: its shares do not sum to 1"
        elif not all(0 <= share <= 1 + ROUNDING for share in self.shares.values()):
            yield f"{name}: its shares are no parts of 1"


def scale_of(run: RunSummary, per: Per) -> float:
    """What makes a time of a step one of `per`; 1 where samples are not known."""
    return 1 / run.samples_per_step if per == "sample" and run.samples_per_step else 1.0


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A quantity in both runs and by how much it differs, with its interval.

    `low` and `high` bound `delta`. The change is `real` where the interval leaves out 0 and `delta`
    exceeds `floor`, which is how much the quantity drifts inside the runs themselves.
    """

    name: Word
    unit: Word
    base: float | None
    new: float | None
    delta: float | None
    low: float | None
    high: float | None
    floor: float | None
    real: bool

    def problems(self) -> Iterator[str]:
        """What it contradicts itself in."""
        base, new, delta, low, high = self.base, self.new, self.delta, self.low, self.high
        if None not in (base, new, delta) and not agree((new or 0) - (delta or 0), base or 0):
            yield f"{self.name}: the change is not the difference of the two"
        if (low is None) != (high is None) or (low is not None and high is not None and low > high):
            yield f"{self.name}: its interval is out of order"


class KernelChange(msgspec.Struct, frozen=True, kw_only=True):
    """A kernel of a phase, in ms and calls per step (or sample).

    Reports list the longest kernels only: `None` says that it is not among those, so it takes less
    than the shortest of them.
    """

    name: Name
    phase: PhaseName
    state: KernelState
    base_ms: float | None
    new_ms: float | None
    base_count: float | None
    new_count: float | None


class OperatorChange(msgspec.Struct, frozen=True, kw_only=True):
    """An operator of the framework: calls per step, times in ms per step (or sample).

    One that a run does not call has 0 of everything there.
    """

    name: Name
    state: OperatorState
    """Of its calls."""
    base_count: float
    new_count: float
    base_ms: float
    """Of what it launches itself, on the device."""
    new_ms: float
    base_host_ms: float
    """Of its calls, with all that is called inside them."""
    new_host_ms: float

    @property
    def delta_ms(self) -> float:
        """By how much its time on the device differs."""
        return self.new_ms - self.base_ms

    def problems(self) -> Iterator[str]:
        """What it contradicts itself in."""
        times = (self.base_ms, self.new_ms, self.base_host_ms, self.new_host_ms)
        if min(self.base_count, self.new_count, *times) < 0:
            yield "an operator has less than nothing"
        called = (self.base_count > 0, self.new_count > 0)
        told = {"appeared": (False, True), "vanished": (True, False)}.get(self.state, called)
        ordered = (self.new_count > self.base_count) - (self.new_count < self.base_count)
        signs = {"appeared": 1, "more": 1, "vanished": -1, "fewer": -1, "same": 0}
        if told != called or signs[self.state] != ordered:
            yield "an operator is called more or less often than is said"


class Gate(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the new run is slower by more than is allowed."""

    allowed: float
    """As a fraction of the base's step."""
    decision: Decision
    reason: Sentence


class Comparison(Record, frozen=True, kw_only=True):
    """Two runs and what changed between them. See `docs/compare.md` for the meaning of a field."""

    kind: Literal["comparison"] = "comparison"
    base: RunSummary
    new: RunSummary
    per: Per
    direction: Direction
    headline: Sentence
    explanation: list[Sentence]
    step: Change
    """The step on the basis that both runs have."""
    traced_step: Change
    classes: list[Change]
    """Exclusive classes of the step, as traced; their deltas sum to that of `traced_step`."""
    measures: list[Change]
    """Overlap, collectives, launches and others that are no part of the step."""
    settings: Annotated[dict[str, list[Any]], PRIVATE]
    """Settings that differ: value in the base, value in the new run."""
    kernels: list[KernelChange]
    cautions: list[Message]
    steps_ms: list[list[float]]
    """Traced step times of base and of new run, in order."""
    gate: Gate | None = None
    operators: list[OperatorChange] | msgspec.UnsetType = msgspec.UNSET
    """All that either run calls, those first whose time on the device changed most; not there in
    older comparisons, and where one of the reports has none."""

    def problems(self) -> Iterator[str]:
        """What it contradicts itself in."""
        for run in (self.base, self.new):
            yield from run.problems()
        for change in (self.step, self.traced_step, *self.classes, *self.measures):
            yield from change.problems()
        for operator in self.operators or ():
            yield from operator.problems()
        if len(self.steps_ms) != 2 or any(len(pair) != 2 for pair in self.settings.values()):
            yield "there are not two runs"
        if {change.name for change in self.classes} - set(PARTITION):
            yield "a class is unknown"
