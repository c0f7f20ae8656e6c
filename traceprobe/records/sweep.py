"""The result of running a ladder: what became of each rung. A plain record that serialises to JSON.

What the runs show beside each other is for comparisons of them to say.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from traceprobe.records.base import Saved
from traceprobe.records.cleaning import Clean
from traceprobe.records.comparison import RunSummary
from traceprobe.records.texts import PRIVATE, Name, Sentence, Word

State = Literal["measured", "failed", "skipped"]


class RungResult(Clean, frozen=True, kw_only=True):
    """A rung: what was run, and what became of it."""

    name: Name
    """Also that of its folder, which holds traces and report."""
    change: Sentence
    side: bool
    """Whether the rungs after it do without its change."""
    base: Name
    """Name of the rung that it builds on; empty for the first."""
    ranks: int
    arguments: Annotated[list[str], PRIVATE]
    """Settings of the workload, without folders."""
    environment_digest: Annotated[str, PRIVATE] = ""
    """By which the same variables are known again; empty where it has none."""
    state: State
    reason: Sentence | None = None
    """Why it was not measured; nothing that the program said."""
    run: RunSummary | None = None

    def problems(self) -> Iterator[str]:
        """What it contradicts itself in."""
        if (self.run is None) == (self.state == "measured"):
            yield f"rung {self.name} is {self.state}, with a run or without"
        if self.run is not None:
            yield from self.run.problems()


class Sweep(Saved, frozen=True, kw_only=True):
    """A ladder that was run, rung by rung in the ladder's order."""

    kind: Literal["sweep"] = "sweep"
    ladder: Name
    workload: Word
    backend: Word
    warmup: int
    calibrate: int
    active: int
    rungs: list[RungResult]

    def problems(self) -> Iterator[str]:
        """What it contradicts itself in."""
        names = [rung.name for rung in self.rungs]
        if len(set(names)) < len(names):
            yield "a rung is there twice"
        for rung in self.rungs:
            yield from rung.problems()
