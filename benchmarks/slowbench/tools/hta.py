"""Holistic Trace Analysis: its breakdowns of a trace.

It states shares and no verdict. The largest share but compute that has 20 % of the time is taken
for one, as traceprobe's own verdicts are made, else compute. What it says of idle time, copies and
communication comes in the order of their time, from 5 % of all on.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.slowbench.answers import Answer, Said
from benchmarks.slowbench.tools.tool import Tool, version

NAME = "HTA"
PROGRAM = Path(__file__).parent / "inside" / "ask_hta.py"
BOUND, NOTABLE = 0.2, 0.05


def tool(venv: Path) -> Tool:
    """HTA as it is installed in an environment.

    Without rounding, which is its default and makes it fail on some traces.
    """
    python = venv / "bin" / "python"
    return Tool(
        NAME,
        version(python, "traceinsight", "HolisticTraceAnalysis"),
        frozenset({"torch"}),
        partial(_commands, python),
        interpret,
        {"HTA_DISABLE_NS_ROUNDING": "1"},
    )


def _commands(python: Path, files: Sequence[Path], folder: Path) -> list[list[str]]:
    return [[str(python), str(PROGRAM), str(folder / "hta.json"), *map(str, files)]]


def interpret(folder: Path, _row: Mapping[str, Any]) -> Answer:
    """An answer from what it returned."""
    found = json.loads((folder / "hta.json").read_text())
    temporal = found["temporal"]
    if not isinstance(temporal, list):
        return Answer(NAME, failed=f"get_temporal_breakdown: {temporal['failed']}")
    shares = _shares(temporal, found["kernels"])
    largest = max(shares, key=lambda name: shares[name])
    verdict = largest if shares[largest] >= BOUND else "compute"
    parts = {
        **{f"idle: {k}": part * shares["idle"] for k, part in _idle(found["idle"]).items()},
        "MEMORY": shares["memory"],
        "COMMUNICATION": shares["communication"],
    }
    notable = [word for word in parts if parts[word] >= NOTABLE]
    said = [Said(word) for word in sorted(notable, key=lambda word: -parts[word])]
    stragglers = found.get("stragglers")
    if isinstance(stragglers, list) and stragglers:
        said.append(Said("straggler", rank=stragglers[0]))
    return Answer(NAME, verdict, said=tuple(said))


def _shares(temporal: Sequence[Mapping[str, Any]], kernels: object) -> dict[str, float]:
    """Parts of the time that are not computing, mean over the ranks."""
    idle = fmean(row["idle_time_pctg"] for row in temporal) / 100
    other = fmean(row["non_compute_time_pctg"] for row in temporal) / 100
    sums = {"MEMORY": 0.0, "COMMUNICATION": 0.0}
    if isinstance(kernels, list):
        for row in kernels:
            if row["kernel_type"] in sums:
                sums[row["kernel_type"]] += row["sum"]
    whole = sum(sums.values())
    memory = sums["MEMORY"] / whole if whole else 1.0
    return {"idle": idle, "memory": other * memory, "communication": other * (1 - memory)}


def _idle(rows: object) -> dict[str, float]:
    """Parts of the idle time, all streams together."""
    if not isinstance(rows, list):
        return {}
    sums: dict[str, float] = {}
    for row in rows:
        sums[row["idle_category"]] = sums.get(row["idle_category"], 0.0) + (row["idle_time"] or 0)
    whole = sum(sums.values())
    return {name: value / whole for name, value in sums.items()} if whole > 0 else {}
