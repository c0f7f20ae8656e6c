"""The owners of the most time of a rank, by module, line, operator, kernel or class."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from traceprobe.formatting import ms, percent, shorten, significant
from traceprobe.model.taxonomy import CLASS_LABELS
from traceprobe.records.owners import By, has_modules, owners
from traceprobe.records.rank import Rank
from traceprobe.records.report import Report
from traceprobe.render.document import Document, Section, Table
from traceprobe.render.kernel_names import short_name

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
    "for the times; or use torch.profiler.profile(with_stack=True), which slows the host.",
    "nsys": "An export of Nsight Systems has no lines of the program. traceprobe profile --backend "
    "torch records them.",
}
_OF_CPU = "On a CPU the operators are what the device runs; --by kernel lists them."


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
    part = shown.select(pl.col("busy_ns").sum() + pl.col("idle_ns").sum()).item()
    what = "range" if by == "module" and not has_modules(tree) else by
    things = "classes" if what == "class" else f"{what}s"
    unit = "ms a step" if chosen.summary.iterations_used else "ms in all"
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
                        [what, "busy", "idle", "share", "ops", "waits"],
                        [_row(chosen, what, *row) for row in shown.iter_rows()],
                        numeric=frozenset(range(1, 6)),
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


def _row(
    rank: Rank,
    what: str,
    owner: str | None,
    within: str | None,
    busy: int,
    idle: int,
    operations: int,
    calls: int,
) -> list[str]:
    steps = rank.summary.steps
    return [
        _name(what, owner, within),
        ms(busy / steps),
        ms(idle / steps),
        percent((busy + idle) / max(rank.summary.window_ns, 1)),
        significant(operations / steps),
        significant(calls / steps),
    ]


def _name(what: str, owner: str | None, within: str | None) -> str:
    """An owner in a few words; of the path of a module its end."""
    if owner is None:
        return f"(no {what} recorded)" if within is None else f"(in {shorten(within, MAX_NAME)})"
    if what == "class":
        return CLASS_LABELS[owner]
    if what == "kernel":
        return shorten(short_name(owner), MAX_NAME)
    text = shorten(owner, MAX_PATH)
    return text if len(text) <= MAX_NAME else f"…{text[1 - MAX_NAME :].lstrip()}"
