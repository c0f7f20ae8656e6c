"""What a profiler counted of kernels while it timed none."""

from __future__ import annotations

from collections.abc import Sequence

from traceprobe.formatting import NOT_OBSERVED, clean, counted, shorten, significant
from traceprobe.records.kernel_counters import KernelCounters
from traceprobe.records.rank import Rank
from traceprobe.render.document import Section, Table
from traceprobe.render.kernel_names import short_name

SHOWN = 30
COLUMNS = 6
"""Counters beside each other, those that tell kernels apart first."""
MAX_NAME = 80
_HELP = (
    "With `profiler_metrics` the profiler of PyTorch counts what each kernel does, one kernel "
    "after the other, and notes no times. Sums are in each counter's own unit. Which operator "
    "launched a kernel follows from the order of launches, where there are as many of them."
)


def kernel_counters_section(listed: Sequence[Rank]) -> Section | None:
    """A table for each rank of `listed` whose kernels were counted; None without any."""
    found = [
        (rank, counters)
        for rank in listed
        if isinstance(counters := rank.summary.kernel_counters, KernelCounters)
    ]
    if not found:
        return None
    return Section(
        "kernel-counters",
        f"Counters of {counted(found[0][1].count, 'kernel')}",
        blocks=[_table(rank, counters) for rank, counters in found],
        help=_HELP,
        folded=True,
    )


def _table(rank: Rank, counters: KernelCounters) -> Table:
    kernels = counters.kernels[:SHOWN]
    sums = [{each.values[n] for each in kernels} for n in range(len(counters.metrics))]
    shown = [n for n, values in enumerate(sums) if len(values) > 1] or list(range(len(sums)))
    shown = shown[:COLUMNS]
    names = [clean(counters.metrics[n]) for n in shown]
    start = _common(names)
    rows = [
        [
            NOT_OBSERVED if each.kernel is None else shorten(short_name(each.kernel), MAX_NAME),
            NOT_OBSERVED if each.operator is None else shorten(clean(each.operator), MAX_NAME),
            str(each.count),
            *(significant(each.values[n]) for n in shown),
        ]
        for each in kernels
    ]
    said = f"Rank {rank.rank}"
    if start:
        said += f"; counters begin with {names[0][:start]}"
    return Table(
        said,
        ["kernel", "operator", "kernels", *(name[start:] for name in names)],
        rows,
        frozenset(range(2, 3 + len(shown))),
        names=frozenset({0, 1}),
        full=["\n".join(filter(None, (each.kernel, each.operator))) for each in kernels],
    )


def _common(names: Sequence[str]) -> int:
    """Length of what several names begin with; 0 of a single one."""
    first, last = min(names), max(names)
    if first == last:
        return 0
    same = (a == b for a, b in zip(first, last, strict=False))
    return next((n for n, equal in enumerate(same) if not equal), 0)
