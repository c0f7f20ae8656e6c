"""The result of running a ladder: what became of each rung. A plain record that serialises to JSON.

What the runs show beside each other is for comparisons of them to say.
"""

from __future__ import annotations

from typing import Literal

from traceprobe.records.base import json_of
from traceprobe.records.cleaning import Clean
from traceprobe.records.comparison import RunSummary

SCHEMA_VERSION = "1.0"

State = Literal["measured", "failed", "skipped"]


class RungResult(Clean, frozen=True, kw_only=True):
    """A rung: what was run, and what became of it."""

    name: str
    """Also that of its folder, which holds traces and report."""
    change: str
    side: bool
    """Whether the rungs after it do without its change."""
    base: str
    """Name of the rung that it builds on; empty for the first."""
    ranks: int
    arguments: list[str]
    """Settings of the workload, without folders."""
    environment_digest: str = ""
    """By which the same variables are known again; empty where it has none."""
    state: State
    reason: str | None = None
    """Why it was not measured; nothing that the program said."""
    run: RunSummary | None = None


class Sweep(Clean, frozen=True, kw_only=True):
    """A ladder that was run, rung by rung in the ladder's order."""

    kind: Literal["sweep"] = "sweep"
    schema_version: str = SCHEMA_VERSION
    traceprobe_version: str
    ladder: str
    workload: str
    backend: str
    warmup: int
    calibrate: int
    active: int
    rungs: list[RungResult]

    def to_json(self) -> str:
        """Indented JSON with sorted keys, ending in a newline."""
        return json_of(self)
