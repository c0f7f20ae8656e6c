"""Short kernels that follow each other again and again: what could be one kernel."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from traceprobe.formatting import NOT_OBSERVED, clean, ms, shorten, significant
from traceprobe.model.taxonomy import BUSY_LABELS
from traceprobe.records.launches import KernelSequence
from traceprobe.records.rank import Rank
from traceprobe.render.document import Table
from traceprobe.render.kernel_names import short_name

MAX_NAME = 110
MAX_PLACE = 60


def sequences_table(rank: Rank) -> Table | None:
    """The sequences of a rank, those that stand for the most launches first; None without any."""
    found = rank.summary.sequences or []
    if not found:
        return None
    steps = rank.summary.steps
    rows = [
        [
            shorten(_told(sequence), MAX_NAME),
            BUSY_LABELS.get(sequence.phase, clean(sequence.phase)),
            shorten(sequence.line or sequence.within or NOT_OBSERVED, MAX_PLACE),
            str(len(sequence.kernels)),
            significant(sequence.count / steps),
            ms(sequence.total_ns / steps),
            ms(sequence.gap_ns / steps),
            significant(sequence.saved_launches / steps),
            ms(sequence.bound_ns / steps),
        ]
        for sequence in found
    ]
    unit = rank.summary.per
    head = ["short kernels in a row", "phase", "where", "kernels", "repetitions"]
    head += ["ms", "gaps (ms)", "launches fewer", "saves up to (ms)"]
    return Table(
        f"{len(rows)} series of short kernels; repetitions, launches and ms {unit}",
        head,
        rows,
        frozenset(range(3, len(head))),
        names=frozenset({0, 2}),
        full=["\n".join(map(short_name, sequence.kernels)) for sequence in found],
    )


def _told(sequence: KernelSequence) -> str:
    """Its operators, or its kernels where nothing is known of them: `mul ×2, add, sum`."""
    names: Sequence[str | None] = sequence.operators
    if None in names:
        names = [short_name(kernel) for kernel in sequence.kernels]
    each = [((name or "").removeprefix("aten::"), len([*same])) for name, same in groupby(names)]
    return ", ".join(f"{name} ×{count}" if count > 1 else name for name, count in each)
