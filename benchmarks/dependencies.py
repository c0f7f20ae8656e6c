"""Hold the graph that is played against programs of spinning kernels, whose graph is known.

    python benchmarks/dependencies.py record DIR          # where two GPUs are: about four minutes
    python benchmarks/dependencies.py score DIR           # dependencies.json in docs/validation
    python benchmarks/dependencies.py page                # dependencies.md from that

`record` leaves recordings by torch.profiler, and what was timed. Recordings by Nsight Systems come
from `nsys profile -t cuda,nvtx -c cudaProfilerApi --cuda-event-trace=true` around
`python -m benchmarks.dependencies_known.worker captured --out DIR` for each rank (RANK, WORLD_SIZE
and MASTER_PORT set), exported to DIR/nsys/rank<N>.sqlite.gz.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

RESULTS = ROOT / "docs" / "validation" / "dependencies.json"
SOURCES = ("event", "host")
KEPT = ("first_look", "reasons", "machine")
"""Of the results, what people wrote."""


def record(out: Path, arguments: list[str]) -> None:
    """Start a worker for each of two ranks and wait for them."""
    worker = [sys.executable, "-m", "benchmarks.dependencies_known.worker", "timed"]
    # With fewer connections than streams, the device makes streams wait that have no reason to.
    given = {
        **os.environ,
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29611",
        "CUDA_DEVICE_MAX_CONNECTIONS": "32",
    }
    command = [*worker, "--out", str(out), *arguments]
    ranks = [
        subprocess.Popen(command, cwd=ROOT, env={**given, "RANK": str(rank)}) for rank in range(2)
    ]
    failed = [rank.wait() for rank in ranks]
    if any(failed):
        raise SystemExit("a rank failed")


def costs(folder: Path) -> list[dict[str, Any]]:
    """Median steps with and without recorded events."""
    found: dict[str, list[dict[str, Any]]] = {}
    for path in sorted(folder.glob("rank*.jsonl")):
        for line in path.read_text().splitlines():
            row = json.loads(line)
            if "cost" in row:
                found.setdefault(row["cost"], []).append(row)
    return [
        {
            "what": "a small transformer, DDP" if name == "ddp" else f"program {name}",
            # Of the medians of the blocks the least, the middle one, and the largest.
            "ms": {variant: _range(rows, variant) for variant in rows[0]["blocks"]},
            "bytes": rows[0]["bytes"],
        }
        for name, rows in found.items()
    ]


def _range(rows: list[dict[str, Any]], variant: str) -> list[float]:
    blocks = [median(block) for row in rows for block in row["blocks"][variant]]
    return [min(blocks), median(blocks), max(blocks)]


def main(arguments: list[str] | None = None) -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    recorded = commands.add_parser("record")
    recorded.add_argument("folder", type=Path)
    recorded.add_argument("rest", nargs=argparse.REMAINDER, help="for the worker")
    scored = commands.add_parser("score")
    scored.add_argument("folder", type=Path)
    scored.add_argument("--to", type=Path, default=RESULTS)
    commands.add_parser("page")
    given = parser.parse_args(arguments)
    if given.command == "record":
        record(given.folder.resolve(), given.rest)
    if given.command == "score":
        from benchmarks.dependencies_known.scores import score

        before = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
        rows = score(given.folder)
        for counts in (edge[source] for row in rows for edge in row["edges"] for source in SOURCES):
            counts.pop("wrong"), counts.pop("missed")  # examples, for whoever mends a rule
        found = {
            "rows": rows,
            "costs": costs(given.folder),
            "counted": 30,
            **{key: before.get(key, {}) for key in KEPT},
        }
        given.to.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    if given.command == "page":
        from benchmarks.dependencies_known.page import page

        RESULTS.with_suffix(".md").write_text(page(json.loads(RESULTS.read_text())))


if __name__ == "__main__":
    main()
