"""Running the rows of `programs.py` side by side, each with GPUs of its own while it is measured.

Processes start, import and warm up ahead of their turn; a GPU is used by one run at a time. Rows
and recordings are written as they come, so that what is there stays if the machine goes.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from importlib import metadata
from multiprocessing.connection import Connection, Listener, wait
from pathlib import Path
from queue import Empty, Queue
from typing import Any

from benchmarks.gpu_clocks import GpuClocks
from benchmarks.program_recordings import bundle, export, is_writing
from benchmarks.program_rows import Row
from benchmarks.program_worker import Job, run_in_fork
from traceprobe.capture.machine.hardware import nvidia_smi
from traceprobe.capture.process import nsys_tool
from traceprobe.capture.recording.recording_plan import RecordingPlan

_Spawned = multiprocessing.get_context("spawn").Process
AHEAD = 6
"""Runs that may get ready before their turn."""
TURN_S = 60
READY_S = 120
LIBRARIES = ("torch", "torchvision", "transformers", "accelerate", "lightning", "timm")


@dataclass(frozen=True)
class Plan:
    """How rows are run.

    Args:
        out: folder of results. gpus: of the machine; 0 for a CPU. backends: profilers.
        deadline: seconds to start runs in. end: seconds after which runs are stopped.
        tiny: whether the programs have a size for a CPU.
    """

    out: Path
    gpus: int
    backends: tuple[str, ...]
    deadline: float
    end: float
    tiny: bool


@dataclass
class Run:
    """A row under one profiler, and its processes."""

    row: Row
    job: Job
    processes: list[Any]
    began: float
    connections: dict[Connection, int] = field(default_factory=dict)
    ready: set[int] = field(default_factory=set)
    done: set[int] = field(default_factory=set)
    granted: float | None = None
    holds: bool = False
    failed: str | None = None
    failed_at: float | None = None
    export: Future[None] | None = None

    @property
    def slots(self) -> list[int]:
        """What of the machine it needs for itself."""
        return self.job.gpus or [0]

    @property
    def folder(self) -> Path:
        """Of its recording."""
        return Path(self.job.folder) / self.job.backend


class Session:
    """All runs of one call. `rows` is what is saved."""

    def __init__(self, plan: Plan, work: Path) -> None:
        self.plan, self.work = plan, work
        self.began = time.monotonic()
        self.rows: dict[str, Any] = {}
        self.running: list[Run] = []
        forks = multiprocessing.get_context("forkserver")
        forks.set_forkserver_preload(["torch", "benchmarks.program_worker"])
        self.starter: Any = forks
        self.again: list[tuple[Row, str]] = []
        self.listener = Listener(str(work / "socket"))
        self.arrived: Queue[tuple[Connection, tuple[Any, ...]]] = Queue()
        threading.Thread(target=self._accept, daemon=True).start()
        self.exporters = ThreadPoolExecutor(4)
        self.clocks = GpuClocks(work / "clocks.csv")

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection = self.listener.accept()
                self.arrived.put((connection, connection.recv()))

    @property
    def seconds(self) -> float:
        """Since the session began."""
        return time.monotonic() - self.began

    def log(self, text: str) -> None:
        """A line for people."""
        line = f"{self.seconds:6.1f} s  {text}"
        print(line, flush=True)
        with (self.plan.out / "log").open("a") as file:
            file.write(line + "\n")

    def save(self) -> None:
        """Write the rows whole or not at all."""
        target = self.plan.out / "rows.json"
        temporary = target.with_suffix(".tmp")
        found = {"machine": self.machine, "rows": self.rows}
        temporary.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
        temporary.replace(target)

    def go(self, rows: list[Row]) -> None:
        """Run all rows."""
        self.machine = _machine(self.plan)
        waiting = [(row, backend) for backend in self.plan.backends for row in rows]
        # Runs of one GPU go to the GPU that has fewer of them ahead.
        count = 0
        while waiting or self.running or self.again:
            waiting, self.again = [*self.again, *waiting], []
            late = self.seconds > self.plan.deadline
            ahead = sum(run.granted is None for run in self.running)
            while waiting and not late and ahead < AHEAD:
                row, backend = waiting.pop(0)
                self.running.append(self._start(row, backend, count))
                count += 1
                ahead += 1
            self._listen()
            self._grant()
            for run in list(self.running):
                self._look_after(run)
            if late and waiting:
                self.log("not started: " + ", ".join(f"{r.name} {b}" for r, b in waiting))
                waiting.clear()
        self.clocks.stop()
        self.save()

    def _start(self, row: Row, backend: str, count: int) -> Run:
        folder = self.work / row.name
        (folder / backend).mkdir(parents=True, exist_ok=True)
        gpus = self._gpus(row)
        job = _job(row, backend, gpus, folder, str(self.listener.address), 20000 + 40 * count, self)
        if backend == "nsys":
            file = folder / "nsys.job.json"
            file.write_text(json.dumps(asdict(job)))
            worker = str(Path(__file__).with_name("program_worker.py"))
            command = nsys_tool.nsys_command(
                nsys_tool.find_nsys(), folder / "nsys" / "run", [sys.executable, worker, str(file)]
            )
            with (folder / "nsys.log").open("wb") as log:
                processes: list[Any] = [
                    subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
                ]
        else:
            processes = [
                self.starter.Process(target=run_in_fork, args=(asdict(job), rank))
                for rank in range(row.ranks)
            ]
            for process in processes:
                process.start()
        self.rows.setdefault(
            row.name,
            {**asdict(row), "variants": {}, "recordings": {}, "clocks_mhz": {}, "failures": []},
        )
        return Run(row, job, processes, self.seconds)

    def _gpus(self, row: Row) -> list[int]:
        if not self.plan.gpus:
            return []
        if row.ranks > 1:
            return list(range(row.ranks))
        before = [gpu for run in self.running if not run.done for gpu in run.job.gpus]
        return [min(range(self.plan.gpus), key=before.count)]

    def _listen(self) -> None:
        with suppress(Empty):
            while True:
                connection, (name, backend, rank, _) = self.arrived.get_nowait()
                run = next(
                    r for r in self.running if (r.row.name, r.job.backend) == (name, backend)
                )
                run.connections[connection] = rank
        known = {c: run for run in self.running for c in run.connections}
        if not known:
            time.sleep(0.1)
            return
        for connection in wait(list(known), 0.1):
            assert isinstance(connection, Connection)
            run = known[connection]
            try:
                kind, found = connection.recv()
            except (EOFError, OSError):
                run.connections.pop(connection)
                continue
            self._hear(run, run.connections[connection], kind, found)

    def _hear(self, run: Run, rank: int, kind: str, found: Any) -> None:
        row = self.rows[run.row.name]
        if kind == "ready":
            run.ready.add(rank)
        if kind == "done":
            run.done.add(rank)
            if len(run.done) == run.row.ranks:
                for connection in run.connections:
                    with suppress(OSError):
                        connection.send("bye")
        if kind == "failed":
            run.failed = f"rank {rank}: {found}"
        if kind == "variant":
            row["variants"].setdefault(found["name"], {})[str(rank)] = found.get("step_ms")
            if "failed" in found:
                row["failures"].append(f"{found['name']}: {found['failed']}")
        if kind in ("variant", "recorded"):
            name = found.get("name", run.job.backend)
            clocks = self.clocks.between(run.job.gpus, found["began"], found["ended"])
            row["clocks_mhz"].setdefault(name, {})[str(rank)] = clocks
            self.save()

    def _grant(self) -> None:
        """Give free GPUs to runs that are ready; who needs several is not overtaken on them."""
        taken = {slot for run in self.running if run.holds for slot in run.slots}
        for run in self.running:
            if run.granted is None and len(run.ready) == run.row.ranks:
                if taken.isdisjoint(run.slots):
                    run.granted, run.holds = self.seconds, True
                    for connection in run.connections:
                        connection.send("go")
                taken.update(run.slots)

    def _look_after(self, run: Run) -> None:
        if run.holds and (len(run.done) == run.row.ranks or is_writing(run.folder, run.row.ranks)):
            run.holds = False
        limit = math.inf  # its turn comes when it comes
        if run.granted is not None:
            limit = run.granted + TURN_S
        elif len(run.ready) < run.row.ranks:
            limit = run.began + READY_S
        alive = [process for process in run.processes if _is_alive(process)]
        late = self.seconds > min(limit, self.plan.end) and run.export is None
        if run.failed is not None and run.failed_at is None:
            run.failed_at = self.seconds
        gone = run.job.backend == "torch" and len(run.processes) - len(alive) > len(run.done)
        if gone and run.failed_at is None:
            run.failed, run.failed_at = "a rank ended early", self.seconds
        stuck = run.failed_at is not None and self.seconds > run.failed_at + 3
        if alive and (late or stuck):
            run.failed = run.failed or f"stopped after {self.seconds - run.began:.0f} s"
            for process in alive:
                _kill(process)
            return
        if alive:
            return
        if run.job.backend == "nsys" and run.export is None:
            run.holds = False
            run.export = self.exporters.submit(export, run.folder)
        if run.export is None or run.export.done():
            self._end(run)

    def _can_start_anew(self, run: Run) -> bool:
        """Whether forks are to blame, which some library had started CUDA for."""
        if run.job.backend != "torch" or isinstance(run.processes[0], _Spawned):
            return False
        self.starter = multiprocessing.get_context("spawn")
        self.log(f"{run.row.name}: {run.failed}; no forks from now on")
        return True

    def _end(self, run: Run) -> None:
        self.running.remove(run)
        if run.granted is None and "CUDA" in (run.failed or "") and self._can_start_anew(run):
            self.again.append((run.row, run.job.backend))
            return
        if run.export is not None and run.export.exception() is not None:
            run.failed = run.failed or str(run.export.exception())[:300]
        traces = sorted([*run.folder.glob("rank*.json.gz"), *run.folder.glob("run.sqlite.gz")])
        wanted = run.row.ranks if run.job.backend == "torch" else 1
        row, kept = self.rows[run.row.name], False
        if len(traces) == wanted:
            kept = bundle(traces, f"{run.row.name}/{run.job.backend}", self.plan.out)
        elif run.failed is None:
            run.failed = "no recording"
        size = sum(path.stat().st_size for path in traces)
        row["recordings"][run.job.backend] = {"bytes": size, "kept": kept, "failed": run.failed}
        turn = self.seconds - run.granted if run.granted is not None else 0.0
        waited = (run.granted or self.seconds) - run.began
        self.log(
            f"{run.row.name} {run.job.backend}: {run.failed or 'recorded'}, {size >> 10} KiB, "
            f"its turn after {waited:.1f} s and for {turn:.1f} s; {json.dumps(row['variants'])}"
        )
        if run.failed is not None:
            for path in sorted(Path(run.job.folder).glob(f"{run.job.backend}*.log")):
                self.log(f"{path.name}: " + path.read_text(errors="replace")[-1500:])
        self.save()


def run(rows: list[Row], plan: Plan) -> None:
    """Run rows; what they give is in `rows.json`, `log` and `part*.tar` of the plan's folder."""
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # counting GPUs starts no CUDA before a fork
    with tempfile.TemporaryDirectory(prefix="programs-", ignore_cleanup_errors=True) as work:
        session = Session(plan, Path(work))
        try:
            session.go(rows)
        finally:
            for left in session.running:
                for process in left.processes:
                    _kill(process)
            session.listener.close()


