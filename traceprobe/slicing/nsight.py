"""Slices of Nsight Systems exports: tables, columns, texts and strings by allow-lists."""

from __future__ import annotations

import json
import re
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

from traceprobe.slicing.nsight_tables import copy_strings, copy_table, new_export, public_columns

if TYPE_CHECKING:
    from traceprobe.slicing.window import SlicePlan

_GPU = re.compile(r"CUPTI_ACTIVITY_KIND_(KERNEL|MEMCPY|MEMSET|GRAPH_TRACE)")
_NOTES = re.compile(r"CUPTI_ACTIVITY_KIND_(SYNCHRONIZATION|CUDA_EVENT)")
"""What is noted of a call. Records have no time of their own on the host's clock."""

_SAMPLED = (
    "EXISTS (SELECT 1 FROM windows w WHERE t.timestamp >= w.gpu_low AND t.timestamp < w.gpu_high)"
)
"""Samples of counters: they are of a GPU, not of a process."""


def write_nsight_slice(source: Path, target: Path, plan: SlicePlan) -> None:
    """Write the slice as a database of its own."""
    with new_export(source, target) as db:
        _declare_windows(db, plan)
        columns = public_columns(db)
        for table, present in columns.items():
            copy_table(db, table, present, _rule(table, set(present)))
        copy_strings(db, columns)
        db.execute("CREATE TABLE main.traceprobe_slice (name TEXT, value TEXT)")
        db.executemany(
            "INSERT INTO main.traceprobe_slice VALUES (?, ?)",
            [
                (key, value if isinstance(value, str) else json.dumps(value))
                for key, value in plan.note.items()
            ],
        )


def _declare_windows(db: sqlite3.Connection, plan: SlicePlan) -> None:
    """Temporary tables: the window of each process, and the correlation ids launched in it."""
    db.execute(
        "CREATE TEMP TABLE windows (pid INTEGER PRIMARY KEY, low INT, high INT, gpu_low INT, "
        "gpu_high INT)"
    )
    db.executemany(
        "INSERT INTO windows VALUES (?, ?, ?, ?, ?)",
        [(pid, w.low, w.high, w.gpu_low, w.gpu_high) for pid, w in plan.windows.items()],
    )
    db.execute(
        "CREATE TEMP TABLE launched (pid INT, id INT, kept INT, PRIMARY KEY (pid, id)) WITHOUT "
        "ROWID"
    )
    calls = plan.trace.host_calls.filter(plan.trace.host_calls["correlation"] > 0)
    db.executemany(
        "INSERT OR REPLACE INTO launched VALUES (?, ?, ?)",
        [
            (pid, correlation, plan.windows[pid].low <= t0 < plan.windows[pid].high)
            for pid, correlation, t0 in calls.select("pid", "correlation", "t0").rows()
            if pid in plan.windows
        ],
    )


def _rule(table: str, columns: set[str]) -> str:
    """SQL condition on a row `t` of a table."""
    owner = next((c for c in ("globalPid", "globalTid") if c in columns), None)
    # Exports without process ids hold one process, which then is the only window.
    pid = f"((t.{owner} >> 24) & 0xFFFFFF)" if owner else "(SELECT pid FROM windows)"
    of_call = f"(SELECT kept FROM launched l WHERE l.pid = {pid} AND l.id = t.correlationId)"
    if _GPU.fullmatch(table) and {"start", "correlationId"} <= columns:
        return (
            f"COALESCE({of_call}, "
            "(SELECT t.start >= w.gpu_low AND t.start < w.gpu_high FROM windows w WHERE w.pid "
            f"= {pid}), 0)"
        )
    if _NOTES.fullmatch(table) and "correlationId" in columns:
        return f"COALESCE({of_call}, {_inside(pid) if 'start' in columns else 0})"
    if table.startswith("NVTX") and "eventType" in columns:
        timed = _inside(pid)
        of_process = f"{pid} IN (SELECT pid FROM windows)"
        return f"(t.eventType NOT IN (34, 59, 60, 70, 71) AND {of_process}) OR {timed}"
    if "start" in columns and owner:
        return _inside(pid)
    if table == "GPU_METRICS" and {"timestamp", "typeId", "metricId"} <= columns:
        return _SAMPLED
    if table in ("PROCESSES", "ThreadNames"):
        return f"{pid} IN (SELECT pid FROM windows)"
    return "1"


def _inside(pid: str) -> str:
    within = "t.start >= w.low AND t.start < w.high"
    return f"EXISTS (SELECT 1 FROM windows w WHERE w.pid = {pid} AND {within})"
