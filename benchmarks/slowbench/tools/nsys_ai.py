"""nsys-ai: the patterns of its `root_cause_matcher`, then the findings of `diagnose`.

Both are documented and deterministic; neither asks a language model. The patterns come first, for
they name causes where the findings of `diagnose` mostly name symptoms.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.slowbench.answers import Answer, Said
from benchmarks.slowbench.tools.tool import Tool, version

NAME = "nsys-ai"
ALARMS = ("critical", "warning")
_VERDICT = re.compile(r"Critical path is (\S+)")
# Findings without a kind of their own, by the beginning of their labels.
_LABELS = {
    "Slow Iteration": "slow_iteration",
    "H2D Spike": "h2d_transfer",
    "Large H2D Transfer": "h2d_transfer",
}


def tool(venv: Path) -> Tool:
    """nsys-ai of an environment, which keeps all its state there."""
    return Tool(
        NAME,
        version(venv / "bin" / "python", "nsys-ai"),
        frozenset({"nsys"}),
        partial(_commands, venv / "bin" / "nsys-ai"),
        interpret,
        {"HOME": str(venv)},
    )


def _commands(program: Path, files: Sequence[Path], folder: Path) -> list[list[str]]:
    profile = str(files[0])
    # `skill run` prints alone; a shell keeps what it prints.
    keep = f'"$0" skill run root_cause_matcher "$1" --format json > {folder / "causes.json"}'
    return [
        [str(program), "diagnose", profile, "--format", "json", "-o", str(folder / "found.json")],
        ["sh", "-c", keep, str(program), profile],
    ]


def interpret(folder: Path, _row: Mapping[str, Any]) -> Answer:
    """An answer from both outputs."""
    findings = json.loads((folder / "found.json").read_text())["findings"]
    patterns = json.loads((folder / "causes.json").read_text())
    labels = [(_VERDICT.match(finding["label"]), finding) for finding in findings]
    word, confidence = next(((m[1], f["confidence"]) for m, f in labels if m), (None, None))
    said = [
        *(_pattern(row) for row in patterns if "pattern" in row),
        *(_finding(finding) for finding in findings),
    ]
    return Answer(NAME, word, said=tuple(said), confidence=confidence)


def _pattern(row: Mapping[str, Any]) -> Said:
    text = f"{row['evidence']} {row.get('recommendation', '')}"
    return Said(row["pattern"], text, alarm=row["severity"] in ALARMS)


def _finding(finding: Mapping[str, Any]) -> Said:
    provenance = finding.get("provenance") or {}
    word = provenance.get("row_kind") or next(
        (name for label, name in _LABELS.items() if finding["label"].startswith(label)), ""
    )
    if provenance.get("skill") == "gpu_idle_gaps":
        word = "gpu_idle_gaps"
    return Said(word or finding["label"], finding["note"], alarm=finding["severity"] in ALARMS)
