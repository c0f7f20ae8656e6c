"""Hold the verdict from a trace against ablation, on the runs of `matrix.py`.

    python benchmarks/validate.py run --out DIR [--gpus 4] [--cases NAME,…] [--deadline S]
    python benchmarks/validate.py collect DIR …    # what `run` left, to results.json
    python benchmarks/validate.py page             # README.md from that, in docs/validation

`run` needs the GPUs: it ablates and records every case in processes of their own, each pinned
to as many GPUs as it has ranks and a fair part of the CPUs. `collect` analyses the traces with the
code as it is now, so that the analysis can be mended without the machine. `--cpu` takes the subset
that needs no GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import traceprobe  # noqa: E402
from benchmarks import matrix  # noqa: E402
from benchmarks.matrix import Case  # noqa: E402
from benchmarks.validation_page import page  # noqa: E402

RESULTS = ROOT / "docs" / "validation"
BENCH = "--trials 3 --seconds 0.7 --warmup 4"
JOB_S = 170
PART_BYTES = 15 << 20
"""Traces are bundled in parts of about this size."""


@dataclass
class Job:
    """One process tree: a case under one instrument ("bench", "torch" or "nsys")."""

    case: Case
    instrument: str
    bench: str = BENCH
    slots: list[int] = field(default_factory=list)
    process: subprocess.Popen[bytes] | None = None
    began: float = 0.0

    def command(self, folder: Path) -> list[str]:
        """The command line of traceprobe."""
        ranks = ["--nproc-per-node", str(self.case.ranks)] if self.case.ranks > 1 else []
        head = [sys.executable, "-m", "traceprobe"]
        workload = ["--workload", *shlex.split(self.case.arguments)]
        if self.instrument == "bench":
            target = str(folder / "bench.json")
            return [*head, "bench", "-f", "-o", target, *shlex.split(self.bench), *ranks, *workload]
        steps = shlex.split(self.case.steps)
        backend = ["--backend", self.instrument]
        return [*head, "profile", "-f", "-o", str(folder), *steps, *ranks, *backend, *workload]


def jobs(
    cases: Iterable[Case],
    instruments: Iterable[str] = ("bench", "torch", "nsys"),
    bench: str = BENCH,
) -> list[Job]:
    """All jobs, those with most ranks first, so that GPUs are not left over at the end."""
    wanted = set(instruments)
    made = [
        Job(case, instrument, bench)
        for case in cases
        for instrument in ("bench", *case.backends)
        if instrument in wanted
    ]
    return sorted(made, key=lambda job: -job.case.ranks)


def run(todo: list[Job], out: Path, work: Path, gpus: int, deadline: float) -> list[Job]:
    """Run jobs side by side; returns those that were not started before the deadline."""
    free, running, began = list(range(max(gpus, 1))), [], time.monotonic()
    waiting = list(todo)
    while waiting or running:
        late = time.monotonic() - began > deadline
        for job in list(waiting):
            if not late and max(job.case.ranks if gpus else 1, 1) <= len(free):
                waiting.remove(job)
                job.slots = [free.pop(0) for _ in range(job.case.ranks if gpus else 1)]
                _start(job, work, gpus)
                running.append(job)
        time.sleep(0.2)
        for job in list(running):
            assert job.process is not None
            if time.monotonic() - job.began > JOB_S:
                job.process.terminate()  # traceprobe cleans up after its program
                job.process.wait()
            if job.process.poll() is not None:
                running.remove(job)
                free = sorted([*free, *job.slots])
                _finish(job, out, work)
        if late and not running:
            break
    return waiting


def _start(job: Job, work: Path, gpus: int) -> None:
    folder = work / job.case.name / job.instrument
    folder.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, **job.case.environment}
    pin: list[str] = []
    if gpus:
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, job.slots))
        cpus = sorted(os.sched_getaffinity(0))
        share = len(cpus) // gpus
        mine = [cpu for slot in job.slots for cpu in cpus[slot * share : (slot + 1) * share]]
        pin = ["taskset", "--cpu-list", ",".join(map(str, mine))]
    with (folder / "log").open("wb") as log:
        job.process = subprocess.Popen(
            [*pin, *job.command(folder)],
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
        )
    job.began = time.monotonic()


def _finish(job: Job, out: Path, work: Path) -> None:
    """Note how it went, and add what it left to the bundle."""
    assert job.process is not None
    folder = work / job.case.name / job.instrument
    seconds = round(time.monotonic() - job.began, 1)
    line = f"{job.case.name} {job.instrument}: status {job.process.returncode}, {seconds} s"
    if job.process.returncode:
        line += "\n" + "\n".join(folder.joinpath("log").read_text().splitlines()[-12:])
    print(line, flush=True)
    with (out / "log").open("a") as log:
        log.write(line + "\n")
    kept = [p for p in sorted(folder.iterdir()) if p.name == "bench.json" or _is_trace(p)]
    for path in kept:
        if path.suffix == ".sqlite":
            subprocess.run(["gzip", "-9", "-f", str(path)], check=True)
            path = path.with_name(path.name + ".gz")
        _bundle(path, f"{job.case.name}/{job.instrument}/{path.name}", out)


def _is_trace(path: Path) -> bool:
    return path.name.startswith(("rank", "run.")) and path.suffix in (".gz", ".sqlite")


def _bundle(path: Path, name: str, out: Path) -> None:
    """Append a file to the first part that has room for it."""
    number = 0
    while True:
        part = out / f"part{number}.tar"
        if not part.exists() or part.stat().st_size + path.stat().st_size < PART_BYTES:
            with tarfile.open(part, "a") as tar:
                tar.add(path, name)
            return
        number += 1


def collect(folders: list[Path]) -> dict[str, Any]:
    """Ablations and verdicts of the cases under these folders, by case.

    A folder has one folder a case, and in it `bench`, `torch` and `nsys`, as `run` bundles them.
    """
    known = {case.name: case for case in (*matrix.GPU, *matrix.CPU)}
    found: dict[str, Any] = {}
    for folder in sorted(path for root in folders for path in root.iterdir() if path.is_dir()):
        if folder.name not in known:
            continue
        case = known[folder.name]
        entry = found.setdefault(case.name, {"ablation": None, "recordings": {}})
        entry |= {"arguments": case.arguments, "ranks": case.ranks, "environment": case.environment}
        bench = folder / "bench" / "bench.json"
        if bench.is_file():
            entry["ablation"] = json.loads(bench.read_text())
        for backend in ("torch", "nsys"):
            traces = [p for p in sorted((folder / backend).glob("*")) if _is_trace(p)]
            if traces:
                report = traceprobe.analyze([traceprobe.load(path) for path in traces])
                entry["recordings"][backend] = _extract(report)
    return found


def _extract(report: traceprobe.Report) -> dict[str, Any]:
    """What is compared, of a report."""
    verdict, effect = report.verdict, report.quality.observer_effect
    return {
        "bound": verdict.bound,
        "secondary": verdict.secondary,
        "confidence": verdict.confidence,
        "shares": verdict.shares,
        "profiled_step_ms": effect.profiled_step_ms if effect else None,
        "unprofiled_step_ms": effect.unprofiled_step_ms if effect else None,
        "savings": {
            finding.id: finding.saving_ms_per_step
            for finding in report.findings
            if finding.saving_ms_per_step is not None
        },
        "iterations_used": [rank.summary.iterations_used for rank in report.ranks],
        "straggler_rank": report.run.straggler_rank if report.run else None,
        "transfer_ms": None
        if report.run is None or report.run.transfer_ns is None
        else report.run.transfer_ns / 1e6,
    }


def main(arguments: list[str] | None = None) -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    runs = commands.add_parser("run")
    runs.add_argument("--out", type=Path, required=True)
    runs.add_argument("--work", type=Path, help="temporary files (default: OUT/work)")
    runs.add_argument("--cpu", action="store_true")
    runs.add_argument("--gpus", type=int, default=1)
    runs.add_argument("--ranks", type=int, nargs="*", help="only cases of so many ranks")
    runs.add_argument("--cases", help="only these, by name")
    runs.add_argument("--instruments", default="bench,torch,nsys")
    runs.add_argument("--deadline", type=float, default=1e9, help="seconds to start jobs in")
    collects = commands.add_parser("collect")
    collects.add_argument("folders", type=Path, nargs="+")
    commands.add_parser("page")
    given = parser.parse_args(arguments)
    if given.command == "collect":
        text = json.dumps(collect(given.folders), indent=1, sort_keys=True)
        (RESULTS / "results.json").write_text(text + "\n")
    if given.command == "page":
        found = json.loads((RESULTS / "results.json").read_text())
        (RESULTS / "README.md").write_text(page(found, matrix.GPU_ROWS))
    if given.command == "run":
        given.out.mkdir(parents=True, exist_ok=True)
        todo = jobs(_chosen(given), given.instruments.split(","))
        work = given.work or given.out / "work"
        for job in run(todo, given.out, work, 0 if given.cpu else given.gpus, given.deadline):
            print(f"{job.case.name} {job.instrument}: not started", flush=True)


def _chosen(given: argparse.Namespace) -> list[Case]:
    """The cases in the order in which they are named, else in that of the matrix."""
    known = {case.name: case for case in (matrix.CPU if given.cpu else matrix.GPU)}
    names = given.cases.split(",") if given.cases else list(known)
    return [known[name] for name in names if not given.ranks or known[name].ranks in given.ranks]


if __name__ == "__main__":
    main()
