"""Where the time of a report goes: a bar for each rank, its idle gaps, its numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from traceprobe.records.rank import Rank
from traceprobe.records.report import Report
from traceprobe.render.bars import partition_bar
from traceprobe.render.document import Bars, Block, Section, Text
from traceprobe.render.pages.report_counters import counters_section
from traceprobe.render.pages.report_gaps import gaps_section
from traceprobe.render.pages.report_kernel_counters import kernel_counters_section
from traceprobe.render.pages.report_tables import metrics_tables, window

MAX_BESIDE = 4
"""Ranks up to which the tables of their numbers are narrow."""
_HELP = (
    "Every nanosecond of a GPU window belongs to exactly one class, so a bar always fills 100 %. "
    "Kernels come first; communication and copies count only where no kernel runs (“exposed”); "
    "what is left is idle and is split by what the host was doing. “Busy” numbers count overlapped "
    "time too and therefore do not add up. “—” means that the trace cannot tell."
)


def time_section(report: Report, listed: Sequence[Rank]) -> Section:
    """The partition of each rank that is `listed`; gaps and numbers are folded."""
    return Section(
        "time",
        "Where the time goes",
        blocks=[*_partitions(report, listed), *_rest(report, listed)],
        help=_HELP,
        nav="Time",
    )


def _partitions(report: Report, listed: Sequence[Rank]) -> Iterator[Block]:
    if len(listed) < len(report.ranks):
        count = f"{len(listed)} of {len(report.ranks)} ranks"
        yield Text([f"{count}; all of them are in the picture of the ranks."])
    bars = [
        partition_bar(
            f"Rank {rank.rank}",
            rank.summary.partition_ns,
            rank.summary.steps,
            window(rank),
        )
        for rank in listed
    ]
    if any(bar.pieces for bar in bars):
        yield Bars("Exclusive time of the classes", "part of the window", bars, relative=True)
    elif bars:
        yield Text(["Nothing was measured."])


def _rest(report: Report, listed: Sequence[Rank]) -> Iterator[Block]:
    gaps = gaps_section(report)
    if gaps is not None:
        yield gaps
    counters = counters_section(listed)
    if counters is not None:
        yield counters
    kernels = kernel_counters_section(listed)
    if kernels is not None:
        yield kernels
    if report.ranks:
        text = "Per step, over the used iterations"
        if not all(rank.summary.iterations_used for rank in listed):
            text += "; over the whole capture where a rank has none"
        yield Section(
            "metrics",
            "All numbers: step times, busy times, launches, copies",
            text=[f"{text}."],
            blocks=metrics_tables(listed),
            beside=len(listed) <= MAX_BESIDE,
            folded=True,
        )
