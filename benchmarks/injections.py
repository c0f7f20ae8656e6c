"""Put a slow line into training programs, and hold what is blamed for it against that line.

    python benchmarks/injections.py run --out DIR [--gpus 1] [--jobs 4]   # where the GPUs are
    python benchmarks/injections.py score DIR …        # what `run` left, to injections.json
    python benchmarks/injections.py page               # injections.md from that, in docs/validation

`run` records each of `benchmark/injection/programs` with one line more, at a random place that
every step comes by; without a GPU it tries what a CPU can show. `score` analyses the recordings
with the code as it is now. `run` can be called again for what is missing.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

RESULTS = ROOT / "docs" / "validation" / "injections.json"


def main(arguments: list[str] | None = None) -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    runs = commands.add_parser("run")
    runs.add_argument("--out", type=Path, required=True)
    runs.add_argument("--count", type=int, default=60, help="faults")
    runs.add_argument("--jobs", type=int, default=4, help="processes at a time")
    runs.add_argument("--gpus", type=int, default=0)
    runs.add_argument("--programs", default="", help="only these, by name")
    runs.add_argument("--seconds", type=float, default=1e9, help="after which no run is started")
    runs.add_argument("--limit", type=float, default=150, help="seconds for one run")
    runs.add_argument("--seed", type=int, default=1)
    scores = commands.add_parser("score")
    scores.add_argument("folders", type=Path, nargs="+")
    scores.add_argument("--to", type=Path, default=RESULTS)
    commands.add_parser("page")
    given = parser.parse_args(arguments)
    if given.command == "run":
        from benchmarks.injection.recordings import Plan, record

        names = tuple(name for name in given.programs.split(",") if name)
        numbers = (given.count, given.jobs, given.gpus, given.seconds, given.limit, given.seed)
        record(Plan(given.out.resolve(), *numbers, names))
    if given.command == "score":
        from benchmarks.injection.scores import score

        text = json.dumps(score(given.folders), indent=1, sort_keys=True)
        given.to.write_text(text + "\n")
    if given.command == "page":
        from benchmarks.injection.page import page

        RESULTS.with_suffix(".md").write_text(page(json.loads(RESULTS.read_text())))


if __name__ == "__main__":
    main()
