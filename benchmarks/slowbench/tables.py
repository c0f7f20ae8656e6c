"""The tables of the page about slowbench: cases and marks to Markdown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from statistics import fmean, median
from typing import Any

from benchmarks.performance_page import table
from benchmarks.rank_correlation import spearman
from benchmarks.slowbench.marks import BOUND, HEALTHY
from benchmarks.slowbench.shares import Share, share
from benchmarks.slowbench.words import WORDS, claimed

Case = Mapping[str, Any]
OURS = "traceprobe"
CONFIDENCES = (0.0, 0.5, 0.7, 0.85, 1.0)


def slow(cases: Iterable[Case]) -> list[Case]:
    """Those in which something was put that is felt."""
    return [case for case in cases if case["class"] != HEALTHY and case["felt"]]


def healthy(cases: Iterable[Case]) -> list[Case]:
    """Those in which nothing was put."""
    return [case for case in cases if case["class"] == HEALTHY]


def unfelt(cases: Iterable[Case]) -> list[Case]:
    """Those in which what was put costs nothing."""
    return [case for case in cases if case["class"] != HEALTHY and not case["felt"]]


def marks(cases: Iterable[Case], tool: str) -> list[Mapping[str, Any]]:
    """Of a tool, those of the cases that it was asked about."""
    return [case["answers"][tool]["marks"] for case in cases if tool in case["answers"]]


def within(each: Iterable[Mapping[str, Any]], key: str, most: int) -> Share:
    """Places up to the most."""
    places = [mark[key] for mark in each]
    return share(None if place is None else 0 < place <= most for place in places)


def of(each: Iterable[Mapping[str, Any]], key: str) -> Share:
    """Of marks that are right or wrong."""
    return share(mark[key] for mark in each)


def quiet(each: Iterable[Mapping[str, Any]]) -> Share:
    """False alarms: runs with any."""
    return share(None if mark["alarms"] is None else mark["alarms"] > 0 for mark in each)


def tools_table(cases: Sequence[Case], tools: Sequence[str]) -> str:
    """All scores of all tools."""
    rows = []
    for tool in tools:
        of_slow = marks(slow(cases), tool)
        singles = marks([c for c in slow(cases) if len(c["causes"]) == 1], tool)
        rows.append(
            [
                tool,
                str(of(of_slow, "cls")),
                str(within(of_slow, "place", 1)),
                str(within(of_slow, "place", 3)),
                _only(within(singles, "line", 1)),
                _only(within(singles, "line", 3)),
                _only(of(singles, "rank")),
                _width(of_slow),
                str(quiet(marks(healthy(cases), tool))),
            ]
        )
    head = ("tool", "class", "cause first", "in three", "line first", "in three", "rank")
    return table((*head, "causes a word", "healthy runs with an alarm"), rows)


def seeds_table(cases: Sequence[Case]) -> str:
    """What traceprobe says of the cases of each seed, which were drawn and asked about together."""
    found: dict[int, list[Case]] = {}
    for case in cases:
        found.setdefault(case["seed"], []).append(case)
    rows = []
    for seed, own in sorted(found.items()):
        each = marks(slow(own), OURS)
        shares = (of(each, "cls"), within(each, "place", 1), within(each, "place", 3))
        alarmed = quiet(marks(healthy(own), OURS))
        rows.append([str(seed), str(len(own)), *map(str, shares), str(alarmed)])
    head = ("seed", "recordings", "class", "cause first", "in three", "healthy runs with an alarm")
    return table(head, rows)


def _only(found: Share) -> str:
    """A share of what was answered: most cases ask for none of it."""
    return str(Share(found.right, found.answered, found.answered))


def _width(each: Sequence[Mapping[str, Any]]) -> str:
    widths = [mark["width"] for mark in each if mark["width"]]
    return f"{fmean(widths):.1f}" if widths else "–"


def verdicts_table(cases: Sequence[Case], tools: Sequence[str]) -> str:
    """Verdicts alone: where the causes bound the run, where they do not, and without any."""

    def part(case: Case) -> float:
        return float(sum(cause["ms"] for cause in case["causes"]) / case["slow_ms"])

    groups = {
        f"causes of {BOUND:.0%} of the step and more": [c for c in slow(cases) if part(c) >= BOUND],
        "of less": [c for c in slow(cases) if part(c) < BOUND],
        "healthy runs": healthy(cases),
    }
    rows = [
        [name, *(str(of(marks(group, tool), "verdict")) for tool in tools)]
        for name, group in groups.items()
    ]
    return table(("verdict names the class", *tools), rows)


def groups_table(
    title: str, cases: Sequence[Case], tools: Sequence[str], key: Callable[[Case], Iterable[str]]
) -> str:
    """For each group of cases and each tool, the class, the cause first and in three."""
    found: dict[str, list[Case]] = {}
    for case in slow(cases):
        for name in key(case):
            found.setdefault(name, []).append(case)
    rows = []
    for name in sorted(found):
        cells = [name, str(len(found[name]))]
        for tool in tools:
            each = marks(found[name], tool)
            counts = (of(each, "cls"), within(each, "place", 1), within(each, "place", 3))
            cells.append(" / ".join(_count(count) for count in counts))
        rows.append(cells)
    return table((title, "cases", *tools), rows)


def _count(found: Share) -> str:
    return f"{found.right} of {found.answered}" if found.answered else "–"


def confidence_table(cases: Sequence[Case], tools: Sequence[str]) -> str:
    """How often verdicts are right that are equally sure, healthy runs among them."""
    rows = []
    for low, high in pairwise(CONFIDENCES):
        cells = [f"{low} to {high}"]
        for tool in tools:
            each = [
                answer["marks"]
                for case in (*slow(cases), *healthy(cases))
                if (answer := case["answers"].get(tool)) is not None
                and answer["confidence"] is not None
                and (low <= answer["confidence"] < high or answer["confidence"] == high == 1)
            ]
            right = [m["verdict"] if m["cls"] is None else m["cls"] for m in each]
            cells.append(str(share(right)) if each else "–")
        rows.append(cells)
    return table(("confidence", *tools), rows)


CLOSE = (0.05, 0.10, 0.15)
"""Relative errors of steps that are counted."""


def savings_table(cases: Sequence[Case]) -> str:
    """The step that traceprobe predicts without a cause, against the one that was measured."""
    rows = []
    groups = {case["class"] for case in slow(cases)}
    for name in (*sorted(groups), "all"):
        each = marks([c for c in slow(cases) if name in ("all", c["class"])], OURS)
        errors = [abs(m["step_error"]) for m in each if m["step_error"] is not None]
        rows.append(
            [
                name,
                f"{median(errors):.1%}" if errors else "–",
                *(str(share(error <= most for error in errors)) for most in CLOSE),
                _only(of(each, "step_inside")),
                _only(of(each, "step_near")),
            ]
        )
    within = [f"within {most:.0%}" for most in CLOSE]
    head = ("class", "median error", *within, "in the predicted interval", "or touching it")
    return table(head, rows)


def advised_text(cases: Sequence[Case]) -> str:
    """How what traceprobe promises of its first advice goes with what following it gained."""
    each = [m["advised"] for m in marks(slow(cases), OURS) if m["advised"] is not None]
    order = spearman([promised for promised, _ in each], [gained for _, gained in each])
    if order is None:
        return "Too few first advices promise anything."
    ratio = median(promised / gained for promised, gained in each)
    return (
        f"Of {len(each)} runs the first advice was followed: it promised {ratio:.0%} of what that "
        f"gained (median), and the rank correlation of the two, in ms, is {order:.2f}."
    )


def costs_table(cases: Sequence[Case], tools: Sequence[str]) -> str:
    """Time and memory of what was answered."""
    rows = []
    for tool in tools:
        done = [
            answer
            for case in cases
            if (answer := case["answers"].get(tool)) is not None
            and answer["failed"] is None
            and answer["seconds"] is not None
        ]
        if done:
            times, sizes = [a["seconds"] for a in done], [a["peak_mb"] for a in done]
            spread = f"{median(times):.1f} ({min(times):.1f}–{max(times):.1f})"
            rows.append([tool, str(len(done)), spread, f"{median(sizes):.0f}", f"{max(sizes):.0f}"])
    return table(("tool", "answers", "s", "MB, median", "MB, most"), rows)


def silence_table(cases: Sequence[Case], tools: Sequence[str]) -> str:
    """Why there was no answer, and how often."""
    found: dict[tuple[str, str], int] = {}
    for case in cases:
        for tool in tools:
            answer = case["answers"].get(tool)
            why = "was not asked" if answer is None else answer["failed"]
            if why is not None:
                found[tool, why] = found.get((tool, why), 0) + 1
    rows = [
        [tool, str(count), why.replace("|", "/")] for (tool, why), count in sorted(found.items())
    ]
    return table(("tool", "cases", "why it has no answer"), rows) if rows else ""


def words_table(tool: str) -> str:
    """What the words of a tool stand for."""
    lines = ["| word | where its text has | stands for |", "| --- | --- | --- |"]
    for word in WORDS[tool]:
        phrase = f"`` {word.phrase} ``".replace("|", "\\|") if word.phrase else ""
        lines.append(f"| `{word.says}` | {phrase} | {', '.join(word.causes) or 'none'} |")
    return "\n".join(lines)


def unclaimed(tool: str, causes: Iterable[str]) -> list[str]:
    """Causes that a tool has no word for."""
    return sorted(set(causes) - claimed(tool))
