"""The programs that are recorded or ablated: built-in workloads and the user's own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from traceprobe import isolated
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


def environment(
    variable: str, path: Path, more: Mapping[str, str] | None = None
) -> Mapping[str, str]:
    """The environment of the program: where its orders are, and how it finds this package.

    Args:
        variable, path: name of the variable with the path of the orders, and that path.
        more: variables for the program alone.
    """
    folders = [str(HOOK), os.environ.get("PYTHONPATH"), str(Path(__file__).resolve().parents[2])]
    return {
        **os.environ,
        **(more or {}),
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


def visible_gpus() -> int:
    """GPUs that PyTorch sees, asked in a process of its own; CUDA_VISIBLE_DEVICES counts."""
    code = "import torch; print(torch.cuda.device_count())"
    interpreter()  # raises where there is no PyTorch
    done = subprocess.run(isolated.command(code), capture_output=True, text=True, check=False)
    return int(done.stdout) if done.returncode == 0 else 0


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
