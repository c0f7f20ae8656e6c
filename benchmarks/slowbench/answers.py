"""What a tool said of a run, in one shape for all tools."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

NONE = "none"
"""The class that a tool names where it says that nothing holds the run back."""


@dataclass(frozen=True)
class Said:
    """One thing that a tool says of a run.

    Args:
        word: the tool's own, as in the table of words. text: all that it says with it.
        alarm: whether it asks for a look at it; None where the tool makes no such difference.
        promises: whether it says that a good part of the step is to be gained.
        lines: of the program, `train.py(57): step`, the first first.
        rank: of the run, where it blames one.
        saving_ms: the least, the expected and the most that a step would be shorter by.
        left_ms: the same of the step that is left, where it says more than the difference.
    """

    word: str
    text: str = ""
    alarm: bool | None = None
    promises: bool = False
    lines: tuple[str, ...] = ()
    rank: int | None = None
    saving_ms: tuple[float, float, float] | None = None
    left_ms: tuple[float, float, float] | None = None


@dataclass(frozen=True)
class Answer:
    """What a tool made of one recording. None is no answer, which is not wrong.

    Args:
        verdict: its own word for what holds the run back. classes: where that word names them
            itself.
        said: in the order in which it says so.
        confidence: in the verdict, 0 to 1.
        step_ms: the step that it holds the run to have, from which savings go.
        seconds, peak_mb: wall time of its processes together, and the most memory of one.
        failed: why there is no answer at all.
    """

    tool: str
    verdict: str | None = None
    classes: tuple[str, ...] = ()
    said: tuple[Said, ...] = ()
    confidence: float | None = None
    step_ms: float | None = None
    seconds: float | None = None
    peak_mb: float | None = None
    failed: str | None = None


def from_json(found: Mapping[str, Any]) -> Answer:
    """An answer from what `asdict` and JSON made of it."""
    said = [
        Said(
            **{
                **each,
                "lines": tuple(each["lines"]),
                "saving_ms": None if each["saving_ms"] is None else tuple(each["saving_ms"]),
            }
        )
        for each in found["said"]
    ]
    return Answer(**{**found, "classes": tuple(found["classes"]), "said": tuple(said)})
