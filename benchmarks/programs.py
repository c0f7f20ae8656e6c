"""Hold verdicts on programs as people write them against what taking their parts out saves.

    python benchmarks/programs.py run --out DIR [--gpus 2] [--deadline S]  # where the GPUs are
    python benchmarks/programs.py analyze DIR …        # what `run` left, to programs.json
    python benchmarks/programs.py page                 # programs.md from that, in docs/validation

`run` times every program of `workloads/programs`, as it is and with parts taken out, and records it
with torch.profiler and with Nsight Systems. `analyze` reads the recordings with the code as it is
now. With `--tiny` and no GPU, `run` tries everything but Nsight Systems.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.program_rows import ROWS  # noqa: E402

RESULTS = ROOT / "docs" / "validation" / "programs.json"


def main(arguments: list[str] | None = None) -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    runs = commands.add_parser("run")
    runs.add_argument("--out", type=Path, required=True)
    runs.add_argument("--gpus", type=int, default=0)
    runs.add_argument("--rows", help="only these, by name, in this order")
    runs.add_argument("--backends", default="torch,nsys")
    runs.add_argument("--deadline", type=float, default=1e9, help="seconds to start runs in")
    runs.add_argument("--end", type=float, default=1e9, help="seconds after which all is stopped")
    runs.add_argument("--tiny", action="store_true", help="programs of a size for a CPU")
    analyzes = commands.add_parser("analyze")
    analyzes.add_argument("folders", type=Path, nargs="+")
    analyzes.add_argument("--to", type=Path, default=RESULTS)
    commands.add_parser("page")
    given = parser.parse_args(arguments)
    if given.command == "run":
        from benchmarks.program_runs import Plan, run

        known = {row.name: row for row in ROWS}
        names = given.rows.split(",") if given.rows else list(known)
        given.out.mkdir(parents=True, exist_ok=True)
        backends = tuple(given.backends.split(","))
        plan = Plan(given.out, given.gpus, backends, given.deadline, given.end, given.tiny)
        run([known[name] for name in names], plan)
    if given.command == "analyze":
        from benchmarks.program_verdicts import analyze

        text = json.dumps(analyze(given.folders), indent=1, sort_keys=True)
        given.to.write_text(text + "\n")
    if given.command == "page":
        from benchmarks.programs_page import page

        RESULTS.with_suffix(".md").write_text(page(json.loads(RESULTS.read_text())))


if __name__ == "__main__":
    main()
