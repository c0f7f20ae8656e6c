"""What the report of a recording blames, held against the line that was put into the program.

It is asked as a person would ask: the finding about what is slow names sites, the first first; and
where none warns of it, `traceprobe top --by line` names lines. One recording has to do: nothing is
compared with a run that has no fault.
"""

from __future__ import annotations

import re
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

import traceprobe
from benchmarks.injection.recordings import read_rows
from traceprobe.errors import TraceprobeError
from traceprobe.records.owners import owners

FINDINGS = {
    "sleep": ("host-overhead", "unexplained-idle", "data-wait"),
    "busy": ("host-overhead", "unexplained-idle", "data-wait"),
    "item": ("synchronization",),
    "copy": ("h2d-pageable", "h2d-exposed"),
    "slow-sample": ("data-wait",),
    "slow-worker": ("data-wait",),
    "spin": (),
    "matmul": (),
}
"""The findings about each kind: a pause in what makes batches is a wait for data. Operators are
asked for by line, those of the most time first."""
WARNS = ("warn", "fail")
SHOWN = 3
_SEEN_MS, _SEEN_SHARE = 1.0, 0.05
"""A fault is felt where the step gets longer by at least so much: one that the GPU's queue hides
costs nothing, and nothing is to be blamed for it."""
_LINE = re.compile(r"^(.*)\((\d+)\): (.*)$")


def score(folders: Sequence[Path]) -> dict[str, Any]:
    """The faults in folders that `recordings.py` left, with what is blamed for them."""
    runs = []
    for folder in folders:
        rows = read_rows(folder / "rows.jsonl")
        machines = [row["machine"] for row in rows if "machine" in row]
        left_out = {row["id"]: row["left_out"] for row in rows if "left_out" in row}
        latest = {row["id"]: row for row in rows if "kind" in row}
        with tempfile.TemporaryDirectory() as name:
            for part in sorted(folder.glob("part*.tar")):
                with tarfile.open(part) as tar:
                    tar.extractall(name, filter="data")
            scored = []
            for row in latest.values():
                traces = sorted((Path(name) / row["id"]).glob("rank*.json.gz"))
                found = judged(traces, row) if traces else {"failed": row["failed"] or "no trace"}
                scored.append({**row, **found, "felt": felt(row, machines[-1])})
        runs.append(
            {"machine": machines[-1] if machines else {}, "left_out": left_out, "rows": scored}
        )
    return {"runs": runs}


def felt(row: Mapping[str, Any], machine: Mapping[str, Any]) -> bool | None:
    """Whether a fault makes the step longer; None where it was not recorded.

    Nothing hides what a CPU does. Beside a GPU that is busy meanwhile a delay of the host, or a
    wait, costs nothing.
    """
    if row.get("unprofiled_ms") is None:
        return None
    longer = row["unprofiled_ms"] - row["step_ms"]
    return bool(not machine["gpus"] or longer >= max(_SEEN_MS, _SEEN_SHARE * row["step_ms"]))


def judged(traces: Sequence[Path], row: Mapping[str, Any]) -> dict[str, Any]:
    """What a report says: `verdict`, `blamed` lines, and the ranks of the fault in them.

    Ranks count from 1; None where it is not among the first three.
    """
    try:
        report = traceprobe.analyze([traceprobe.load(path) for path in traces])
    except TraceprobeError as error:
        return {"failed": str(error)}
    by_line = lines_of(report.tree(), busy=row["kind"] in ("spin", "matmul"))
    blamed, asked = by_line, "lines"
    statuses = {f.id: f.status for f in report.findings}
    if FINDINGS[row["kind"]]:
        found = [f for f in report.findings if f.id in FINDINGS[row["kind"]] and f.status in WARNS]
        sites = sorted(
            (site for f in found for site in f.sites or () if site.line is not None),
            key=lambda site: -site.ms_per_step,
        )
        if sites:
            asked = ", ".join(f.id for f in found)
            blamed = list(dict.fromkeys(str(site.line) for site in sites))
    return {
        "verdict": report.verdict.bound,
        "status": {id: statuses.get(id) for id in FINDINGS[row["kind"]]},
        "asked": asked,
        "blamed": blamed[:SHOWN],
        "by_line": by_line[:SHOWN],
        "line_rank": rank(blamed, row, by="line"),
        "function_rank": rank(blamed, row, by="function"),
        "top_rank": rank(by_line, row, by="line"),
    }


def lines_of(tree: pl.DataFrame | None, *, busy: bool) -> list[str]:
    """Lines by the time that the device works for them, or idles."""
    if tree is None or "line" not in tree.columns:
        return []
    table = owners(tree, "line").filter(pl.col("owner").is_not_null())
    key = "busy_ns" if busy else "idle_ns"
    return [str(name) for name in table.sort(key, descending=True)["owner"]]


def rank(blamed: Sequence[str], row: Mapping[str, Any], *, by: str) -> int | None:
    """Place of the fault among what is blamed."""
    for place, text in enumerate(blamed[:SHOWN], 1):
        parts = _LINE.match(text)
        if parts is None or Path(parts[1]).name != Path(row["file"]).name:
            continue
        same_function = parts[3].rpartition(".")[2] == row["function"]
        if int(parts[2]) == row["line"] or (by == "function" and same_function):
            return place
    return None
