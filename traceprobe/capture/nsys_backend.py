"""Recording with Nsight Systems: the tool around the program, and its export."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

from traceprobe.model import UsageError

TABLES = (
    "CUPTI.*,NVTX.*,StringIds,ThreadNames,TARGET_INFO_GPU,TARGET_INFO_CUDA.*,META_DATA_EXPORT,"
    "ENUM_.*,PROFILER.*,PROCESSES,CUDA_GRAPH.*,DIAGNOSTIC_EVENT"
)
_VARIABLE = "TRACEPROBE_NSYS"


def installed() -> str | None:
    """Path of nsys, or None."""
    tool = os.environ.get(_VARIABLE) or shutil.which("nsys")
    return tool if tool is not None and Path(tool).exists() else None


def find() -> str:
    """Path of nsys.

    Raises:
        UsageError: it is not installed, with how to get it.
    """
    tool = installed()
    if tool is None:
        raise UsageError(
            "nsys is not on the PATH; install Nsight Systems (apt install nsight-systems-cli, or "
            f"the CUDA toolkit), set {_VARIABLE} to its path, or use --backend torch"
        )
    return tool


def command(tool: str, output: Path, program: list[str]) -> list[str]:
    """`nsys profile` around a program, writing `output`.nsys-rep."""
    return [
        *(tool, "profile", "--trace=cuda,nvtx", "--sample=none", "--cpuctxsw=none"),
        *("--capture-range=cudaProfilerApi", "--capture-range-end=stop", "--force-overwrite=true"),
        *("--cuda-graph-trace=node", f"--output={output}"),
        *program,
    ]


def export(report: Path, target: Path, tool: str | None = None) -> Path:
    """Export a report to SQLite with the tables that matter; sampling tables are most of its bytes.

    The payloads of NVTX ranges come along: NCCL keeps the sizes of its messages there.

    Raises:
        UsageError: nsys is missing or fails, with what it said.
    """
    nsys = tool or find()
    base = [nsys, "export", "--type=sqlite", "--force-overwrite=true", f"--output={target}"]
    sizes, tables = "--include-blobs=true", f"--tables={TABLES}"
    for options in ([sizes, tables], [tables], []):  # both are younger than the format
        done = subprocess.run([*base, *options, str(report)], capture_output=True, text=True)
        if not done.returncode:
            break
    if done.returncode or not target.exists():
        said = (done.stderr or done.stdout).strip().splitlines()[-3:]
        raise UsageError(f"{report.name}: nsys export failed: {' '.join(said) or 'no message'}")
    return target


def sidecars(folder: Path) -> dict[int, dict[str, Any]]:
    """The calibrations that a recording left in a folder, by rank."""
    return {
        int(path.name.removeprefix("rank").split(".")[0]): json.loads(path.read_text())
        for path in folder.glob("rank*.traceprobe.json")
    }


def embed(target: Path, recorded: dict[int, dict[str, Any]]) -> None:
    """Put each rank's sidecar into the export, as the table `traceprobe(rank, json)`."""
    from traceprobe.capture.session import METADATA_KEY

    with closing(sqlite3.connect(target)) as connection, connection:
        connection.execute(f"CREATE TABLE IF NOT EXISTS {METADATA_KEY} (rank INTEGER, json TEXT)")
        connection.executemany(
            f"INSERT INTO {METADATA_KEY} VALUES (?, ?)",
            [(rank, json.dumps(s, sort_keys=True)) for rank, s in sorted(recorded.items())],
        )
