"""The owners of the most time of a rank, by module, line, operator, kernel or class."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from traceprobe.formatting import ms, percent, shorten, significant
from traceprobe.model.taxonomy import CLASS_LABELS
from traceprobe.records.owners import By, has_modules, owners
from traceprobe.records.rank import Rank
from traceprobe.records.report import Report
from traceprobe.render.document import Document, Section, Table
from traceprobe.render.kernel_names import short_name

if TYPE_CHECKING:
    import polars as pl

MOST_ROWS = 100_000
MAX_NAME = 60
MAX_PATH = 4_000
_NO_MODULES = {
    "kineto": "The trace has no calls of modules, so these are ranges of the program. Record "
    "modules with torch.profiler.profile(with_stack=True), which slows the host.",
    "nsys": "An export of Nsight Systems has no calls of modules, so these are NVTX ranges of the "
    "program. Record modules with torch.profiler.profile(with_stack=True), which slows the host.",
}
"""By format, as below."""
_NO_OPERATORS = {
    "kineto": "The trace has no operators. Record them with torch.profiler.profile(activities="
    "[ProfilerActivity.CPU, ProfilerActivity.CUDA]).",
    "nsys": "The export has no operators. Record them with torch.autograd.profiler.emit_nvtx(), or "
    "nsys profile --pytorch=autograd-nvtx.",
}
_NO_LINES = {
    "kineto": "The trace has no lines of the program. traceprobe profile records them without cost "
    "for the times; torch.profiler.profile(with_stack=True) records functions instead, and slows "
    "the host.",
    "nsys": "An export of Nsight Systems has no lines of the program. traceprobe profile --backend "
    "torch records them.",
}
_OF_CPU = "On a CPU the operators are what the device runs; --by kernel lists them."


COLUMNS = (
    *("owner", "within", "busy_ms", "communication_ms", "idle_ms", "own_ms", "share"),
    *("operations", "waits"),
)
"""Of the rows in files."""
_DIGITS = 6


def records(report: Report, by: By, rank: int | None, limit: int | None) -> list[dict[str, Any]]:
    """The owners for a file: `COLUMNS`, with ms and counts a step.

    Args:
        rank: number of the rank; the first that has a tree.
        limit: owners that are listed; all.

    Raises:
        UsageError: as `document`.
    """
    chosen, tree = report.rank_with_tree(rank)
    steps, window = chosen.summary.steps, max(chosen.summary.window_ns, 1)
    rows = owners(tree, by).head(limit or MOST_ROWS).rows(named=True)
    return [
        {
            "owner": row["owner"],
            "within": row["within"],
            **{
                f"{name}_ms": round(row[f"{name}_ns"] / steps / 1e6, _DIGITS)
                for name in ("busy", "communication", "idle", "own")
            },
            "share": round((row["busy_ns"] + row["idle_ns"]) / window, _DIGITS),
            "operations": round(row["operations"] / steps, _DIGITS),
            "waits": round(row["calls"] / steps, _DIGITS),
        }
        for row in rows
    ]


def as_json(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as a JSON array of objects."""
    return json.dumps(rows, indent=1, ensure_ascii=False) + "\n"


def as_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as CSV (RFC 4180), titles first; what has no owner is empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


FORMATS: Mapping[str, Callable[[Sequence[Mapping[str, Any]]], str]] = {
    ".csv": as_csv,
    ".json": as_json,
}
"""Suffix of a file to the text of the rows."""


def document(report: Report, by: By, rank: int | None, limit: int) -> Document:
    """The owners for a terminal.

    Args:
        rank: number of the rank; the first that has a tree.
        limit: owners that are listed.

    Raises:
        UsageError: the report does not say who owns the time of that rank.
    """
    chosen, tree = report.rank_with_tree(rank)
    found = owners(tree, by)
    shown = found.head(limit)
    part = sum(shown["own_ns"].to_list())
    what = "range" if by == "module" and not has_modules(tree) else by
    things = "classes" if what == "class" else f"{what}s"
    unit = "ms a step" if chosen.summary.iterations_used else "ms in all"
    nested = ["own"] if by == "module" else []
    return Document(
        kind="top",
        title=f"Rank {chosen.rank}: {things} by time",
        headline=f"{len(shown)} of {len(found)} rows have "
        f"{percent(part / max(chosen.summary.window_ns, 1))} of the time. Idle: the host was "
        "in them, or they ended the wait.",
        cautions=list(_missing(chosen, tree, by, report.inputs[chosen.input].format)),
        sections=[
            Section(
                "top",
                f"{unit} by {what}",
                blocks=[
                    Table(
                        f"{things} of the most time",
                        [what, "busy", "idle", "share", *nested, "ops", "waits"],
                        [_row(chosen, what, bool(nested), row) for row in shown.rows(named=True)],
                        numeric=frozenset(range(1, 7)),
                        most=limit,
                        names=frozenset({0}),
                    )
                ],
            )
        ],
        version=report.traceprobe_version,
        json="",
    )


def _missing(rank: Rank, tree: pl.DataFrame, by: By, form: str) -> Iterator[str]:
    """Which level the trace has not recorded, and how to record it."""
    if by == "module" and not has_modules(tree):
        yield _NO_MODULES[form]
    if by == "line" and not (tree["level"] == "line").any():
        yield _NO_LINES[form]
    if by == "operator" and not (tree["level"] == "operator").any():
        yield _OF_CPU if rank.device.kind == "cpu" else _NO_OPERATORS[form]


def _row(rank: Rank, what: str, nested: bool, row: Mapping[str, Any]) -> list[str]:
    steps = rank.summary.steps
    return [
        _name(what, row["owner"], row["within"]),
        ms(row["busy_ns"] / steps),
        ms(row["idle_ns"] / steps),
        percent((row["busy_ns"] + row["idle_ns"]) / max(rank.summary.window_ns, 1)),
        *([ms(row["own_ns"] / steps)] if nested else []),
        significant(row["operations"] / steps),
        significant(row["calls"] / steps),
    ]


def _name(what: str, owner: str | None, within: str | None) -> str:
    """An owner in a few words; of the path of a module its end."""
    if owner is None:
        return f"(no {what} recorded)" if within is None else f"(in {shorten(within, MAX_NAME)})"
    if what == "class":
        return CLASS_LABELS[owner]
    if what == "kernel" or owner.startswith("## "):  # as inductor calls its graphs
        return shorten(short_name(owner), MAX_NAME)
    text = shorten(owner, MAX_PATH)
    return text if len(text) <= MAX_NAME else f"…{text[1 - MAX_NAME :].lstrip()}"
