"""TraceML: a launcher, which ran the same program; its `final_summary.json` is read here.

`traceml_runs.py` runs a case so; what it leaves lies beside the recordings, `traceml/CASE.json`. It
has no time or memory of its own: both are the program's, too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.slowbench.answers import Answer, Said

NAME = "TraceML"
ALARMS = ("warn", "crit")
SECTIONS = ("step_time", "process", "system", "step_memory")


def read(path: Path) -> tuple[str, Answer]:
    """The version of TraceML that ran a case, and its answer.

    Args:
        path: JSON with `summary`, TraceML's own, `version` and `failed`.
    """
    run = json.loads(path.read_text(encoding="utf-8"))
    if run["failed"] is not None:
        return run["version"], Answer(NAME, failed=run["failed"])
    return run["version"], interpret(run["summary"])


def interpret(summary: Mapping[str, Any]) -> Answer:
    """The primary diagnosis is the verdict; then the issues of all sections in their order."""
    primary = summary["primary_diagnosis"]
    issues = [primary]
    for section in SECTIONS:
        issues += (summary.get(section) or {}).get("issues") or []
    return Answer(NAME, primary["kind"], said=tuple(map(_said, issues)))


def _said(issue: Mapping[str, Any]) -> Said:
    ranks = issue.get("ranks") or []
    straggles = "STRAGGLER" in issue["kind"] and len(ranks) == 1
    return Said(
        issue["kind"],
        issue.get("action") or "",
        alarm=issue["severity"] in ALARMS,
        rank=int(ranks[0]) if straggles else None,
    )
