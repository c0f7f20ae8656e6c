"""The programs that are recorded or ablated: built-in workloads and the user's own."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from traceprobe.errors import UsageError

HOOK = Path(__file__).with_name("hook")
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
        with cleaning_up():
            shutil.rmtree(work, ignore_errors=True)


@contextmanager
def cleaning_up() -> Iterator[None]:
    """A second Ctrl-C does not interrupt what cleans up after the first."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def python_of(program: list[str]) -> str:
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


def environment(
    variable: str, path: Path, more: Mapping[str, str] | None = None
) -> Mapping[str, str]:
    """The environment of the program: its own, where its orders are, and the hook on its path.

    The hook's folder holds `sitecustomize` alone, which lets the program find this package and
    nothing that is installed beside it.

    Args:
        variable, path: name of the variable with the path of the orders, and that path.
        more: variables for the program alone.
    """
    own = {**os.environ, **(more or {})}
    return {
        "PYTHONUNBUFFERED": "1",
        "TORCH_CPP_LOG_LEVEL": "ERROR",
        **own,
        variable: str(path),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(HOOK), own.get("PYTHONPATH")])),
    }


def workload(name: str) -> Path:
    """Script of a built-in workload, in a wheel or in a source tree.

    Raises:
        UsageError: there is none of that name.
    """
    script = built_in() / f"{name.replace('-', '_')}.py"
    if not script.is_file():
        raise UsageError(
            f"--workload {name}: there is none of that name; one of {', '.join(WORKLOADS)}"
        )
    return script


def built_in() -> Path:
    """The folder of the built-in workloads and ladders, in a wheel or in a source tree.

    Raises:
        UsageError: it is missing from the installation.
    """
    here = Path(__file__).resolve()
    for folder in (here.parents[1] / "workloads", here.parents[2] / "workloads"):
        if (folder / "harness.py").is_file():
            return folder
    raise UsageError("this installation lacks the workloads; install traceprobe anew")


def interpreter() -> str:
    """The Python that runs traceprobe; workloads run in the same.

    Raises:
        UsageError: it has no torch.
    """
    import importlib.util

    if importlib.util.find_spec("torch") is None:
        raise UsageError(
            "PyTorch is not installed in this environment; `pip install traceprobe[torch]`"
        )
    return sys.executable
