"""One answer, held against what was put into the program."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.slowbench.answers import NONE, Answer, Said
from benchmarks.slowbench.causes import BY_ID
from benchmarks.slowbench.words import SILENT, bound, claimed, claimed_classes, meaning, named

BOUND = 0.2
"""Part of the step from which something bounds a run, as docs/definitions.md has it."""
HEALTHY = "healthy"
RARE = "periodic-"
"""How causes are called that come every few steps."""
FIRST = 3
Named = Sequence[tuple[Said, frozenset[str]]]
_LINE = re.compile(r"^(.*)\((\d+)\)")


@dataclass(frozen=True)
class Marks:
    """What is right about an answer; None where there is none, or nothing is asked.

    Args:
        verdict: its verdict is the class of the case.
        cls: the same; where the causes have less than 20 % of the step, which is too little to
            bound a run, or come every few steps, of which a verdict is not, the first thing that it
            says may be of that class instead.
        place: of the first thing said that names a cause of the case, from 1; 0 for nowhere.
        all_in_three: whether all causes of the case are named in the first three.
        line: place of the line among the lines that it names, from 1; 0 for nowhere.
        rank: it blames the right one.
        step_error: the step that it predicts once the cause is mended, over the one that was
            measured without it, less 1. step_inside: the measured one is in the interval that it
            predicts. step_near: its measured interval touches that.
        advised: of the first thing said that names a cause, where it is one of the case: what it
            promises to gain by mending it, and what was gained by that, ms a step.
        width: causes that the first thing said stands for.
        alarms: how often it asks for a look, of a run in which nothing is felt.
    """

    verdict: bool | None = None
    cls: bool | None = None
    place: int | None = None
    all_in_three: bool | None = None
    line: int | None = None
    rank: bool | None = None
    step_error: float | None = None
    step_inside: bool | None = None
    step_near: bool | None = None
    advised: tuple[float, float] | None = None
    width: int | None = None
    alarms: int | None = None


def mark(row: Mapping[str, Any], answer: Answer) -> Marks:
    """The marks of an answer to a case."""
    if answer.failed is not None:
        return Marks()
    if not row["causes"] or not row["felt"]:
        alarms = alarms_of(answer)
        return Marks(
            verdict=_verdict(row, answer) if not row["causes"] else None,
            alarms=None if alarms is None else len(alarms),
        )
    said = named(answer)
    felt = felt_causes(row)
    wanted = [cause for cause in felt if cause["id"] in claimed(answer.tool)]
    places = [place for cause in wanted if (place := place_of(said, cause["id"]))]
    predicted = _predicted(row, answer.step_ms, said)
    return Marks(
        verdict=_verdict(row, answer),
        cls=_class(row, answer, said),
        place=min(places, default=0) if wanted else None,
        all_in_three=(len(places) == len(felt) and max(places) <= FIRST if wanted else None),
        line=_line(row, lines_of(answer)),
        rank=_rank(row, said),
        step_error=predicted[0],
        step_inside=predicted[1],
        step_near=predicted[2],
        advised=_advised(row, said),
        width=len(said[0][1]) if said else None,
    )


def class_of(row: Mapping[str, Any]) -> str:
    """The class of a case: that of its cause, of a pair that of the larger one."""
    return str(_largest(row)["class"]) if row["causes"] else HEALTHY


def _largest(row: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = max(row["causes"], key=lambda cause: cause["ms"])
    return found


def _right(row: Mapping[str, Any]) -> set[str]:
    """A run with nothing wrong is bound by computing, or by nothing."""
    if not row["causes"]:
        return {"compute", NONE}
    largest = _largest(row)
    return {str(largest["class"]), BY_ID[largest["id"]].also or str(largest["class"])}


def felt_causes(row: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The causes of a case that make its step longer; of a pair it may be one."""
    felt = row.get("each_felt") or [row["felt"]] * len(row["causes"])
    return [cause for cause, longer in zip(row["causes"], felt, strict=True) if longer]


def place_of(said: Named, cause: str) -> int:
    """Place of the first thing said that stands for a cause; 0 for nowhere."""
    return next((n for n, (_, causes) in enumerate(said, 1) if cause in causes), 0)


def alarms_of(answer: Answer) -> list[str] | None:
    """Alarms that name a cause, or promise to gain something, each once; None without any words."""
    if answer.tool in SILENT:
        return None
    asking = [s for s in answer.said if s.alarm and (s.promises or _names(answer, s))]
    return list(dict.fromkeys(said.word for said in asking))


