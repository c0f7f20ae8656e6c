"""The programs that are recorded or ablated: built-in workloads and the user's own."""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from traceprobe.errors import UsageError

WORKLOADS = ("bert", "gpt2", "pointwise", "resnet50", "tiny-mlp", "unet", "wide-mlp")


@contextmanager
def workspace(folder: Path) -> Iterator[Path]:
    """A hidden folder inside another, gone afterwards in any case.

    Its path is absolute: a program may change its folder.
    """
    work = Path(tempfile.mkdtemp(prefix=".recording-", dir=folder)).absolute()
    try:
        yield work
    finally:
        with sigint_ignored():
            shutil.rmtree(work, ignore_errors=True)


@contextmanager
def sigint_ignored() -> Iterator[None]:
    """A second Ctrl-C does not interrupt what cleans up after the first."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def python_interpreter(program: list[str]) -> str:
    """The interpreter of `python script …`, which is to start the ranks.

    Raises:
        UsageError: the program is none that Python runs.
    """
    if Path(program[0]).name.startswith("python"):
        return program[0]
    raise UsageError(
        f"--nproc-per-node starts Python scripts; {program[0]} is none. Write `-- python "
        "train.py …`, or leave the option out and start the ranks yourself"
    )


def workload_script(name: str) -> Path:
    """Script of a built-in workload, in a wheel or in a source tree.

    Raises:
        UsageError: there is none of that name.
    """
    script = workloads_folder() / f"{name.replace('-', '_')}.py"
    if not script.is_file():
        raise UsageError(
            f"--workload {name}: there is none of that name; one of {', '.join(WORKLOADS)}"
        )
    return script


def workloads_folder() -> Path:
    """The folder of the built-in workloads and ladders, in a wheel or in a source tree.

    Raises:
        UsageError: it is missing from the installation.
    """
    here = Path(__file__).resolve()
    for folder in (here.parents[2] / "workloads", here.parents[3] / "workloads"):
        if (folder / "harness.py").is_file():
            return folder
    raise UsageError("this installation lacks the workloads; install traceprobe anew")


def torch_interpreter() -> str:
    """The Python that runs traceprobe; workloads run in the same.

    Raises:
        UsageError: it has no torch.
    """
    import importlib.util

    if importlib.util.find_spec("torch") is None:
        raise UsageError("PyTorch is not installed in this environment; `pip install torch`")
    return sys.executable
