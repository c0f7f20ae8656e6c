"""Recording with Nsight Systems: the tool around the program, and its export."""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from traceprobe.capture.process.supervised import SupervisorLost, capture_output
from traceprobe.capture.recording.recording_files import recorded_ranks
from traceprobe.capture.recording.recording_plan import METADATA_KEY, sidecar_name
from traceprobe.errors import UsageError
from traceprobe.system.reading import read_saved

TABLES = (
    "CUPTI.*,NVTX.*,StringIds,ThreadNames,TARGET_INFO_GPU,TARGET_INFO_CUDA.*,META_DATA_EXPORT,"
    "ENUM_.*,PROFILER.*,PROCESSES,CUDA_GRAPH.*,DIAGNOSTIC_EVENT,GPU_METRICS,TARGET_INFO_GPU_METRICS"
)
_VARIABLE = "TRACEPROBE_NSYS"
_EVENT_TRACE = "--cuda-event-trace"
_GPU_METRICS = ("--gpu-metrics-devices", "--gpu-metrics-device")
"""The option as newer versions call it, and as older ones do."""
_LISTED = re.compile(r"^\s*\d+\s*:", re.MULTILINE)
"""A GPU that can be sampled, in the answer to `--gpu-metrics-devices=help`."""
_PERMISSION = re.compile(r"ERR_NVGPUCTRPERM|Insufficient privilege", re.IGNORECASE)
_UNSUPPORTED = re.compile(r"None of the installed GPUs|^Illegal", re.IGNORECASE | re.MULTILINE)
_NO_PERMISSION = (
    "nsys may not sample counters of the GPU: the driver keeps them for administrators. Load it "
    "with NVreg_RestrictProfilingToAdminUsers=0, start the container with --cap-add SYS_ADMIN, or "
    "leave out --gpu-metrics; see https://developer.nvidia.com/ERR_NVGPUCTRPERM"
)
_LONGEST_QUOTE = 300
_HELP_SECONDS = 30
_MOST_SIDECARS = 1_024
"""As many as ranks that `traceprobe profile` starts."""
_LARGEST_SIDECAR = 1 << 20
"""Bytes; those of ours have some 100,000."""


def installed_nsys() -> str | None:
    """Path of nsys, or None."""
    tool = os.environ.get(_VARIABLE) or shutil.which("nsys")
    return str(Path(tool).absolute()) if tool is not None and Path(tool).exists() else None


def find_nsys() -> str:
    """Path of nsys.

    Raises:
        UsageError: it is not installed, with how to get it.
    """
    tool = installed_nsys()
    if tool is None:
        raise UsageError(
            "nsys is not on the PATH; install Nsight Systems (apt install nsight-systems-cli, or "
            f"the CUDA toolkit), set {_VARIABLE} to its path, or use --backend torch"
        )
    return tool


def nsys_command(
    tool: str,
    output: Path,
    program: list[str],
    *,
    event_trace: bool = False,
    gpu_metrics: str | None = None,
) -> list[str]:
    """`nsys profile` around a program, writing `output`.nsys-rep.

    Args:
        event_trace: which event a stream records is in the export, and so what a wait is for.
        gpu_metrics: the option that samples counters of the GPUs, of `gpu_metrics_option`.
    """
    return [
        *(tool, "profile", "--trace=cuda,nvtx", "--sample=none", "--cpuctxsw=none"),
        *("--capture-range=cudaProfilerApi", "--capture-range-end=stop", "--force-overwrite=true"),
        *("--cuda-graph-trace=node", f"--output={output}"),
        *([f"{_EVENT_TRACE}=true"] if event_trace else []),
        *([] if gpu_metrics is None else [gpu_metrics]),
        *program,
    ]


def knows_event_trace(tool: str) -> bool:
    """Whether nsys can be asked to trace events, which older versions do unasked.

    Its help says so: an option that it does not know would end it.
    """
    return _EVENT_TRACE in _said(tool, "--help")


def gpu_metrics_option(tool: str) -> str:
    """The option that samples counters of the GPUs that the program sees, else of all.

    Raises:
        UsageError: this nsys has none, or may not sample here; with what to do.
    """
    help_text = _said(tool, "--help")
    option = next((name for name in _GPU_METRICS if name in help_text), None)
    if option is None:
        raise UsageError("this nsys samples no counters of the GPU; install a newer one")
    found = _said(tool, f"{option}=help")
    refused = not _LISTED.search(found)
    if refused and _PERMISSION.search(found):
        raise UsageError(_NO_PERMISSION)
    if refused and _UNSUPPORTED.search(found):
        lines = " ".join(found.split())[:_LONGEST_QUOTE]
        raise UsageError(f"nsys cannot sample counters of these GPUs: {lines}")
    return f"{option}={'cuda-visible' if 'cuda-visible' in help_text + found else 'all'}"


def _said(tool: str, option: str) -> str:
    """What `nsys profile` says to an option that asks for help; empty where it does not run."""
    try:
        output = capture_output([tool, "profile", option], _HELP_SECONDS)
    except (OSError, SupervisorLost):
        return ""
    return (output.stdout + output.stderr).decode("utf-8", "replace")


def export_sqlite(report: Path, target: Path, tool: str | None = None) -> Path:
    """Path of the SQLite export of a report, without sampling tables: they are most of its bytes.

    The payloads of NVTX ranges come along: NCCL keeps the sizes of its messages there.

    Raises:
        UsageError: nsys is missing or fails, with what it said.
    """
    # A path that begins with the root is no option, whatever the file is called.
    report, target = report.absolute(), target.absolute()
    base = [tool or find_nsys(), "export", "--type=sqlite", "--force-overwrite=true"]
    base.append(f"--output={target}")
    sizes, tables = "--include-blobs=true", f"--tables={TABLES}"
    for options in ([sizes, tables], [tables], []):  # both are younger than the format
        output = capture_output([*base, *options, str(report)])
        if not output.exit_code:
            break
    if output.exit_code or not target.exists():
        message = (
            (output.stderr or output.stdout).decode("utf-8", "replace").strip().splitlines()[-3:]
        )
        raise UsageError(f"{report.name}: nsys export failed: {' '.join(message) or 'no message'}")
    return target


def read_sidecars(folder: Path) -> dict[int, dict[str, Any]]:
    """The calibrations that a recording left in a folder, by rank.

    Anybody may have left files of such names there: what is no calibration is none. What is in one
    is looked at where the export is read.
    """
    sidecars = (
        (rank, _sidecar(folder / sidecar_name(rank)))
        for rank in recorded_ranks(folder)[:_MOST_SIDECARS]
    )
    return {rank: sidecar for rank, sidecar in sidecars if sidecar is not None}


def _sidecar(path: Path) -> dict[str, Any] | None:
    try:
        recorded = json.loads(read_saved(path, _LARGEST_SIDECAR, follow=False))
    except (ValueError, RecursionError, UsageError, OSError):
        return None
    return recorded if isinstance(recorded, dict) else None


def embed_sidecars(target: Path, recorded: dict[int, dict[str, Any]]) -> None:
    """Put each rank's sidecar into the export, as the table `traceprobe(rank, json)`."""
    with closing(sqlite3.connect(target)) as connection, connection:
        connection.execute(f"CREATE TABLE IF NOT EXISTS {METADATA_KEY} (rank INTEGER, json TEXT)")
        connection.executemany(
            f"INSERT INTO {METADATA_KEY} VALUES (?, ?)",
            [(rank, json.dumps(s, sort_keys=True)) for rank, s in sorted(recorded.items())],
        )
