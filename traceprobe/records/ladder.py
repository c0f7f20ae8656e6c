"""The result of an ordered chain of runs, each a change of the one before."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec
from msgspec import UNSET

from traceprobe.model.taxonomy import PARTITION
from traceprobe.records.base import Record
from traceprobe.records.comparison import Change, Per, RunSummary
from traceprobe.records.numbers import positive
from traceprobe.records.prediction import PredictedSaving
from traceprobe.records.report import Message
from traceprobe.records.texts import Name, Sentence, Word


class Rung(msgspec.Struct, frozen=True, kw_only=True):
    """A run, and what it gains over the one before. The first has nothing before it."""

    change: Sentence
    run: RunSummary
    speedup: float | None
    """Throughput over that of the rung before."""
    total_speedup: float
    """Throughput over that of the first rung."""
    step: Change | None
    """Against the rung before, per step or sample."""
    classes: list[Change]
    """Classes whose change is real, largest first."""
    explanation: list[Sentence]
    cautions: list[Message]

    def problems(self) -> Iterator[str]:
        """What it contradicts itself in."""
        yield from self.run.problems()
        for change in (*([] if self.step is None else [self.step]), *self.classes):
            yield from change.problems()
        if {change.name for change in self.classes} - set(PARTITION):
            yield "a class is unknown"
        if not positive([self.speedup, self.total_speedup]):
            yield "a speed-up is not above 0"


class Missing(msgspec.Struct, frozen=True, kw_only=True):
    """A rung that could not be measured."""

    change: Sentence
    label: Name
    reason: Sentence


class Suggestion(msgspec.Struct, frozen=True, kw_only=True):
    """What to try next: a finding of the last rung."""

    finding: Word
    title: Sentence
    saving_ms_per_step: float
    """At most."""
    speedup: float
    """By the predicted saving; at most, where none is predicted."""
    advice: Sentence
    predicted: PredictedSaving | msgspec.UnsetType = UNSET
    """By how much it makes a step shorter; not there where that cannot be played."""


class Ladder(Record, frozen=True, kw_only=True):
    """A chain of runs. See `docs/ladder.md` for the meaning of a field."""

    kind: Literal["ladder"] = "ladder"
    name: Name
    per: Per
    headline: Sentence
    rungs: list[Rung]
    missing: list[Missing]
    limits: Sentence
    """What limits the last rung, in a sentence."""
    suggestions: list[Suggestion]

    def problems(self) -> Iterator[str]:
        """What it contradicts itself in."""
        if not self.rungs:
            yield "there are no rungs"
        for rung in self.rungs:
            yield from rung.problems()
