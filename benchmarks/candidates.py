"""What the benchmark of reading compares: floors, traceprobe, and other tools where they are.

The others live in environments of their own; `docs/performance.md` says how to make them.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

KINETO_FLOOR = """
import gzip, sys
import msgspec

class Args(msgspec.Struct, gc=False, rename={"external": "External id"}):
    correlation: int | float | str | None = None
    external: int | float | str | None = None
    stream: int | float | str | None = None
    device: int | float | str | None = None
    bytes: int | float | str | None = None

class Event(msgspec.Struct, gc=False):
    ph: str
    name: str = ""
    cat: str = ""
    pid: int | str = ""
    tid: int | str = ""
    ts: int | float | str | None = None
    dur: int | float | str | None = None
    id: int | float | str | None = None
    args: Args | None = None

class Trace(msgspec.Struct):
    traceEvents: list[Event]

data = open(sys.argv[1], "rb").read()
if data[:2] == b"\\x1f\\x8b":
    data = gzip.decompress(data)
print(len(msgspec.json.decode(data, type=Trace).traceEvents))
"""
"""Decompress and decode into typed objects, and nothing else."""

NSIGHT_FLOOR = """
import sqlite3, sys

OP = "start end deviceId streamId correlationId globalPid"
READ = {
    "CUPTI_ACTIVITY_KIND_KERNEL": f"{OP} demangledName shortName graphNodeId",
    "CUPTI_ACTIVITY_KIND_MEMCPY": f"{OP} bytes copyKind srcKind dstKind",
    "CUPTI_ACTIVITY_KIND_MEMSET": f"{OP} bytes",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": f"{OP} graphId",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start end globalTid correlationId nameId",
    "NVTX_EVENTS": "start end eventType globalTid endGlobalTid domainId text textId",
    "PROFILER_OVERHEAD": "start end globalTid nameId",
    "StringIds": "id value",
}
db = sqlite3.connect(f"file:{sys.argv[1]}?mode=ro&immutable=1", uri=True)
count = 0
for table, wanted in READ.items():
    present = {row[1] for row in db.execute(f"PRAGMA table_info({table})")}
    columns = ", ".join(f'sum(length("{c}"))' for c in wanted.split() if c in present)
    if columns:
        count += db.execute(f"SELECT count(*), {columns} FROM {table}").fetchone()[0]
print(count)
"""
"""Let SQLite add up the lengths of what an analysis needs: a loop in C that reads every value."""

HTA = """
import sys
from hta.trace_analysis import TraceAnalysis

if __name__ == "__main__":
    analysis = TraceAnalysis(trace_files={0: sys.argv[1]})
    analysis.get_temporal_breakdown(visualize=False)
    analysis.get_comm_comp_overlap(visualize=False)
    analysis.get_idle_time_breakdown(visualize=False)
"""


@dataclass(frozen=True)
class Candidate:
    """One way to read a file.

    Args:
        command: of the file to read, and a folder to write to.
        writes_beside: it changes the file or writes next to it, so that it gets a copy.
        version: of a tool other than traceprobe.
    """

    name: str
    command: Callable[[str, Path], list[str]]
    environment: dict[str, str] = field(default_factory=dict)
    writes_beside: bool = False
    version: str | None = None


def own(floor: str) -> list[Candidate]:
    """The floor, and traceprobe's two outputs. The floor is the first."""
    analyze = [sys.executable, "-m", "traceprobe", "analyze", "-q", "-f"]
    here = {"PYTHONPATH": str(ROOT)}
    return [
        Candidate("floor", lambda path, _: [sys.executable, "-c", floor, path]),
        Candidate(
            "traceprobe, JSON",
            lambda path, folder: [*analyze, path, "-o", str(folder / "out.json")],
            here,
        ),
        Candidate(
            "traceprobe, HTML",
            lambda path, folder: [*analyze, path, "-o", str(folder / "out.html")],
            here,
        ),
    ]


def hta(venv: Path) -> Candidate:
    """Holistic Trace Analysis: loading and three analyses.

    It rounds times to microseconds unless told not to, and then fails on some traces.
    """
    python = str(venv / "bin" / "python")
    return Candidate(
        "HTA",
        lambda path, _: [python, "-c", HTA, path],
        {"HTA_DISABLE_NS_ROUNDING": "1"},
        version=_distribution(venv, "traceinsight", "HolisticTraceAnalysis"),
    )


def tracelens(venv: Path) -> Candidate:
    """TraceLens' report of one trace, a workbook."""
    program = str(venv / "bin" / "TraceLens_generate_perf_report_pytorch")
    return Candidate(
        "TraceLens",
        lambda path, folder: [
            program,
            *("--profile_json_path", path),
            *("--output_xlsx_path", str(folder / "out.xlsx")),
        ],
        version=_distribution(venv, "TraceLens"),
    )


def nsys_ai(venv: Path) -> Candidate:
    """nsys-ai's findings on the first GPU; DuckDB's extensions and all state are in `venv`."""
    program = str(venv / "bin" / "nsys-ai")
    return Candidate(
        "nsys-ai",
        lambda path, _: [program, "diagnose", path, "--format", "json"],
        {"HOME": str(venv)},
        writes_beside=True,
        version=_distribution(venv, "nsys-ai"),
    )


def nsys_stats(program: Path) -> Candidate:
    """The default tables of `nsys stats`."""
    shown = subprocess.run([program, "--version"], check=True, capture_output=True, text=True)
    return Candidate(
        "nsys stats",
        lambda path, _: [str(program), "stats", path],
        writes_beside=True,
        version=shown.stdout.strip().removeprefix("NVIDIA Nsight Systems version "),
    )


def _distribution(venv: Path, *names: str) -> str:
    """Name and version of the first of these that is installed in an environment."""
    code = (
        "import sys\n"
        "from importlib.metadata import distributions\n"
        "found = {d.name.lower(): f'{d.name} {d.version}' for d in distributions()}\n"
        "print(next(found[n.lower()] for n in sys.argv[1:] if n.lower() in found))"
    )
    python = str(venv / "bin" / "python")
    done = subprocess.run([python, "-c", code, *names], check=True, capture_output=True, text=True)
    return done.stdout.strip()
