"""Kernels of a report: what runs on the GPU, one row for all variants of a kernel."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from traceprobe.formatting import NOT_OBSERVED, clean, ms, percent, shorten, significant
from traceprobe.model.taxonomy import BUSY_LABELS
from traceprobe.records.rank import Rank
from traceprobe.records.report import Report
from traceprobe.records.summary import KernelShare
from traceprobe.render.document import Block, Section, Table
from traceprobe.render.kernel_names import short_name
from traceprobe.render.pages.report_operators import operators_table
from traceprobe.render.pages.report_owners import owners_block
from traceprobe.render.pages.report_sequences import sequences_table

NAMED = 3
"""Kernels of which the title has the share."""
MAX_KERNELS = 30
"""Rows of one rank."""
MAX_NAME = 80
MAX_FULL = 600
_TENSOR_CORES = {True: "yes", False: "no", None: NOT_OBSERVED}
_HELP = (
    "Kernels that differ in the arguments of their template only are one row; its name opens to "
    "the whole names, as the trace has them. Kernels that run at once count twice. “Of phase” is "
    "the part of the kernel time of a phase; “beside communication” is the part of the time of a "
    "kernel during which a collective runs; “matrix units”, tensor cores or AMD's matrix cores, is "
    "told by the name where it tells. "
    "Short kernels in a row follow each other on a stream, repeated without overlap; “launches "
    "fewer” is what one kernel for each repetition would spare, and “saves up to” the idle time "
    "that goes with them, as captured. How much less such a kernel reads and writes is not in the "
    "trace. "
    "Who owns the time: every nanosecond of a step has one owner, so that rows add up; idle time "
    "is owned by what the host did in it. An operator in the table of operators owns what it "
    "launched itself, and not through an operator inside it."
)


class KernelGroup(msgspec.Struct, frozen=True):
    """Kernels of one phase and one short name."""

    name: str
    phase: str
    kernels: Sequence[KernelShare]

    @property
    def total_ns(self) -> int:
        """Time of all of them in the used iterations."""
        return sum(kernel.total_ns for kernel in self.kernels)

    @property
    def count(self) -> int:
        """Of how many runs."""
        return sum(kernel.count for kernel in self.kernels)


def kernel_groups(rank: Rank) -> list[KernelGroup]:
    """The kernels that the report lists, grouped; those with most time first."""
    found: dict[tuple[str, str], list[KernelShare]] = {}
    for kernel in rank.summary.top_kernels:
        found.setdefault((kernel.phase, short_name(kernel.name)), []).append(kernel)
    groups = [KernelGroup(name, phase, kernels) for (phase, name), kernels in found.items()]
    return sorted(groups, key=lambda group: -group.total_ns)


def kernel_time_ns(rank: Rank) -> float:
    """Time of all kernels of the phases that have one listed, overlap included."""
    phases: dict[str, float] = {}
    listed: dict[str, int] = {}
    for kernel in rank.summary.top_kernels:
        listed[kernel.phase] = listed.get(kernel.phase, 0) + kernel.total_ns
        if kernel.phase_share:
            phases.setdefault(kernel.phase, kernel.total_ns / kernel.phase_share)
    return sum(max(phases.get(phase, 0.0), total) for phase, total in listed.items())


def kernels_section(report: Report, ranks: Sequence[Rank]) -> Section | None:
    """A fold with who owns the time and the kernels of each rank; None without kernels.

    The share of the first rank's is in the title.
    """
    found = [rank for rank in ranks if rank.summary.top_kernels]
    if not found:
        return None
    parts = [
        Section(
            f"kernels-{rank.rank}",
            f"Rank {rank.rank}: {_shares(rank)}",
            blocks=_tables(rank),
            folded=True,
            is_open=n == 0,
        )
        for n, rank in enumerate(found)
    ]
    owners = owners_block(report, found)
    tables = parts if len(found) > 1 else _tables(found[0])
    return Section(
        "kernels",
        f"{_noun(found[0])}: {_shares(found[0])}",
        blocks=[*([owners] if owners else []), *tables],
        help=_HELP,
        folded=True,
        nav=_noun(found[0]),
    )


def _tables(rank: Rank) -> list[Block]:
    """The kernels, those in a row, and the operators that launched them; what there is of it."""
    others = (sequences_table(rank), operators_table(rank))
    return [kernels_table(rank), *(table for table in others if table is not None)]


def _noun(rank: Rank) -> str:
    return "Operators" if rank.device.kind == "cpu" else "Kernels"


def _shares(rank: Rank) -> str:
    """`3 take 71 % of the kernel time`."""
    groups = kernel_groups(rank)[:NAMED]
    part = 100 * sum(group.total_ns for group in groups) / max(kernel_time_ns(rank), 1.0)
    of = f"{part:.0f} % of the {_noun(rank).lower().removesuffix('s')} time"
    return f"{len(groups)} take {of}" if len(groups) > 1 else f"one takes {of}"


def kernels_table(rank: Rank) -> Table:
    """A row for each group of kernels; times per step."""
    divisor = rank.summary.steps
    groups = kernel_groups(rank)
    shown = groups[:MAX_KERNELS]
    whole = max(kernel_time_ns(rank), 1.0)
    rows = [
        [
            shorten(group.name, MAX_NAME),
            BUSY_LABELS.get(group.phase, clean(group.phase)),
            ms(group.total_ns / divisor),
            percent(group.total_ns / whole),
            percent(_phase_share(group)),
            significant(group.count / divisor),
            significant(group.total_ns / max(group.count, 1) / 1e3),
            _beside(group),
            _tensor_cores(group),
        ]
        for group in shown
    ]
    unit = rank.summary.per
    head = ["kernel", "phase", "ms", "of all", "of phase", "count", "mean (µs)"]
    head += ["beside communication", "matrix units"]
    always = len(head) - 2
    told = [
        place
        for place in range(len(head))
        if place < always or any(row[place] != NOT_OBSERVED for row in rows)
    ]
    head, rows = [head[n] for n in told], [[row[n] for n in told] for row in rows]
    if rank.device.kind == "cpu":
        head[0] = "operator"
    caption = f"{len(rows)} with the most time; ms and count {unit}"
    full = ["\n".join(shorten(k.name, MAX_FULL) for k in group.kernels) for group in shown]
    numeric = frozenset(n for n, title in enumerate(head) if n > 1 and title != "matrix units")
    return Table(caption, head, rows, numeric, names=frozenset({0}), full=full)


def _phase_share(group: KernelGroup) -> float | None:
    shares = [kernel.phase_share for kernel in group.kernels]
    return None if None in shares else sum(share or 0.0 for share in shares)


def _beside(group: KernelGroup) -> str:
    """Part of the kernels' time during which a collective runs."""
    beside = [kernel.beside_communication_ns for kernel in group.kernels]
    known = [ns for ns in beside if isinstance(ns, int)]
    if len(known) < len(beside):
        return NOT_OBSERVED
    return percent(sum(known) / max(group.total_ns, 1))


def _tensor_cores(group: KernelGroup) -> str:
    told = {kernel.tensor_cores for kernel in group.kernels}
    return _TENSOR_CORES[told.pop()] if len(told) == 1 else "some"