def _job(
    row: Row, backend: str, gpus: list[int], folder: Path, address: str, port: int, session: Session
) -> Job:
    tiny = ["--tiny"] if session.plan.tiny else []
    length = ["--steps", str(row.steps), "--timed", str(row.timed)]
    variants = {"as it is": length}
    variants |= {part: [*length, option] for part, option in row.without.items()}
    recording = RecordingPlan(
        folder=str(folder / backend),
        backend="nsys" if backend == "nsys" else "torch",
        calibrate=10 * row.updates,
        active=row.active,
        workload={"name": row.program},
    )
    # More steps than are recorded, since the program would print its mean time after them.
    steps = recording.steps // row.updates + 5
    return Job(
        name=row.name,
        backend=backend,
        program=row.program,
        options=[*shlex.split(row.options), *tiny],
        variants=variants if backend == "torch" else {},
        plan=str(recording.save()),
        recorded=["--steps", str(steps), "--timed", "1"],
        ranks=row.ranks,
        gpus=gpus,
        folder=str(folder),
        address=address,
        port=port,
        modules=list(row.modules),
        rehearsed=row.compiled,
    )


def _machine(plan: Plan) -> dict[str, Any]:
    libraries = {}
    for name in LIBRARIES:
        with suppress(metadata.PackageNotFoundError):
            libraries[name] = metadata.version(name)
    query = "--query-gpu=name,driver_version,clocks.max.sm,clocks.max.mem"
    return {
        "gpus": (nvidia_smi(query, "--format=csv,noheader") or [])[: plan.gpus],
        "cpus": len(os.sched_getaffinity(0)),
        "libraries": libraries,
        "python": ".".join(map(str, sys.version_info[:3])),
    }


def _is_alive(process: Any) -> bool:
    if isinstance(process, subprocess.Popen):
        return process.poll() is None
    return bool(process.is_alive())


def _kill(process: Any) -> None:
    if isinstance(process, subprocess.Popen):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    elif process.is_alive():
        process.kill()
        process.join()
