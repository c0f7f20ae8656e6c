"""The result of running a program at several world sizes: plain records that serialise to JSON.

Times are ms per step. A quantity that the runs do not show is None, never 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from traceprobe.model.taxonomy import LOSSES
from traceprobe.records.base import Record
from traceprobe.records.comparison import Basis, RunSummary
from traceprobe.records.numbers import agree, positive
from traceprobe.records.report import Message
from traceprobe.records.run import Algorithm
from traceprobe.records.texts import Sentence, Word

Mode = Literal["weak", "strong"]
Work = Literal["samples", "tokens", "rank steps", "steps"]
Loop = Literal["full", "synthetic"]


class Synchronisation(msgspec.Struct, frozen=True, kw_only=True):
    """The loop with and without gradient synchronisation, by ablation."""

    loop: Loop
    """The whole loop, or the one on a batch that is there already."""
    with_ms: float
    without_ms: float
    overhead: float
    """Part of the step that goes away with the synchronisation."""
    with_per_second: float
    """In `Scaling.work`, as all rates."""
    without_per_second: float


class ScalingPoint(msgspec.Struct, frozen=True, kw_only=True):
    """A run. The smallest is the measure of the others, so its loss is 0."""

    world_size: int
    run: RunSummary
    step_ms: float
    ideal_step_ms: float
    """The step of the smallest run, times the work of a rank over that of its ranks."""
    per_second: float
    ideal_per_second: float
    efficiency: float
    """Ideal step over step, which is the rate over the ideal rate."""
    efficiency_low: float
    efficiency_high: float
    loss_ms: float
    """Step less ideal step."""
    losses_ms: dict[Word, float | None]
    """Parts of the loss, by `taxonomy.LOSSES`; they sum to it. None where the runs do not tell."""
    transfer_ms: float | None
    """Transfer of all collectives of a step, hidden or not."""
    exposed_ms: float | None
    """What of it no computation hides."""
    synchronisation: list[Synchronisation]

    def problems(self) -> Iterator[str]:
        """What it contradicts itself in."""
        name = f"{self.world_size} ranks"
        yield from self.run.problems()
        rates = (self.per_second, self.ideal_per_second, self.efficiency)
        if not positive([self.step_ms, self.ideal_step_ms, *rates]):
            yield f"{name}: a step or a rate is not above 0"
        if set(self.losses_ms) != set(LOSSES):
            yield f"{name}: losses differ from the contract"
        elif not agree(sum(ms or 0 for ms in self.losses_ms.values()), self.loss_ms):
            yield f"{name}: the losses do not sum to that of the step"
        if not agree(self.step_ms - self.ideal_step_ms, self.loss_ms):
            yield f"{name}: the loss is not what the step takes longer"


class Fit(msgspec.Struct, frozen=True, kw_only=True):
    """Bandwidth and latency of the links, fitted to the transfers of some of the runs."""

    algorithm: Algorithm
    chosen: bool
    """Whether predictions use it: it explains the transfers better."""
    world_sizes: list[int]
    gbps: float
    """B of the formula; of a ring the bus bandwidth."""
    latency_us: float | None
    """Of one hop; None where messages of one size cannot tell it from bandwidth: taken as 0."""
    error: float
    """Root mean square of the relative errors of the transfers."""
    between_nodes: bool


class Prediction(msgspec.Struct, frozen=True, kw_only=True):
    """A world size as the model has it; all but `reason` are None where it cannot say."""

    world_size: int
    sources: list[int]
    """World sizes of the runs that it was made from."""
    step_ms: float | None = None
    low_ms: float | None = None
    """The step by the algorithm, ring or tree, that makes it shorter; `high_ms` by the other."""
    high_ms: float | None = None
    per_second: float | None = None
    efficiency: float | None = None
    transfer_ms: float | None = None
    exposed_ms: float | None = None
    reason: Sentence | None = None
    """Why there is no prediction."""


class HeldOut(msgspec.Struct, frozen=True, kw_only=True):
    """A measured run beside what the model makes of others."""

    prediction: Prediction
    step_ms: float
    transfer_ms: float | None
    error: float | None
    """Of the step: predicted over measured, less 1."""
    transfer_error: float | None


class Scaling(Record, frozen=True, kw_only=True):
    """Runs of one program at several world sizes. See `docs/scaling.md` for every field."""

    kind: Literal["scaling"] = "scaling"
    mode: Mode
    why_mode: Sentence
    work: Work
    """What rates count."""
    basis: Basis
    headline: Sentence
    explanation: list[Sentence]
    points: list[ScalingPoint]
    """By world size."""
    fits: list[Fit]
    held_out: list[HeldOut]
    predictions: list[Prediction]
    cautions: list[Message]

    def problems(self) -> Iterator[str]:
        """What it contradicts itself in."""
        sizes = [point.world_size for point in self.points]
        for point in self.points:
            yield from point.problems()
        if not sizes or sizes != sorted(set(sizes)) or sizes[0] < 1:
            yield "the runs are out of order or repeated"
        predictions = [*self.predictions, *(held.prediction for held in self.held_out)]
        if any(p.world_size < 1 or not positive([p.step_ms, p.per_second]) for p in predictions):
            yield "a prediction is not above 0"
        if not all(held.prediction.sources for held in self.held_out):
            yield "a prediction is made from no run"
