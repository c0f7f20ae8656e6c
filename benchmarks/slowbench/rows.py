"""The row of a case: what was put in where, what it costs, and how recording it went."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.slowbench.cases import ACTIVE, Case, line_of
from benchmarks.slowbench.causes import BY_ID
from benchmarks.slowbench.costs import costs, waits_for_host

UNTIMED = "its twin was not timed"
"""Why a case of Nsight Systems has no times, until the one that it shares them with is recorded."""


def row_of(case: Case, result: Mapping[str, Any], about: Mapping[str, Any]) -> dict[str, Any]:
    """The row of a case.

    Args:
        result: what its process and that of its files left. about: further fields.
    """
    row: dict[str, Any] = {
        "id": case.id,
        "twin": case.twin,
        "program": case.program,
        "backend": case.backend,
        "split": case.split,
        "seed": case.seed,
        "ranks": case.ranks,
        "options": dict(case.options),
        "causes": [_cause(case, number) for number in range(len(case.causes))],
        "healthy_ms": None,
        "slow_ms": None,
        "felt": None if case.causes else False,
        "blocks": result["blocks"],
        "failed": result["failed"],
        "steps": ACTIVE,
        "cut": result.get("finish"),
        "seconds": {**result.get("seconds", {}), "finish": result.get("finish_s")},
        **about,
    }
    if result["failed"] or not result["blocks"]:
        return row
    if not case.causes:
        row["failed"] = waits_for_host(result["blocks"])
    return with_times(row, costs(case, result["blocks"]))


def _cause(case: Case, number: int) -> dict[str, Any]:
    placed = case.causes[number]
    cause, line = BY_ID[placed.cause], line_of(case, placed.cause)
    return {
        "id": cause.id,
        "class": cause.cls,
        "phase": cause.phase,
        "file": None if line is None else line.file,
        "line": None if line is None else line.line,
        "more_lines": [] if line is None else list(line.more),
        "function": None if line is None else line.function,
        "rank": placed.rank,
        "level": placed.level,
    }


def with_times(row: Mapping[str, Any], timed: Mapping[str, Any]) -> dict[str, Any]:
    """A row with what its causes cost, as its own blocks or those of its twin have it."""
    own = timed["causes"]
    causes = [
        {**cause, **{k: found[k] for k in ("ms", "low", "high")}}
        for cause, found in zip(row["causes"], own, strict=True)
    ]
    names = ("healthy_ms", "slow_ms", "felt", "each_felt")
    return {**row, "causes": causes, **{name: timed[name] for name in names if name in timed}}


def reason_of(failed: object) -> str:
    """The last line of what a case failed with: of a traceback the error, without paths."""
    return (str(failed).strip().splitlines() or ["failed"])[-1]


def in_words(row: Mapping[str, Any]) -> str:
    """What the log says of a case."""
    if row["failed"]:
        return reason_of(row["failed"])
    causes = ", ".join(
        f"{c['id']} {c.get('ms', 0):.2f} [{c.get('low', 0):.2f}, {c.get('high', 0):.2f}]"
        for c in row["causes"]
    )
    return f"{row['healthy_ms']} -> {row['slow_ms']} ms, felt {row['felt']}; {causes or 'healthy'}"
