"""Runs of `train.py` under `traceprobe watch`, on a GPU and on CPU cores beside each other.

    python measure.py OUT [--gpu-seconds 60] [--cpu-seconds 150] [--cpu-runs 3] [--seed 0]

Each run leaves its record and its truth in OUT; `benchmarks/watch.py` counts what was found.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
CORES = 2
"""Of a CPU run: the loop and its two workers, which mostly wait."""


def main() -> None:
    """Measure as the arguments say."""
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--gpu-seconds", type=float, default=60)
    parser.add_argument("--cpu-seconds", type=float, default=150)
    parser.add_argument("--cpu-runs", type=int, default=3)
    parser.add_argument("--gpu", nargs="*", default=["cost", "held-up", "quiet"])
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    args.out.mkdir(exist_ok=True)
    for quiet in (True, False):  # what is held up is no quiet neighbour
        measure(args, quiet)


def measure(args: argparse.Namespace, quiet: bool) -> None:
    """All quiet runs, or all others, beside each other."""
    beside = []
    for run in range(args.cpu_runs):
        seed = args.seed + run + quiet * args.cpu_runs
        name = f"cpu-{'quiet' if quiet else 'held-up'}-{seed}"
        cores = f"{CORES * run}-{CORES * run + CORES - 1}"
        beside.append(start(args, name, seed, args.cpu_seconds, quiet, cores))
    cores = f"{CORES * args.cpu_runs}-{(os.cpu_count() or 1) - 1}"
    for kind in args.gpu:
        name = f"gpu-{kind}-{args.seed}"
        if (kind == "quiet") != quiet:
            continue
        if kind == "cost":
            out = str(args.out / f"{name}.json")
            command = [sys.executable, str(HERE / "cost.py"), "--device", "cuda", "--out", out]
            subprocess.run(["taskset", "-c", cores, *command], check=False)
        else:
            start(args, name, args.seed, args.gpu_seconds, quiet, cores, "cuda").wait()
    for process in beside:
        process.wait()


def start(
    args: argparse.Namespace,
    name: str,
    seed: int,
    seconds: float,
    quiet: bool,
    cores: str,
    device: str = "cpu",
) -> subprocess.Popen[bytes]:
    """A run in a process."""
    truth = args.out / f"{name}.truth.json"
    program = [sys.executable, str(HERE / "train.py"), "--seconds", str(seconds)]
    program += ["--seed", str(seed), "--truth", str(truth), "--device", device]
    command = [sys.executable, str(HERE / "watched.py"), str(args.out / f"{name}.json"), *program]
    return subprocess.Popen(
        ["taskset", "-c", cores, *command, *(["--quiet"] if quiet else [])],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


if __name__ == "__main__":
    main()
