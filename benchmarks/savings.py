"""Take causes of slowness out of training programs, and hold the predicted savings against that.

    python benchmarks/savings.py record --out DIR [--programs A,B] [--seconds S]  # where a GPU is
    python benchmarks/savings.py score DIR … [--to FILE]   # what `record` left, to savings.json
    python benchmarks/savings.py page                      # savings.md from that

`record` records each of `benchmarks/training_programs` as it is and times it, without a profiler,
beside variants of it. `score` analyses the recordings with the code as it is now.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

RESULTS = ROOT / "docs" / "validation" / "savings.json"


def main(arguments: list[str] | None = None) -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    runs = commands.add_parser("record")
    runs.add_argument("--out", type=Path, required=True)
    runs.add_argument("--programs", default="", help="only these, by name")
    runs.add_argument("--untimed", default="", help="record these, and time nothing of them")
    runs.add_argument("--seconds", type=float, default=560, help="after which all is ended")
    runs.add_argument("--set-up", type=float, default=200, help="seconds for setting up at most")
    scores = commands.add_parser("score")
    scores.add_argument("folders", type=Path, nargs="+")
    scores.add_argument("--injected", type=Path, help="what `injections.py run` left")
    scores.add_argument("--first", type=Path, help="an earlier result, to be kept beside this")
    scores.add_argument("--to", type=Path, default=RESULTS)
    pages = commands.add_parser("page")
    pages.add_argument("--from", dest="source", type=Path, default=RESULTS)
    given = parser.parse_args(arguments)
    if given.command == "record":
        from benchmarks.saving.recordings import record

        names = tuple(name for name in given.programs.split(",") if name)
        untimed = tuple(name for name in given.untimed.split(",") if name)
        record(given.out.resolve(), names, untimed, given.seconds, given.set_up)
    if given.command == "score":
        from benchmarks.saving.scores import score

        found = score(given.folders, given.injected)
        if given.first is not None:
            found["first"] = json.loads(given.first.read_text())
        text = json.dumps(found, indent=1, sort_keys=True)
        given.to.write_text(text + "\n")
    if given.command == "page":
        from benchmarks.saving.page import page

        RESULTS.with_suffix(".md").write_text(page(json.loads(given.source.read_text())))


if __name__ == "__main__":
    main()
