"""Whether names cost the timed steps anything: recordings with and without them, in turn.

Usage: python -m benchmarks.blame_cost [--pairs 10] [--workload unet] [--active 8] -o RESULT.json
    [SETTINGS of the workload]

A pair is two recordings of one workload, the first of which has names in every other pair. Printed
is the median of the relative differences of the mean timed step (with names less without), with a
95 % interval of that median by its order statistics; with few pairs it is as wide as all of them.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from math import comb
from pathlib import Path
from typing import Any

import traceprobe
from benchmarks.gpu_clocks import GpuClocks

_SURE = 0.95
_GPUS = list(range(16))


def record(workload: str, active: int, settings: list[str], *, names: bool) -> dict[str, Any]:
    """Mean timed step of one recording, under the profiler and without, ms.

    Raises:
        SystemExit: the recording failed, with what it said.
    """
    with tempfile.TemporaryDirectory(prefix="blame-") as folder:
        clocks = GpuClocks(Path(folder) / "clocks.csv")
        out, began = Path(folder) / "run", time.time()
        option = "--blame" if names else "--no-blame"
        command = [sys.executable, "-m", "traceprobe", "profile", "-w", workload, option]
        command += ["--active", str(active), "-o", str(out), *settings]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        finally:
            clocks.stop()
        if done.returncode:
            raise SystemExit(done.stderr)
        (rank,) = traceprobe.analyze(traceprobe.load(out / "rank0.json.gz")).ranks
        steps = [
            (each.end_ns - each.start_ns) / 1e6
            for each in rank.iterations
            if each.used and each.start_ns is not None and each.end_ns is not None
        ]
        sidecar = json.loads((out / "rank0.traceprobe.json").read_text())
        return {
            "names": names,
            "step_ms": statistics.mean(steps),
            "steps_ms": steps,
            "unprofiled_step_ms": sidecar["unprofiled_step_ms"],
            "blame": sidecar.get("blame"),
            "clocks_mhz": clocks.between(_GPUS, began, time.time()),
        }


def interval(differences: list[float]) -> tuple[float, float]:
    """An interval that holds the median of what they are drawn from with 95 %, if that can be."""
    ordered, count = sorted(differences), len(differences)
    outside, skipped = 0.0, 0
    while skipped < (count - 1) // 2:
        outside += 2 * comb(count, skipped) / 2**count
        if outside > 1 - _SURE:
            break
        skipped += 1
    skipped = max(skipped - 1, 0)
    return ordered[skipped], ordered[count - 1 - skipped]


def compared(pairs: list[dict[str, Any]]) -> dict[str, Any]:
    """The differences of pairs: `with` and `without` names."""
    found = {}
    for time_of in ("step_ms", "unprofiled_step_ms"):
        differences = [p["with"][time_of] / p["without"][time_of] - 1 for p in pairs]
        low, high = interval(differences)
        found[time_of] = {
            "median": statistics.median(differences),
            "interval": [low, high],
            "differences": differences,
        }
    return found


def main() -> None:
    """Run the pairs and write what they show."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--workload", default="unet")
    parser.add_argument("--active", type=int, default=8)
    parser.add_argument("-o", "--output", type=Path, required=True)
    options, settings = parser.parse_known_args()
    pairs: list[dict[str, Any]] = []
    for number in range(options.pairs):
        pair = {}
        for names in (True, False) if number % 2 else (False, True):
            made = record(options.workload, options.active, settings, names=names)
            pair["with" if names else "without"] = made
        pairs.append(pair)
        result = {
            "workload": options.workload,
            "settings": settings,
            "active": options.active,
            "compared": compared(pairs),
            "pairs": pairs,
        }
        options.output.write_text(json.dumps(result, indent=1) + "\n")
        found = result["compared"]["step_ms"]
        low, high = found["interval"]
        print(
            f"{number + 1} pairs: timed steps {found['median']:+.2%} with names "
            f"({low:+.2%} to {high:+.2%})",
            flush=True,
        )


if __name__ == "__main__":
    main()
