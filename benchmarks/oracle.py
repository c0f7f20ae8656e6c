"""Hold ablations of unmodified programs against ablations that were made by hand.

    python benchmarks/oracle.py run --out DIR [--gpus 2] [--deadline S]   # where the GPUs are
    python benchmarks/oracle.py cost                    # what the hooks take of a step, here
    python benchmarks/oracle.py collect DIR             # to docs/validation/oracle.json
    python benchmarks/oracle.py page                    # oracle.md beside it

`run` times every program of `workloads/programs` without traceprobe: as it is, with options of its
own that take a part out, and with `fused=True` for its optimizers. Then the same process runs it
as `traceprobe bench` does. Rows are written as they come, so that what is there stays.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
RESULTS = ROOT / "docs" / "validation" / "oracle.json"


def main(arguments: list[str] | None = None) -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    runs = commands.add_parser("run")
    runs.add_argument("--out", type=Path, required=True)
    runs.add_argument("--gpus", type=int, default=0)
    runs.add_argument("--rows", help="only these, by name, in this order")
    runs.add_argument("--deadline", type=float, default=1e9, help="seconds to start rows in")
    runs.add_argument("--tiny", action="store_true", help="programs of a size for a CPU")
    commands.add_parser("cost")
    collects = commands.add_parser("collect")
    collects.add_argument("folder", type=Path)
    commands.add_parser("page")
    given = parser.parse_args(arguments)
    if given.command == "run":
        from benchmarks.oracle_runs import run

        run(given.out, given.gpus, given.rows, given.deadline, tiny=given.tiny)
    if given.command == "cost":
        from benchmarks.oracle_cost import cost

        results = json.loads(RESULTS.read_text())
        results["cost"] = cost()
        RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
    if given.command == "collect":
        from benchmarks.oracle_page import collect

        before = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
        found = collect(given.folder)
        results = {**before, **found, "rows": {**before.get("rows", {}), **found["rows"]}}
        RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
    if given.command == "page":
        from benchmarks.oracle_page import page

        RESULTS.with_suffix(".md").write_text(page(json.loads(RESULTS.read_text())))


if __name__ == "__main__":
    main()
