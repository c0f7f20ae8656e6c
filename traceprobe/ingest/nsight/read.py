"""Nsight Systems SQLite exports, schema 3.0.0 to 3.30, read with sqlite3 in bounded chunks.

Tables and columns are looked up, never assumed: exporters differ, `--lazy` leaves tables out, other
tools add columns. Every value is an integer from the start: UTC nanoseconds do not fit a double.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from traceprobe.ingest.detect_format import DetectedFormat, printable
from traceprobe.ingest.limits import Limits
from traceprobe.ingest.nsight.big_tables import begin_reading
from traceprobe.ingest.nsight.open_export import (
    EXPORT_AGAIN,
    MAX_NAMED,
    not_real_tables,
    open_export,
)
from traceprobe.ingest.nsight.tables import Database
from traceprobe.ingest.untrusted_values import tool_version
from traceprobe.model.quality import Quality
from traceprobe.system.reading import sha256

if TYPE_CHECKING:
    from traceprobe.model.events import Trace

_TOOL = re.compile(r"(?:NsightSystems-cli-|nsight-systems(?:-cli)?/)(\d{4}\.\d+(?:\.\d+)?)")


def read_nsight(
    path: Path,
    detected: DetectedFormat,
    progress: Callable[[int, int], None],
    limits: Limits,
    jobs: int = 1,
) -> Trace:
    """The trace in an Nsight Systems export. Errors are those of `traceprobe.ingest.read_trace`.

    Args:
        jobs: threads that read ahead.
    """
    quality = Quality()
    with ExitStack() as opened:
        db = opened.enter_context(open_export(path, detected, limits, quality, jobs))
        begin_reading(db)
        beside = opened.enter_context(ThreadPoolExecutor(1))
        digest = beside.submit(sha256, path, progress)
        from traceprobe.ingest.nsight.facts import session_start_ns  # which take their time
        from traceprobe.ingest.nsight.link import build_trace
        from traceprobe.model.events import Origin

        origin = Origin(
            name=printable(path.name),
            sha256=digest.result(),
            format="nsys",
            dialect=f"schema {tool_version(db.metadata.get('EXPORT_SCHEMA_VERSION')) or 'unknown'}",
            producer=_producer(db),
            bytes=path.stat().st_size,
            utc_ns=session_start_ns(db),
        )
        trace = build_trace(db, origin, quality)
        _warn_of_damage(db, quality)
        return trace


def _warn_of_damage(db: Database, quality: Quality) -> None:
    if db.left_out:
        quality.damaged(
            "no-real-tables", len(db.left_out), f"tables are missing: {not_real_tables(db)}."
        )
    if db.mended:
        named = ", ".join(sorted(db.mended)[:MAX_NAMED])
        quality.damaged(
            "damaged-tables",
            sum(db.mended.values()),
            f"rows are missing: pages of the SQLite file are damaged, and of {named} only a part "
            f"was read. {EXPORT_AGAIN[0].upper()}{EXPORT_AGAIN[1:]}",
        )


def _producer(db: Database) -> str:
    exporter = tool_version(db.metadata.get("EXPORT_PRODUCT_VERSION"))
    installed = db.pairs("TARGET_INFO_SYSTEM_ENV").get("TargetInstallDir", "")
    capture = _TOOL.search(installed)
    parts = ["Nsight Systems"]
    if capture:
        parts.append(f"captured by {capture[1]}")
    if exporter:
        parts.append(f"exported by {exporter}")
    return ", ".join(parts)
