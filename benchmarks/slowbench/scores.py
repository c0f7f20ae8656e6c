"""All cases with the marks of all tools, in one file that the page is made from."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.performance_page import machine
from benchmarks.slowbench.answers import Answer
from benchmarks.slowbench.asking import answers_of
from benchmarks.slowbench.captures import machines, rows_of
from benchmarks.slowbench.marks import Marks, alarms_of, class_of, felt_causes, lines_of, mark
from benchmarks.slowbench.rows import reason_of
from benchmarks.slowbench.words import named

FIRST = 4
"""Words that are kept of an answer."""

NO_ANSWER = dict.fromkeys(("verdict", "alarms", "confidence", "seconds", "peak_mb", "failed"))
"""What an answer may lack; its lists are always there."""


def score(folders: Sequence[Path]) -> dict[str, Any]:
    """The cases of folders in which the tools were asked."""
    rows: list[dict[str, Any]] = []
    versions: dict[str, str] = {}
    cases = []
    for folder in folders:
        own = _with_blocks(rows_of(folder))
        rows += own
        answers = answers_of(folder)
        versions.update({tool: told for (_, tool), (told, _) in answers.items()})
        for row in own:
            found = {
                tool: answer for (case, tool), (_, answer) in answers.items() if case == row["id"]
            }
            cases.append(_case(row, found))
    return {
        "versions": versions,
        "machines": machines(rows),
        "scored_on": machine(),
        "cases": sorted(cases, key=lambda case: case["id"]),
    }


def _with_blocks(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows with the blocks that they were timed in, which one of two twins holds."""
    by_id = {row["id"]: row.get("blocks") for row in rows}
    return [
        {**row, "blocks": row.get("blocks") or by_id.get(row.get("twin")) or {}} for row in rows
    ]


def _case(row: Mapping[str, Any], answers: Mapping[str, Answer]) -> dict[str, Any]:
    """What the page needs of a case."""
    failed = row.get("failed")
    if failed is None and row["causes"] and row["felt"] is None:
        failed = "it was not timed"
    if failed is not None:
        return {"id": row["id"], "split": row["split"], "failed": reason_of(failed)}
    kept = ("id", "seed", "program", "backend", "split", "healthy_ms", "slow_ms", "felt", "causes")
    return {
        **{key: row.get(key) for key in kept},
        "failed": None,
        "class": class_of(row),
        "felt_causes": [cause["id"] for cause in felt_causes(row)],
        "answers": {tool: _answer(row, answer) for tool, answer in sorted(answers.items())},
    }


def _answer(row: Mapping[str, Any], answer: Answer) -> dict[str, Any]:
    said = named(answer)
    return {
        "verdict": answer.verdict,
        "said": [one.word for one, _ in said[:FIRST]],
        "alarms": alarms_of(answer),
        "lines": lines_of(answer)[:FIRST],
        "confidence": answer.confidence,
        "seconds": answer.seconds,
        "peak_mb": answer.peak_mb,
        "failed": answer.failed,
        "marks": asdict(mark(row, answer)),
    }


def to_text(found: Mapping[str, Any]) -> str:
    """Scores as JSON, a case to a line, without what answers lack: half as long as with it."""
    dense = json.JSONEncoder(sort_keys=True, separators=(",", ":"))
    cases = ",\n".join(dense.encode(_short(case)) for case in found["cases"])
    rest = dense.encode({key: found[key] for key in found if key != "cases"})
    return f'{{"cases":[\n{cases}\n],{rest[1:]}\n'


def from_text(text: str) -> dict[str, Any]:
    """Scores that `to_text` wrote."""
    found: dict[str, Any] = json.loads(text)
    return {**found, "cases": [_whole(case) for case in found["cases"]]}


def _short(case: Mapping[str, Any]) -> dict[str, Any]:
    answers = {
        tool: {**_said(answer), "marks": _said(answer["marks"])}
        for tool, answer in case.get("answers", {}).items()
    }
    return {**case, "answers": answers} if answers else dict(case)


def _said(record: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in record.items() if value is not None}


def _whole(case: Mapping[str, Any]) -> dict[str, Any]:
    answers = {
        tool: {**NO_ANSWER, **answer, "marks": asdict(Marks(**answer["marks"]))}
        for tool, answer in case.get("answers", {}).items()
    }
    return {**case, "answers": answers} if answers else dict(case)
