"""The result of `traceprobe whatif`: a step with changes, predicted by playing it again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from traceprobe.records.base import Record
from traceprobe.records.comparison import RunSummary
from traceprobe.records.report import Message
from traceprobe.records.texts import Sentence

SAME = 0.01
"""Relative change of throughput up to which a change has no effect."""
NOTHING = 0.01
"""Part of a predicted step: an interval that begins below it says only what the step is at most."""


class Predicted(msgspec.Struct, frozen=True, kw_only=True):
    """A step with changes; with `--accumulate`, of several batches."""

    changes: list[Sentence]
    step_ms: float
    low_ms: float
    high_ms: float
    """Around `step_ms`: what is not known of the host, what the calibration left, and noise."""
    speedup: float
    """Throughput over that of the run as it is."""

    def problems(self) -> Iterator[str]:
        """What it contradicts itself in."""
        if not 0 < self.low_ms <= self.high_ms or min(self.step_ms, self.speedup) <= 0:
            yield "a prediction is out of order"


class Buckets(msgspec.Struct, frozen=True, kw_only=True):
    """Gradients in other buckets, on links as the trace shows them."""

    limit_mb: float
    bytes: list[int]
    """Sizes of the buckets of a step, in the order in which they are sent."""
    before_bytes: list[int]
    gbps: float
    """Bus bandwidth of a large message."""
    latency_us: float | None
    """Of one hop; None where all messages are of about one size."""
    fit_error: float
    """Root mean square of the relative errors of the messages that it was fitted to."""


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """How the replay was made to take as long as the run takes without a profiler."""

    played_ms: float
    """What the rows take as they were recorded."""
    host: float
    """Factor on the host's own time."""
    host_known: bool
    """Whether the step depends on the host, which makes its factor a measurement."""
    held_up: float = 1.0
    """Factor on pauses and stalls of the host; 1 in files of older versions."""
    collectives: float
    """Factor on the durations of collectives."""
    rest: float
    """Factor on every prediction: what scaling these could not explain."""


class WhatIf(Record, frozen=True, kw_only=True):
    """A prediction. See `docs/whatif.md` for the meaning of a field."""

    kind: Literal["whatif"] = "whatif"
    headline: Sentence
    run: RunSummary
    now_ms: float
    asked: Predicted | None
    """None where no change was asked for; then `alone` has what could be."""
    alone: list[Predicted]
    """Each change by itself, the largest effect first."""
    buckets: Buckets | None
    calibration: Calibration
    cautions: list[Message]

    def problems(self) -> Iterator[str]:
        """What it contradicts itself in."""
        yield from self.run.problems()
        if self.now_ms <= 0:
            yield "a step takes no time"
        for predicted in (*self.alone, *([] if self.asked is None else [self.asked])):
            yield from predicted.problems()
