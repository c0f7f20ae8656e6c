"""Where the time of a report goes: a bar for each rank, transfers, all ranks together, numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from traceprobe.formatting import duration
from traceprobe.model.taxonomy import label_of
from traceprobe.records.rank import Rank
from traceprobe.records.report import Report
from traceprobe.records.run import Run
from traceprobe.records.summary import Communication
from traceprobe.render.bars import partition_bar
from traceprobe.render.colours import CLASS_COLOURS, SHARE_COLOURS
from traceprobe.render.document import Bar, Bars, Block, Facts, Piece, Section, Text
from traceprobe.render.pages.report_ranks import groups_table, overview_of
from traceprobe.render.pages.report_tables import links_line, metrics_tables, window

MAX_BESIDE = 4
"""Ranks up to which the tables of their numbers are narrow."""
_HELP = (
    "Every nanosecond of a GPU window belongs to exactly one class, so a bar always fills 100 %. "
    "Kernels come first; communication and copies count only where no kernel runs (“exposed”); "
    "what is left is idle and is split by what the host was doing. “Busy” numbers count overlapped "
    "time too and therefore do not add up. “—” means that the trace cannot tell."
)
_OVERLAP_HELP = (
    "A transfer costs nothing while kernels run beside it. What is exposed makes the step longer: "
    "the time in which only the transfer runs. Waiting for other ranks looks like communication, "
    "but a faster network would not help."
)


def time_section(report: Report, listed: Sequence[Rank], detailed: Sequence[Rank]) -> Section:
    """The partition and the numbers of each rank that is `listed`, transfers of the `detailed`."""
    return Section(
        "time",
        "Where the time goes",
        blocks=[*_partitions(report, listed), *_rest(report, listed, detailed)],
        help=_HELP,
    )


def _partitions(report: Report, listed: Sequence[Rank]) -> Iterator[Block]:
    if len(listed) < len(report.ranks):
        count = f"{len(listed)} of {len(report.ranks)} ranks"
        yield Text([f"{count}; all of them are in the picture below."])
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


def _rest(report: Report, listed: Sequence[Rank], detailed: Sequence[Rank]) -> Iterator[Block]:
    if found := overlaps(detailed):
        title = "Transfers and what hides them"
        yield Section("overlap", title, blocks=found, help=_OVERLAP_HELP)
    if report.run is not None:
        yield Section("", "All ranks together", blocks=[Facts([*_together(report, report.run)])])
    overview = overview_of(report)
    if overview is not None:
        yield groups_table(report, overview)
    if report.ranks:
        text = "Per step, over the used iterations"
        if not all(rank.summary.iterations_used for rank in listed):
            text += "; over the whole capture where a rank has none"
        yield Section(
            "metrics",
            "Numbers",
            text=[f"{text}."],
            blocks=metrics_tables(listed),
            beside=len(listed) <= MAX_BESIDE,
        )


def _together(report: Report, run: Run) -> Iterator[tuple[str, str]]:
    yield "ranks", str(run.world_size)
    yield "collectives matched", str(run.collectives_matched)
    if links := links_line(run):
        yield "links", links
    yield "moving data, per step", duration(run.transfer_ns)
    yield "waiting for the slowest rank, per step", duration(run.skew_ns)
    overview = overview_of(report)
    if overview is not None:
        text = f"rank {overview.worst_rank}; the median is rank {overview.median_rank}"
        yield "longest steps of its own", text
    if run.straggler_rank is not None:
        why = f", because of {label_of(run.straggler_cause)}" if run.straggler_cause else ""
        yield "the others wait for", f"rank {run.straggler_rank}{why}"


def overlaps(ranks: Sequence[Rank]) -> list[Bars]:
    """How much of the ranks' transfers kernels hide: communication, then copies to the device.

    A bar stands for the time in which such a transfer runs; there is none where none does.
    """
    found = []
    for kind, title in (("communication", "Communication"), ("h2d", "Copies to the device")):
        bars = []
        for rank in ranks:
            pieces = _parts(rank, kind)
            if pieces:
                total = sum(piece.value for piece in pieces) / rank.summary.steps
                unit = "per step" if rank.summary.iterations_used else "in the capture"
                bars.append(Bar(f"Rank {rank.rank}", pieces, f"{duration(total)} {unit}"))
        if bars:
            found.append(Bars(title, "part of the transfer", bars, relative=True))
    return found


def _parts(rank: Rank, kind: str) -> list[Piece]:
    """Observed parts, ns; they add up to the time in which such a transfer runs."""
    transfer = rank.summary.h2d if kind == "h2d" else rank.summary.communication
    if transfer is None:
        return []
    waiting = transfer.skew_exposed_ns or 0 if isinstance(transfer, Communication) else 0
    beside = transfer.total_ns - transfer.overlapped_ns - transfer.exposed_ns
    exposed = transfer.exposed_ns - waiting
    parts = [
        Piece("hidden by kernels", SHARE_COLOURS["compute"], transfer.overlapped_ns),
        Piece("beside other transfers", CLASS_COLOURS["memory"], beside),
        Piece("exposed", CLASS_COLOURS[kind], exposed),
        Piece("exposed, waiting for other ranks", SHARE_COLOURS["overhead"], waiting),
    ]
    return [part for part in parts if part.value > 0]
