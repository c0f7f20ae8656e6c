"""Communication and copies of a report, and how its ranks differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import UnsetType

from traceprobe.formatting import duration, percent, ranges
from traceprobe.model.taxonomy import label_of
from traceprobe.records.rank import Rank
from traceprobe.records.report import Report
from traceprobe.records.run import Run
from traceprobe.records.summary import Communication
from traceprobe.render.colours import CLASS_COLOURS, SHARE_COLOURS
from traceprobe.render.document import Bar, Bars, Block, Facts, Piece, Section, Text
from traceprobe.render.pages.report_ranks import (
    groups_table,
    overview_of,
    rank_steps_chart,
    ranks_chart,
)
from traceprobe.render.pages.report_tables import collectives_table, links_line

_OVERLAP = (
    "A transfer costs nothing while kernels run beside it. What is exposed makes the step longer: "
    "the time in which only the transfer runs. Waiting for other ranks looks like communication, "
    "but a faster network would not help."
)
_COLLECTIVES = (
    "A collective ends on all ranks at once. “Transfer” is its shortest duration among the ranks, "
    "the rest is waiting for the slowest. Size, transfer and waiting are those of one. “≥” is a "
    "lower bound, from durations that may hold waiting."
)


def communication_section(report: Report, detailed: Sequence[Rank]) -> Section | None:
    """A fold with all ranks together, and the transfers of the `detailed`; None without any."""
    blocks = [*_blocks(report, detailed)]
    if not blocks:
        return None
    found = [rank.summary.communication for rank in report.ranks]
    if len(report.ranks) > 1:
        subject = "Communication and ranks"
    else:
        subject = "Communication" if found[0] is not None else "Copies to the device"
    said = _said(report, detailed)
    return Section(
        "ranks",
        f"{subject}: {said}" if said else subject,
        blocks=blocks,
        help=_OVERLAP,
        folded=True,
        nav=subject.removesuffix(" to the device").removeprefix("Communication and ").capitalize(),
    )


def _said(report: Report, detailed: Sequence[Rank]) -> str:
    """What to know of it, for the title."""
    run = report.run
    if run is not None and not isinstance(run.straggler_wait_ns, UnsetType):
        waited = duration(run.straggler_wait_ns)
        return f"the others wait {waited} a step for rank {run.straggler_rank}"
    for rank in detailed:
        transfer = rank.summary.communication or rank.summary.h2d
        if transfer is not None and transfer.total_ns:
            per = "a step" if rank.summary.iterations_used else "in the capture"
            exposed = duration(transfer.exposed_ns / rank.summary.steps)
            hidden = percent(transfer.overlap_pct / 100)
            return f"{exposed} {per} exposed, {hidden} hidden behind kernels"
    return f"{len(report.ranks)} ranks" if len(report.ranks) > 1 else ""


def _blocks(report: Report, detailed: Sequence[Rank]) -> Iterator[Block]:
    if report.run is not None:
        yield Section("", "All ranks together", blocks=[Facts([*_together(report, report.run)])])
    overview = overview_of(report)
    if overview is not None:
        yield groups_table(report, overview)
    yield from (c for c in (ranks_chart(report), rank_steps_chart(report)) if c is not None)
    if found := overlaps(detailed):
        yield Section("overlap", "Transfers and what hides them", blocks=found)
    several = len(detailed) > 1
    tables = [(rank, collectives_table(rank)) for rank in detailed]
    for n, (rank, table) in enumerate([item for item in tables if item[1].rows]):
        communication = rank.summary.communication
        sizes = communication.sizes if communication is not None else ""
        yield Section(
            f"collectives-{rank.rank}",
            f"Collectives of rank {rank.rank}" if several else "Collectives",
            text=[_COLLECTIVES, *([sizes] if sizes else [])] if n == 0 else [],
            blocks=[table],
            folded=several,
            is_open=n == 0,
        )
    left_out = ranges(sorted(rank.rank for rank in report.ranks if rank not in detailed))
    if left_out:
        yield Text(
            [f"Without pictures here: rank {left_out}. The embedded data has their numbers."]
        )


def _together(report: Report, run: Run) -> Iterator[tuple[str, str]]:
    yield "ranks", str(run.world_size)
    yield "collectives matched", str(run.collectives_matched)
    if links := links_line(run):
        yield "links", links
    if run.transfer_ns is not None:
        yield "moving data, per step", duration(run.transfer_ns)
    if run.skew_ns is not None:
        yield "waiting for other ranks, per step, mean of all", duration(run.skew_ns)
    overview = overview_of(report)
    if overview is not None:
        text = f"rank {overview.worst_rank}; the median is rank {overview.median_rank}"
        yield "longest steps of its own", text
    if run.straggler_rank is not None:
        why = f", because of {label_of(run.straggler_cause)}" if run.straggler_cause else ""
        waited = run.straggler_wait_ns
        time = "" if isinstance(waited, UnsetType) else f", {duration(waited)} a step"
        yield "the others wait for", f"rank {run.straggler_rank}{time}{why}"


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
                unit = rank.summary.per
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
