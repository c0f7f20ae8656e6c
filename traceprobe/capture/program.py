"""The programs that are recorded or ablated: built-in workloads and the user's own."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from traceprobe.model import UsageError

HOOK = Path(__file__).with_name("hook")
WORKLOADS = ("bert", "gpt2", "pointwise", "resnet50", "tiny-mlp", "unet", "wide-mlp")


@contextmanager
def workspace(folder: Path) -> Iterator[Path]:
    """A hidden folder inside another, gone afterwards in any case."""
    work = Path(tempfile.mkdtemp(prefix=".recording-", dir=folder))
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


def script(program: list[str]) -> list[str]:
    """The script of `python script …`: torch.distributed.run wants it without interpreter."""
    if Path(program[0]).name.startswith("python"):
        return program[1:]
    raise UsageError(
        f"--nproc-per-node starts Python scripts; {program[0]} is none. Write `-- python "
        "train.py …`, or leave the option out and start the ranks yourself"
    )


def environment(variable: str, path: Path) -> Mapping[str, str]:
    """The environment of the program: where its orders are, and how it finds this package.

    Args:
        variable, path: name of the variable with the path of the orders, and that path.
    """
    folders = [str(HOOK), os.environ.get("PYTHONPATH"), str(Path(__file__).resolve().parents[2])]
    return {
        **os.environ,
        variable: str(path),
        "PYTHONPATH": os.pathsep.join(filter(None, folders)),
        "PYTHONUNBUFFERED": "1",
        "TORCH_CPP_LOG_LEVEL": os.environ.get("TORCH_CPP_LOG_LEVEL", "ERROR"),
    }


def workload(name: str) -> Path:
    """Script of a built-in workload, in a wheel or in a source tree.

    Raises:
        UsageError: there is none of that name.
    """
    here = Path(__file__).resolve()
    for folder in (here.parents[1] / "workloads", here.parents[2] / "workloads"):
        script = folder / f"{name.replace('-', '_')}.py"
        if script.is_file() and (folder / "harness.py").is_file():
            return script
    raise UsageError(
        f"--workload {name}: there is none of that name; one of {', '.join(WORKLOADS)}"
    )


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
