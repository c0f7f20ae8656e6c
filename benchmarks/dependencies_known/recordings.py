"""Recordings of programs whose graph is known: which operation of the trace is which of theirs."""

from __future__ import annotations

import gzip
import json
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

import traceprobe
from benchmarks.dependencies_known.program import DEVICE, Program, Rank, decoded
from traceprobe.model.codes import Kind
from traceprobe.model.events import Trace
from traceprobe.timeline import phases
from traceprobe.timeline.device_timeline import DeviceTimeline, device_timeline
from traceprobe.timeline.process_timeline import process_timeline

FORMATS = ("kineto", "nsys")
PROCESSORS = 132
"""Multiprocessors of an H200: a Kineto trace has blocks for each, and the model thousandths."""


@dataclass(frozen=True)
class Run:
    """A program, what was measured of it, and its recordings by format, a file a rank."""

    program: Program
    rows: list[dict[str, Any]]
    files: dict[str, list[Path]]


def runs(folder: Path, scratch: Path) -> Iterator[Run]:
    """All programs of a folder that `dependencies.py record` left.

    Args:
        scratch: a folder for what is cut out of recordings of several programs.
    """
    measured: dict[str, list[dict[str, Any]]] = {}
    for path in sorted(folder.glob("rank*.jsonl")):
        for line in path.read_text().splitlines():
            found = json.loads(line)
            if "truth" in found:
                measured.setdefault(found["program"], []).append(found)
    whole = [unpacked(path, scratch) for path in sorted(folder.glob("nsys/rank*.sqlite.gz"))]
    for name, rows in sorted(measured.items(), key=lambda each: int(each[0][1:])):
        files = {"kineto": sorted((folder / "traces" / name).glob("rank*.json.gz"))}
        cuts = [cut(path, name, scratch) for path in whole]
        files["nsys"] = [path for path in cuts if path is not None]
        program = decoded(rows[0]["truth"])
        kept = {key: found for key, found in files.items() if len(found) == len(program.ranks)}
        yield Run(program, rows, kept)


def unpacked(path: Path, scratch: Path) -> Path:
    """An export without its compression."""
    target = scratch / path.stem
    target.write_bytes(gzip.decompress(path.read_bytes()))
    return target


def cut(whole: Path, name: str, scratch: Path) -> Path | None:
    """The part of an export that lies in the range of a program; None without that range."""
    with sqlite3.connect(whole) as source:
        texts = "coalesce(text, (SELECT value FROM StringIds WHERE id = textId))"
        window = source.execute(
            f"SELECT start, end FROM NVTX_EVENTS WHERE {texts} = ?", (name,)
        ).fetchone()
        if window is None:
            return None
        target = scratch / f"{name}.{whole.name}"
        target.unlink(missing_ok=True)
        with sqlite3.connect(target) as copy:
            source.backup(copy)
            for table in ("KERNEL", "MEMCPY", "MEMSET", "RUNTIME", "SYNCHRONIZATION"):
                copy.execute(
                    f"DELETE FROM CUPTI_ACTIVITY_KIND_{table} WHERE start < ? OR end > ?", window
                )
            copy.execute("DELETE FROM NVTX_EVENTS WHERE start <= ? OR end >= ?", window)
            copy.execute(
                "DELETE FROM CUPTI_ACTIVITY_KIND_CUDA_EVENT WHERE correlationId NOT IN"
                " (SELECT correlationId FROM CUPTI_ACTIVITY_KIND_RUNTIME)"
            )
            copy.commit()
            copy.execute("VACUUM")
    copy.close()
    source.close()
    return target


def account_of(trace: Trace) -> DeviceTimeline:
    """The timeline of the only device of a trace."""
    names = phases.compile_phase_names({})
    device = trace.devices[0]
    process = process_timeline(trace, device.pid, None, names)
    return device_timeline(process, device.index)


def load(path: Path) -> Trace:
    """A recording."""
    return traceprobe.load(path)


def numbers(ops: pl.DataFrame, rank: Rank, written_by: str) -> list[int]:
    """Which operation of the program each of the trace is.

    Kernels carry their number as their grid; the others are told by their place between them.

    Args:
        ops: `GPU_OPS`, and `iteration`, in the order of their launches.

    Raises:
        ValueError: the trace does not fit the program.
    """
    planned = [[a for a in thread if a.does in DEVICE] for thread in rank.threads]
    thread_of = {a.number: n for n, each in enumerate(planned) for a in each}
    if written_by == "kineto":
        blocks = (pl.col("grid") * PROCESSORS / 1000).round().cast(pl.Int32)
        ops = ops.with_columns(grid=blocks)
    columns = ops.select("thread", "iteration", "kind", "grid").rows()
    kernels = [kind == int(Kind.KERNEL) for _, _, kind, _ in columns]
    lines = {
        thread: thread_of[grid - 1]
        for (thread, _, _, grid), kernel in zip(columns, kernels, strict=True)
        if kernel
    }
    places: dict[tuple[int, int], int] = {}
    found: list[int] = []
    for (thread, iteration, _, grid), kernel in zip(columns, kernels, strict=True):
        line = lines[thread]
        place = places.get((line, iteration), 0)
        places[line, iteration] = place + 1
        if place >= len(planned[line]):
            raise ValueError("more operations than the program has")
        action = planned[line][place]
        if kernel != (action.does == "kernel") or (kernel and grid != action.number + 1):
            raise ValueError(f"operation {place} of iteration {iteration} is another")
        found.append(action.number)
    return found


def same_streams(ops: pl.DataFrame, known: list[int], rank: Rank) -> dict[int | str, int | str]:
    """Streams of a program, or of NCCL, that were the same stream of the device as another."""
    planned = {a.number: a for a in rank.actions() if a.does in DEVICE}
    names = {"all-reduce": "all", "send": "pair", "receive": "pair"}
    first: dict[int, int | str] = {}
    found: dict[int | str, int | str] = {}
    for stream, number in zip(ops["stream"].to_list(), known, strict=True):
        action = planned[number]
        mine = names.get(action.does, action.stream)
        other = first.setdefault(stream, mine)
        if other != mine:
            found[mine] = other
    return found
