"""What tools that run a training program cost it: one loop on a CPU, plain and under each tool.

    python -m benchmarks.overhead [--rounds 5] [--traceml VENV] [--page]

The loop times its own steps. In each round it runs once under each tool, in turns; a ratio is to
as many first steps of the plain run of the same round.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, median

from benchmarks.performance_page import machine, put, table
from benchmarks.processes import measure

LOOP = Path(__file__).with_name("overhead_runs") / "loop.py"
SKIPPED = 20
"""Steps at the start, in which memory is taken and caches fill."""
TIMEOUT_S = 300.0
ONE_THREAD = {"OMP_NUM_THREADS": "1"}
Round = dict[str, tuple[list[float], float]]
"""By tool: the steps in ms, and seconds of the whole command."""


def main() -> None:
    """Measure as the arguments say."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--traceml", type=Path, help="its environment, with PyTorch")
    parser.add_argument("--page", action="store_true", help="write docs/performance.md")
    given = parser.parse_args()
    rounds = [run_all(given.traceml) for _ in range(given.rounds)]
    text = f"{machine()}.\nRounds: {len(rounds)}.\n\n{told(rounds)}"
    if given.page:
        put("overhead", text)
    print(text)


def commands(traceml: Path | None) -> Mapping[str, list[str]]:
    """How each tool runs the loop, which writes `steps.json`."""
    own = [sys.executable, "-m", "traceprobe"]
    loop = ["--", sys.executable, str(LOOP), "steps.json"]
    found = {
        "none": [sys.executable, str(LOOP), "steps.json"],
        "traceprobe watch": [*own, "watch", "-q", "-o", "watch.json", *loop],
        "traceprobe profile": [*own, "profile", "-q", "-o", "profile", *loop],
        "traceprobe bench": [*own, "bench", "-q", "-o", "bench.json", *loop],
    }
    if traceml is not None:
        run = [str(traceml / "bin" / "traceml"), "run", str(LOOP), "--logs-dir", "logs"]
        found["TraceML"] = [*run, "--args", "steps.json", "--traceml"]
    return found


def run_all(traceml: Path | None) -> Round:
    """The loop under each tool, one after the other."""
    found: Round = {}
    for tool, command in commands(traceml).items():
        with tempfile.TemporaryDirectory() as name:
            cost = measure(command, Path(name), ONE_THREAD, TIMEOUT_S)
            steps = Path(name) / "steps.json"
            if cost.failed is not None or not steps.exists():
                raise SystemExit(f"{tool}: {cost.failed or 'left no times of steps'}")
            times = json.loads(steps.read_text())[SKIPPED:]
        found[tool] = times, cost.seconds
    return found


def told(rounds: Sequence[Round]) -> str:
    """A row for each tool: medians over the rounds, ranges in brackets."""
    rows = []
    for tool in rounds[0]:
        of_steps, of_mean = (
            [typical(each[tool][0]) / typical(_as_many(each, tool)) for each in rounds]
            for typical in (median, fmean)
        )
        rows.append(
            [
                tool,
                f"{median(median(each[tool][0]) for each in rounds):.2f}",
                _ratio(of_steps),
                _ratio(of_mean),
                f"{median(len(each[tool][0]) for each in rounds):.0f}",
                f"{median(each[tool][1] for each in rounds):.1f}",
            ]
        )
    head = ["tool", "ms a step", "× none, median step", "× none, mean step", "steps", "s in all"]
    return table(head, rows)


def _as_many(each: Round, tool: str) -> list[float]:
    """The first steps of the plain run, as many as a tool let the loop make."""
    return each["none"][0][: len(each[tool][0])]


def _ratio(values: Sequence[float]) -> str:
    return f"{median(values):.2f} ({min(values):.2f}–{max(values):.2f})"


if __name__ == "__main__":
    main()
