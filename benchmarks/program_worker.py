"""One process of a program that `programs.py` runs: timed without a profiler, then recorded.

It loads and warms up what it needs, says that it is ready, and waits until it may use the GPU. The
program runs several times in it, so that CUDA starts once. What it finds it says to the process
that started it.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import io
import json
import multiprocessing
import os
import runpy
import shlex
import subprocess
import sys
import time
import traceback
from dataclasses import dataclass, field
from multiprocessing.connection import Client, Connection
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
PROGRAMS = ROOT / "workloads" / "programs"
BYE_S = 20


@dataclass(frozen=True)
class Job:
    """What the processes of one run do.

    Args:
        name: of the row. program: its file. options: of every variant.
        variants: options that are added, by name, of the runs without a profiler.
        plan: file of the recording's plan; None to record nothing. recorded: options of that run.
        gpus: that the ranks use, by the machine's numbers; empty on a CPU.
        address: of whoever is told. port: first of those that the ranks meet at.
        modules: to be imported before. rehearsed: whether the program runs once before its turn.
    """

    name: str
    backend: str
    program: str
    options: list[str]
    variants: dict[str, list[str]]
    plan: str | None
    recorded: list[str]
    ranks: int
    gpus: list[int]
    folder: str
    address: str
    port: int
    modules: list[str] = field(default_factory=list)
    rehearsed: bool = False


def main() -> None:
    """As a program of its own, below Nsight Systems: the job is in a file."""
    job = Job(**json.loads(Path(sys.argv[1]).read_text()))
    if job.ranks == 1 or "RANK" in os.environ:
        work(job, int(os.environ.get("RANK", "0")))
        return
    ranks = [
        subprocess.Popen([sys.executable, *sys.argv], env={**os.environ, "RANK": str(rank)})
        for rank in range(job.ranks)
    ]
    sys.exit(max(abs(process.wait()) for process in ranks))


def work(job: Job, rank: int, *, leave: bool = False) -> None:
    """Do a job as one of its ranks.

    Args:
        leave: whether the process ends here, without taking apart what its libraries hold.
    """
    _set_environment(job, rank)
    status = 0
    with Client(job.address) as starter:
        starter.send((job.name, job.backend, rank, os.getpid()))
        log = (Path(job.folder) / f"{job.backend}.rank{rank}.log").open("w", buffering=1)
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
        try:
            _prepare(job)
            starter.send(("ready", None))
            starter.recv()
            _measure(job, starter)
        except BaseException as error:
            traceback.print_exc()
            starter.send(("failed", f"{type(error).__name__}: {error}"[:300]))
            status = 1
        starter.send(("done", None))
        sys.stdout.flush()
        starter.poll(BYE_S)  # ranks go together, since they need each other to the end
    if leave:
        os._exit(status)
    if status:
        sys.exit(status)


def _set_environment(job: Job, rank: int) -> None:
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, job.gpus))
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # as the warning of tokenizers asks for
    if job.ranks > 1:
        os.environ |= {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(job.ranks),
            "LOCAL_WORLD_SIZE": str(job.ranks),
            "MASTER_ADDR": "127.0.0.1",
        }
    cpus = sorted(os.sched_getaffinity(0))
    threads = len(cpus) // 2 // max(job.ranks, 1)
    os.environ.setdefault("OMP_NUM_THREADS", str(max(threads, 1)))


def _prepare(job: Job) -> None:
    """Have loaded what takes long and is no part of training."""
    import torch

    for module in ("torch._dynamo", *job.modules):  # the former is what the first optimizer loads
        importlib.import_module(module)
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    if job.gpus:
        gpu = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(gpu)
        convolution = torch.nn.Conv2d(16, 16, 3, device=gpu)
        for dtype in (torch.float32, torch.bfloat16):
            with torch.autocast("cuda", dtype):
                y = convolution(torch.randn(2, 16, 18, 18, device=gpu))
                (y @ y).sum().backward()
        torch.cuda.synchronize()
    if job.rehearsed:
        _run(job, [*job.options, "--steps", "2", "--timed", "1"])


def _meet_at(job: Job, number: int) -> None:
    """Give the ranks of each variant a port of its own; who is alone needs none."""
    if job.ranks > 1:
        os.environ["MASTER_PORT"] = str(job.port + number)


def _measure(job: Job, starter: Connection) -> None:
    for number, (name, more) in enumerate(job.variants.items()):
        _meet_at(job, number)
        began = time.time()
        try:
            found = {"step_ms": _run(job, [*job.options, *more])}
        except Exception as error:
            if job.ranks > 1:  # the others wait
                raise
            traceback.print_exc()
            found = {"failed": f"{type(error).__name__}: {error}"[:300]}
        starter.send(("variant", {"name": name, "began": began, "ended": time.time(), **found}))
    if job.plan is None:
        return
    _meet_at(job, len(job.variants))
    began = time.time()
    _record(job)
    starter.send(("recorded", {"began": began, "ended": time.time()}))


def _record(job: Job) -> None:
    """As `traceprobe profile -- python PROGRAM` does it, in a process where torch is loaded."""
    from traceprobe.capture.loop.optimizer_hook import install_optimizer_hook
    from traceprobe.capture.recording.recording_plan import RecordingPlan

    assert job.plan is not None
    os.environ[RecordingPlan.VARIABLE] = job.plan
    install_optimizer_hook(importlib.import_module("torch.optim.optimizer"))
    with contextlib.suppress(SystemExit):
        _run(job, [*job.options, *job.recorded])
        raise RuntimeError("the program ended before it was recorded")


def _run(job: Job, options: list[str]) -> float | None:
    """Mean time of a step of the program as it says it, ms."""
    import torch

    print(f"$ {job.program} {shlex.join(options)}", flush=True)
    said = io.StringIO()
    sys.argv = [str(PROGRAMS / f"{job.program}.py"), *options]
    sys.path.insert(0, str(PROGRAMS))
    try:
        with contextlib.redirect_stdout(said):
            runpy.run_path(sys.argv[0], run_name="__main__")
    finally:
        sys.path.remove(str(PROGRAMS))
        print(said.getvalue(), flush=True)
        gc.collect()
        if job.gpus:
            torch.cuda.empty_cache()
    return _step_ms(said.getvalue())


def _step_ms(text: str) -> float | None:
    for line in reversed(text.splitlines()):
        with contextlib.suppress(ValueError, TypeError, KeyError):
            return float(json.loads(line)["step_ms"])
    return None


def run_in_fork(job: dict[str, Any], rank: int) -> None:
    """Target of a process of a fork server."""
    # Loaders start their workers as they do in a program that was started by itself.
    multiprocessing.set_start_method("fork", force=True)
    work(Job(**job), rank, leave=True)


if __name__ == "__main__":
    main()
