"""Running programs, with a fault and without, several at a time; a GPU is used by one at a time.

Each process imports PyTorch ahead of its turn (`turn/sitecustomize.py`). What a run leaves is
written as it comes: a line in `rows.jsonl`, its trace in `part*.tar`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from benchmarks.injection.catalog import CATALOG, PROGRAMS, Program
from benchmarks.injection.faults import WORKERS, Fault, chosen, inserted
from benchmarks.program_recordings import bundle

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
LIBRARIES = ("torch", "transformers", "accelerate", "lightning", "timm")
LAST_CHARACTERS = 1500


@dataclass(frozen=True)
class Plan:
    """How faults are recorded.

    Args:
        out: folder of results. count: of faults. jobs: processes at a time.
        gpus: of the machine; 0 for a CPU. seconds: after which nothing more is started.
        limit: seconds for one run. names: of programs; empty for all.
    """

    out: Path
    count: int
    jobs: int
    gpus: int
    seconds: float
    limit: float
    seed: int
    names: tuple[str, ...] = ()


class Session:
    """All runs of one call."""

    def __init__(self, plan: Plan, work: Path) -> None:
        self.plan, self.work = plan, work
        self.began = time.monotonic()
        self.lock = threading.Lock()
        self.count = 0
        self.rows = plan.out / "rows.jsonl"
        self.known = {row["id"] for row in read_rows(self.rows)}

    def log(self, text: str) -> None:
        """A line for people."""
        line = f"{time.monotonic() - self.began:6.1f} s  {text}"
        with self.lock:
            print(line, flush=True)
            with (self.plan.out / "log").open("a") as file:
                file.write(line + "\n")

    def save(self, row: Mapping[str, Any]) -> None:
        """Append a row."""
        with self.lock, self.rows.open("a") as file:
            file.write(json.dumps(row, sort_keys=True) + "\n")

    @property
    def late(self) -> bool:
        """Whether nothing more is to be started."""
        return time.monotonic() - self.began > self.plan.seconds

    def environment(self, script: Path) -> dict[str, str]:
        """Of a program, which waits for its turn on a GPU."""
        with self.lock:
            self.count += 1
            gpu = self.count % max(self.plan.gpus, 1)
        mine = {
            "INJECTION_ROOT": str(self.work),
            "INJECTION_PROGRAM": str(script),
            "INJECTION_TURN": str(self.work / f"turn{gpu}"),
            "PYTHONPATH": str(HERE / "turn"),
            "TOKENIZERS_PARALLELISM": "false",
        }
        if self.plan.gpus:
            return {**mine, "CUDA_VISIBLE_DEVICES": str(gpu)}
        return {**mine, "OMP_NUM_THREADS": "1"}

    def explore(self, program: Program, heavy: bool) -> dict[str, Any] | None:
        """What `explore.py` finds of a program; None where it does not run."""
        if self.late:
            return None
        folder = self.work / f"explore-{program.name}-{heavy}"
        shutil.copytree(PROGRAMS, folder)
        found, script = folder / "found.json", folder / program.script
        options = _options(program, self.plan.gpus, heavy)
        command = [sys.executable, str(HERE / "explore.py"), str(found), str(script), *options]
        own = {**self.environment(HERE / "explore.py"), "INJECTION_ROOT": str(folder)}
        try:
            done = subprocess.run(
                command,
                env={**os.environ, **own},
                capture_output=True,
                text=True,
                timeout=self.plan.limit,
            )
            result = json.loads(found.read_text())
        except (OSError, subprocess.SubprocessError, ValueError) as error:
            self.log(f"{program.name}: not explored: {error}"[:LAST_CHARACTERS])
            return None
        if not result["places"]:
            self.log(f"{program.name}: not explored: {done.stderr[-LAST_CHARACTERS:]}")
            return None
        self.log(f"{program.name} {heavy=}: {result['step_ms']:.1f} ms")
        return dict(result)

    def record(self, fault: Fault) -> None:
        """A program with a fault, as `traceprobe profile` records it."""
        if self.late or fault.id in self.known:
            return
        program = next(p for p in CATALOG if p.name == fault.program)
        folder = self.work / fault.id
        shutil.copytree(PROGRAMS / program.folder if program.folder else PROGRAMS, folder)
        script = folder / Path(program.script).name
        target = folder / Path(fault.file).name
        target.write_text(inserted(target.read_text(), fault))
        options = _options(program, self.plan.gpus, fault.heavy)
        if program.loads and fault.kind == "slow-worker":
            options += ("--workers", str(WORKERS))
        done = folder / "recording"
        done.mkdir()
        command = [sys.executable, str(HERE / "record_one.py"), str(done)]
        command += [sys.executable, str(script), *options]
        row: dict[str, Any] = {**asdict(fault), "failed": None, "kept": False}
        try:
            ended = subprocess.run(
                command,
                env={**os.environ, **self.environment(script)},
                capture_output=True,
                text=True,
                timeout=self.plan.limit,
            )
            sidecar = json.loads((done / "rank0.traceprobe.json").read_text())
            row["unprofiled_ms"] = sidecar["unprofiled_step_ms"]
        except subprocess.TimeoutExpired:
            row["failed"] = f"not done after {self.plan.limit:.0f} s"
        except (OSError, ValueError):
            row["failed"] = (ended.stdout + ended.stderr)[-LAST_CHARACTERS:]
        traces = sorted(done.glob("rank*.json.gz"))
        if traces:
            with self.lock:
                row["kept"] = bundle(traces, fault.id, self.plan.out)
        self.save(row)
        said = row["failed"] or f"{row['unprofiled_ms']:.1f} ms instead of {fault.step_ms:.1f}"
        self.log(f"{fault.id}: {said}")
        shutil.rmtree(folder, ignore_errors=True)


def record(plan: Plan) -> None:
    """Record faults; what they leave is in `rows.jsonl`, `log` and `part*.tar`."""
    plan.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="injections-", ignore_cleanup_errors=True) as name:
        session = Session(plan, Path(name).resolve())
        wanted = [p for p in CATALOG if not plan.names or p.name in plan.names]
        for program in wanted:
            if program.missing:
                session.log(f"{program.name}: left out: {program.missing}")
                session.save({"id": program.name, "left_out": program.missing})
        runs = [
            (p, heavy)
            for heavy in ((False, True) if plan.gpus else (False,))
            for p in wanted
            if not p.missing
        ]
        with ThreadPoolExecutor(plan.jobs) as pool:
            explored = list(pool.map(lambda run: session.explore(*run), runs))
            found = {
                (p.name, heavy): result
                for (p, heavy), result in zip(runs, explored, strict=True)
                if result
            }
            faults = chosen(found, plan.count, plan.seed, gpu=bool(plan.gpus))
            session.save({"id": "machine", "machine": machine(plan.gpus)})
            list(pool.map(session.record, faults))
        session.log("done")


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a file, none where there is no file."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines()]


def machine(gpus: int) -> dict[str, Any]:
    """What programs ran on, with so many of its GPUs."""
    from traceprobe.capture.machine.hardware import nvidia_smi

    libraries = {}
    for name in LIBRARIES:
        try:
            libraries[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    names = nvidia_smi("--query-gpu=name", "--format=csv,noheader") if gpus else []
    return {
        "gpus": (names or [])[:gpus],
        "cpus": len(os.sched_getaffinity(0)),
        "libraries": libraries,
        "python": ".".join(map(str, sys.version_info[:3])),
    }


def _options(program: Program, gpus: int, heavy: bool) -> tuple[str, ...]:
    if not gpus:
        return ()
    return program.heavy if heavy else program.gpu
