"""How the processes of cases are started: forked from one that has imported all, or under a tool.

To import PyTorch takes as long as a case; a fork has it at once. Nothing here uses a device before
the fork, which CUDA does not survive.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from benchmarks.slowbench.catalog import CATALOG
from traceprobe.capture.process import nsys_tool

ROOT = Path(__file__).resolve().parents[2]


def preload() -> None:
    """Import, once for all, what programs and the recording of them import."""
    needs = {name for program in CATALOG for name in program.needs}
    for name in ("torch._dynamo", *sorted(needs)):
        if find_spec(name):
            import_module(name)


def environment(gpus: range) -> dict[str, str]:
    """Of a case, which has these GPUs; none for a CPU."""
    mine = {"TORCHINDUCTOR_COMPILE_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    return {**mine, "CUDA_VISIBLE_DEVICES": ",".join(map(str, gpus))} if gpus else mine


def fork(folder: Path, variables: Mapping[str, str], call: Callable[[], None]) -> int:
    """Make a call in a process, and group of processes, of its own; what it prints is in `output`.

    Returns:
        The number of both.
    """
    pid = os.fork()
    if pid:
        return pid
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        os.setsid()
        os.environ.update(variables)
        output = os.open(folder / "output", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for number in (1, 2):
            os.dup2(output, number)
        call()
    finally:
        os._exit(1)


def start_nsys(
    folder: Path, opened: Path, variables: Mapping[str, str], tool: str, *, events: bool
) -> subprocess.Popen[bytes]:
    """Start a case anew under Nsight Systems.

    Args:
        opened: file of its device. events: whether the tool knows how to trace them.
    """
    program = [sys.executable, "-m", "benchmarks.slowbench.worker", str(folder), str(opened)]
    command = nsys_tool.nsys_command(tool, folder / "run", program, event_trace=events)
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    with (folder / "output").open("wb") as output:
        return subprocess.Popen(
            command,
            env={**os.environ, **variables, "PYTHONPATH": path},
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            cwd=folder,
        )
