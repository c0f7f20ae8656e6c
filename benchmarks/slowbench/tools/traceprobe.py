"""traceprobe, from its report.json alone: the verdict, and the findings in their order."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.slowbench.answers import Answer, Said
from benchmarks.slowbench.tools.tool import Tool

NAME = "traceprobe"
ROOT = Path(__file__).resolve().parents[3]
ASKS = ("fail", "warn")
NOTABLE = 0.05
OVER = "it happened once, so nothing is saved"


def tool() -> Tool:
    """The checkout that this file is of."""
    # Not imported: this process stays small, as measuring its children's memory needs.
    lines = (ROOT / "traceprobe" / "version.py").read_text()
    number = next(line for line in lines.splitlines() if line.startswith("__version__"))
    return Tool(
        NAME,
        f"{NAME} {number.partition('=')[2].strip().strip(chr(34))}",
        frozenset({"torch", "nsys"}),
        _commands,
        interpret,
        {"PYTHONPATH": str(ROOT)},
    )


def _commands(files: Sequence[Path], folder: Path) -> list[list[str]]:
    command = [sys.executable, "-m", NAME, "analyze", "-q", *map(str, files)]
    return [[*command, "-o", str(folder / "report.json")]]


def interpret(folder: Path, _row: Mapping[str, Any]) -> Answer:
    """An answer from the report in a folder."""
    return read(json.loads((folder / "report.json").read_text(encoding="utf-8")))


def read(report: Mapping[str, Any]) -> Answer:
    """What a report says: of its findings those that ask for a look."""
    verdict = report["verdict"]
    step_ms = _step_ms(report)
    rank = (report.get("run") or {}).get("straggler_rank")
    sure = verdict["bound"] != "inconclusive"
    return Answer(
        NAME,
        verdict["bound"],
        tuple(verdict["secondary"].split("+")) if verdict["bound"] == "mixed" else (),
        tuple(_said(f, step_ms, rank) for f in report["findings"] if f["status"] in ASKS),
        verdict["confidence"] if sure else None,
        step_ms,
    )


def _said(finding: Mapping[str, Any], step_ms: float | None, rank: int | None) -> Said:
    told = finding.get("predicted")
    gain = told["ms"] if told else finding["saving_ms_per_step"]
    promises = gain is not None and step_ms is not None and gain >= NOTABLE * step_ms
    text = " ".join([finding["title"], *finding["evidence"], finding["advice"]])
    return Said(
        finding["id"],
        text,
        # One that promises nothing in ms asks for a look by being there, unless it is over.
        alarm=promises or (gain is None and OVER not in text),
        promises=promises,
        lines=tuple(s["line"] for s in finding.get("sites") or [] if s["line"] is not None),
        rank=rank if finding["id"] == "communication-skew" else None,
        saving_ms=(told["low_ms"], told["ms"], told["high_ms"]) if told else None,
        left_ms=(told["step_low_ms"], told["step_ms"], told["step_high_ms"]) if told else None,
    )


def _step_ms(report: Mapping[str, Any]) -> float | None:
    """The step without a profiler where it is known, else that of the trace."""
    effect = report["quality"]["observer_effect"]
    if effect is not None:
        elsewhere = effect.get("other_conditions", False)
        return float(effect["profiled_step_ms" if elsewhere else "unprofiled_step_ms"])
    steps = [rank["summary"]["step_ms"] for rank in report["ranks"]]
    known = [step["mean"] for step in steps if step is not None]
    return sum(known) / len(known) if known else None
