"""Runs the programs of recorded cases once more, under TraceML, on the machine that this is.

What it says of each is left in `FOLDER/traceml/CASE.json`; cases that have one are not run again.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.processes import measure
from benchmarks.slowbench.captures import rows_of
from benchmarks.slowbench.cases import HEALTHY_EVERY, Case, Split, cases
from benchmarks.slowbench.forms import write_form
from benchmarks.slowbench.tools.tool import version

PROGRAM = Path(__file__).parent / "tools" / "inside" / "run_under_traceml.py"
MOST = 10_000
TIMEOUT_S = 240.0
_MOST_CHARACTERS = 200
ONE_THREAD = {"OMP_NUM_THREADS": "1"}
"""As the recorder of cases has it."""


def run(folder: Path, venv: Path, seconds: float, deadline_s: float) -> None:
    """Run what was recorded with torch.profiler and has no neighbour; healthy cases among them.

    Args:
        seconds: of traced steps. deadline_s: after which no further case is begun.
    """
    ends = time.monotonic() + deadline_s
    out = folder / "traceml"
    out.mkdir(exist_ok=True)
    told = version(venv / "bin" / "python", "traceml-ai")
    for case in recorded(folder):
        path = out / f"{case.id}.json"
        if path.exists() or case.backend != "torch" or case.neighbour:
            continue
        if time.monotonic() > ends:
            break
        found = _run(case, venv, seconds)
        path.write_text(json.dumps({**found, "version": told}), encoding="utf-8")
        print(f"{case.id}: {found['failed'] or 'ran'}", file=sys.stderr)


def recorded(folder: Path) -> Sequence[Case]:
    """The cases of the rows of a folder, drawn again from their seeds."""
    of_one = (row for row in rows_of(folder) if row["ranks"] == 1)
    rows = [row for row in of_one if row.get("failed") is None]
    wanted = {row["id"] for row in rows}
    found: dict[str, Case] = {}
    for split, seed, cpu, every in {_draw(row) for row in rows}:
        for nsys in (True, False):
            drawn = cases(split, seed, MOST, cpu=cpu, nsys=nsys, healthy_every=every)
            found.update({case.id: case for case in drawn if case.id in wanted})
    lost = len(wanted - found.keys())
    if lost:
        print(f"{lost} cases are of another catalogue, and cannot be run again", file=sys.stderr)
    return [found[row["id"]] for row in rows if row["id"] in found]


def _draw(row: Mapping[str, Any]) -> tuple[Split, int, bool, int]:
    every = row.get("healthy_every", HEALTHY_EVERY)
    return row["split"], row["seed"], not row["machine"]["gpus"], every


def _run(case: Case, venv: Path, seconds: float) -> dict[str, Any]:
    with TemporaryDirectory() as name:
        folder = Path(name)
        file, options = write_form(case, "slow", folder)
        arguments = [str(file), json.dumps(options), str(seconds)]
        command = [str(venv / "bin" / "traceml"), "run", str(PROGRAM), "--logs-dir", str(folder)]
        command += ["--run-name", "case", "--args", *arguments]
        cost = measure(command, folder, ONE_THREAD, TIMEOUT_S)
        summary = folder / "case" / "final_summary.json"
        failed = cost.failed or (None if summary.exists() else "left no final_summary.json")
        if failed is not None:
            failed += _last_error(folder / "case")
        found = json.loads(summary.read_text("utf-8")) if failed is None else None
        return {"summary": found, "failed": failed}


def _last_error(folder: Path) -> str:
    """The last line that the program wrote to its standard error, in brackets; empty without."""
    for log in sorted(folder.glob("nodes/*/training.stderr.log")):
        lines = log.read_text("utf-8", errors="replace").split("\n")
        told = [line.strip() for line in lines if "Error" in line]
        if told:
            return f" ({told[-1][:_MOST_CHARACTERS]})"
    return ""
