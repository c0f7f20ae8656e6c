"""Pictures of a report: charts of the ranks together, then what there is to see of single ranks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from traceprobe.formatting import ranges
from traceprobe.records.rank import Rank
from traceprobe.records.report import Report
from traceprobe.render.document import Block, Code, Section, Text
from traceprobe.render.next_step import slice_command
from traceprobe.render.pages.report_iterations import iterations_chart
from traceprobe.render.pages.report_ranks import rank_steps_chart, ranks_chart
from traceprobe.render.pages.report_steps import steps_chart
from traceprobe.render.pages.report_tables import collectives_table, kernels_table, window

_HELP = (
    "“Every iteration” stacks the classes of the time of each step; crossed ones are left out of "
    "all sums, with the reason. Kernels are listed by phase; those that run at once count twice, "
    "and “tensor cores” is told by the kernel's name where it tells."
)
_COLLECTIVES = (
    "A collective ends on all ranks at once. “Transfer” is its shortest duration among the ranks, "
    "the rest is waiting for the slowest. Size, transfer and waiting are those of one. “≥” is a "
    "lower bound, from durations that may hold waiting."
)


def pictures(report: Report, detailed: Sequence[Rank]) -> Section:
    """Charts of all ranks, and of each of the `detailed` its charts and kernels."""
    together = [c for c in (ranks_chart(report), rank_steps_chart(report)) if c is not None]
    blocks: list[Block] = []
    cut = slice_command(report)
    if cut and all(source.format == "kineto" for source in report.inputs):
        blocks.append(Text(["To see a step in Perfetto (ui.perfetto.dev), cut it out first:"]))
        blocks.append(Code(cut))
    blocks += together
    for n, rank in enumerate(detailed):
        blocks.append(_of_rank(rank, is_open=n == 0))
    left_out = ranges(sorted(rank.rank for rank in report.ranks if rank not in detailed))
    if left_out:
        where = "picture above" if together else "table above"
        blocks.append(
            Text(
                [
                    f"Without pictures here: rank {left_out}. Their numbers are in the {where} and "
                    "in the embedded data."
                ]
            )
        )
    title = "Pictures and kernels"
    return Section("ranks", title, blocks=blocks, help=_HELP, nav="Pictures")


def _of_rank(rank: Rank, *, is_open: bool) -> Section:
    return Section(
        f"rank-{rank.rank}",
        f"Rank {rank.rank}: {rank.device.name or rank.device.kind}, {window(rank)}",
        blocks=list(_blocks(rank)),
        folded=True,
        is_open=is_open,
    )


def _blocks(rank: Rank) -> Iterator[Block]:
    charts = [c for c in (iterations_chart(rank), steps_chart(rank)) if c is not None]
    yield from charts
    if not charts:
        yield Text(["No iteration was found in this rank, so there is none to draw."])
    collectives = collectives_table(rank)
    if collectives.rows:
        communication = rank.summary.communication
        sizes = communication.sizes if communication is not None else ""
        text = [_COLLECTIVES, *([sizes] if sizes else [])]
        yield Section("", "Collectives", text=text, blocks=[collectives])
    kernels = kernels_table(rank)
    if kernels.rows:
        yield Section("", "Kernels with the most time", blocks=[kernels])
