"""Kernels beside collectives, what DDP adds, gaps of CUDA graphs, workers of a loader: measured.

    python benchmarks/contention_runs/measure.py OUT [--cpu] [--hidden]

On a host with two GPUs, about three minutes: two ranks joined by NVLink, then by sockets
(`NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1`), then loaders alone. `OUT` gets LINK.rank*.json,
loaders.json and small recordings of training steps; `benchmarks/contention.py` makes tables of
them. With `--hidden` only what communication costs once it is hidden, over NVLink with as many
channels as NCCL takes and with four, and by sockets; it goes into `OUT/hidden`. With `--cpu`
everything that needs no GPU runs, in small, with gloo.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "workloads"), str(ROOT)]

from benchmarks.contention_runs import graphs, hidden, kernels, loaders, training  # noqa: E402

LINKS = {"link": 125.0, "wire": 70.0}
"""How the ranks are joined, and for how many seconds at most."""
HIDDEN = {"link": 150.0, "few": 150.0, "wire": 110.0}
"""The same where it is only about what is hidden."""
SETTINGS = {
    "link": {},
    "few": {"NCCL_MAX_NCHANNELS": "4"},
    "wire": {"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1"},
}
"""Of NCCL."""
LEAVE = 12.0
"""Seconds before the end after which nothing new begins."""


class Rank:
    """One process of a run: its device, what it found, and how long it may go on."""

    def __init__(self, out: Path, link: str, seconds: float, *, cpu: bool) -> None:
        self.out, self.link, self.cpu = out, link, cpu
        self.until = time.monotonic() + seconds
        self.number = int(os.environ["RANK"])
        self.device = torch.device("cpu" if cpu else f"cuda:{self.number}")
        self.found: dict[str, Any] = {"link": link, "rank": self.number}
        self.found["torch"] = torch.__version__
        if cpu:
            torch.set_num_threads(1)
            dist.init_process_group("gloo")
        else:
            torch.cuda.set_device(self.device)
            dist.init_process_group("nccl", device_id=self.device)
            self.found["gpu"] = torch.cuda.get_device_name()
            self.found["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
        self.control = dist.new_group(backend="gloo")
        self.clock = _clock(self.number, cpu=cpu)
        (out / "traces").mkdir(exist_ok=True)

    def agreed(self, value: Any) -> Any:
        """What rank 0 has."""
        box = [value]
        dist.broadcast_object_list(box, src=0, group=self.control)
        return box[0]

    def left(self) -> float:
        """Seconds until the end, the same on all ranks."""
        return float(self.agreed(self.until - time.monotonic()))

    def synchronize(self) -> None:
        """Wait for the device."""
        if not self.cpu:
            torch.cuda.synchronize()

    def meet(self) -> None:
        """Wait for the other ranks, without the device."""
        dist.barrier(group=self.control)

    def save(self) -> None:
        """Write what was found so far."""
        path = self.out / f"{self.link}.rank{self.number}.json"
        path.write_text(json.dumps(self.found))

    def say(self, *words: object) -> None:
        """A line on the terminal, from rank 0."""
        if self.number == 0:
            print(*words, flush=True)


def _clock(index: int, *, cpu: bool) -> Callable[[], int | None]:
    """A function that reads the clock of the multiprocessors, MHz."""
    try:
        import pynvml

        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM)
    except Exception:
        return lambda: None
    return lambda: None if cpu else pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM)


def work(rank: Rank, *, only_hidden: bool) -> None:
    """All parts; one that fails does not take the others along."""
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.benchmark_limit = 4
    parts = [hidden.measure] if only_hidden else [kernels.measure, training.measure]
    if rank.link == "link" and not only_hidden:
        parts.append(graphs.measure)
    for part in parts:
        try:
            part(rank)
        except Exception as error:
            traceback.print_exc()
            rank.found.setdefault("errors", []).append(repr(error)[:500])
        rank.save()


def launch(out: Path, link: str, seconds: float, options: Sequence[str]) -> None:
    """Both ranks, each a process, ended when their time is over."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {
        **os.environ,
        **SETTINGS[link],
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": "2",
        "NCCL_NVLS_ENABLE": "0",
        "OMP_NUM_THREADS": "4",
    }
    command = [sys.executable, __file__, str(out), "--link", link, "--seconds", str(seconds)]
    command += options
    ranks = [
        subprocess.Popen(command, env={**environment, "RANK": str(number)}) for number in range(2)
    ]
    end = time.monotonic() + seconds
    for process in ranks:
        try:
            process.wait(max(end - time.monotonic(), 1))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--hidden", action="store_true")
    parser.add_argument("--link", choices=SETTINGS, help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, default=100.0, help=argparse.SUPPRESS)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    if given.link is None:
        options = ["--cpu"] * given.cpu + ["--hidden"] * given.hidden
        folder = given.out / "hidden" if given.hidden else given.out
        folder.mkdir(exist_ok=True)
        for link, seconds in (HIDDEN if given.hidden else LINKS).items():
            launch(folder, link, seconds, options)
        if not given.hidden:
            loaders.measure(given.out, cpu=given.cpu)
        return
    rank = Rank(given.out, given.link, given.seconds - LEAVE, cpu=given.cpu)
    work(rank, only_hidden=given.hidden)
    rank.meet()
    sys.stdout.flush()
    os._exit(0)  # NCCL may wait for what is left of a part that failed


if __name__ == "__main__":
    main()