def _names(answer: Answer, said: Said) -> bool:
    return bool(meaning(answer.tool, said.word, said.text))


def _verdict(row: Mapping[str, Any], answer: Answer) -> bool | None:
    right = _right(row)
    told = bound(answer)
    if told is None or not right & claimed_classes(answer.tool):
        return None
    return bool(told & right)


def _class(row: Mapping[str, Any], answer: Answer, said: Named) -> bool | None:
    verdict = _verdict(row, answer)
    share = sum(cause["ms"] for cause in row["causes"]) / row["slow_ms"]
    bounding = share >= BOUND and not _largest(row)["id"].startswith(RARE)
    if verdict or bounding or not said or not claimed_classes(answer.tool):
        return verdict
    return bool(_right(row) & {BY_ID[name].cls for name in said[0][1] if name in BY_ID})


def lines_of(answer: Answer) -> list[str]:
    """All lines that are named, in the order of what they are named for."""
    each = [said.lines for said in answer.said if _names(answer, said)]
    return list(dict.fromkeys(line for lines in each for line in lines))


def _line(row: Mapping[str, Any], lines: Sequence[str]) -> int | None:
    wanted = {
        (c["file"], number)
        for c in row["causes"]
        if c.get("line") is not None
        for number in (c["line"], *c.get("more_lines", ()))
    }
    if not wanted or not lines:
        return None
    return next((n for n, line in enumerate(lines, 1) if _parts(line) in wanted), 0)


def _parts(line: str) -> tuple[str, int] | None:
    found = _LINE.match(line)
    return (Path(found[1]).name, int(found[2])) if found else None


def _rank(row: Mapping[str, Any], said: Named) -> bool | None:
    wanted = [c["rank"] for c in row["causes"] if c.get("rank") is not None]
    blamed = [one.rank for one, _ in said if one.rank is not None]
    return blamed[0] in wanted if wanted and blamed else None


def _predicted(
    row: Mapping[str, Any], step_ms: float | None, said: Named
) -> tuple[float | None, bool | None, bool | None]:
    """Of the first thing said that names a cause and predicts anything: `step_*` of `Marks`.

    A loader's pace, or a collection of garbage, takes another time in each run: how long the step
    was then is in the prediction. What is left without the cause is what both have in common.
    """
    for one, causes in said:
        mine = _named_causes(row, causes)
        if mine and one.saving_ms is not None and step_ms is not None:
            least, expected, most = one.left_ms or [step_ms - ms for ms in one.saving_ms[::-1]]
            low, without, high = _without(row, mine)
            near = low <= most and least <= high
            return round(expected / without - 1, 4), least <= without <= most, near
    return None, None, None


def _advised(row: Mapping[str, Any], said: Named) -> tuple[float, float] | None:
    if not said or said[0][0].saving_ms is None:
        return None
    first, causes = said[0]
    mine = _named_causes(row, causes)
    if not mine:
        return None
    gained = mine[0]["ms"] if len(mine) == 1 else round(row["slow_ms"] - _without(row, mine)[1], 4)
    return first.saving_ms[1], gained


def _named_causes(row: Mapping[str, Any], names: frozenset[str]) -> list[Mapping[str, Any]]:
    """The causes of a case that something said stands for."""
    return [cause for cause in row["causes"] if cause["id"] in names]


def _without(
    row: Mapping[str, Any], causes: Sequence[Mapping[str, Any]]
) -> tuple[float, float, float]:
    """The step without some causes, as it was measured, and the ends of its interval, ms.

    Without one of two the other stays. Rows of recordings that were timed before blocks were kept
    have the difference alone.
    """
    every = len(causes) == len(row["causes"])
    form = "healthy" if every else f"without {causes[0]['id']}"
    steps = [block["ms"] for block in row.get("blocks", {}).get(form, ())]
    if steps:
        return min(steps), row["healthy_ms"] if every else fmean(steps), max(steps)
    cause = max(causes, key=lambda each: each["ms"])
    without = row["healthy_ms"] if every else row["slow_ms"] - cause["ms"]
    low, high = row["slow_ms"] - cause["high"], row["slow_ms"] - cause["low"]
    return min(low, without), without, max(high, without)
