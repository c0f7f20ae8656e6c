"""The operators of a roofline: which lose most, and how much of the time is not explained."""

from __future__ import annotations

from collections.abc import Sequence

from traceprobe.formatting import NOT_OBSERVED, number, percent
from traceprobe.records.operator_work import Operators, OperatorWork
from traceprobe.render.document import Section, Table
from traceprobe.render.pages.flop_numbers import flops

_NAMED = 3
"""Operators that the sentence is about."""
_HELP = (
    "An operator takes at least its operations at the peak of their precision, or its bytes at "
    "full bandwidth, whichever is longer: each operand read once, each result written once. What "
    "it takes longer is above the roofline. Calls with the same sizes are one row. Small kernels "
    "are far above it whatever they do: fusing them, or larger batches, make them fewer. Where the "
    "work of an operator is not known, nothing is guessed."
)
_NUMBERS = {"one": 1, "two": 2, "three": 3}


def operator_lines(found: Operators) -> list[str]:
    """What the operators that lose most could win, and what is not known."""
    return [line for line in (_loss(found), _unknown(found)) if line]


def _loss(found: Operators) -> str:
    losing = [row for row in found.rows if row.least_ms is not None and (row.excess_ms or 0) > 0]
    rows = losing[:_NAMED]
    if not rows:
        return ""
    took = sum(row.ms for row in rows)
    least = sum(row.least_ms or 0.0 for row in rows)
    counted = next(word for word, count in _NUMBERS.items() if count == len(rows))
    verb = "operator runs" if len(rows) == 1 else "operators run"
    return (
        f"{counted} {verb} at {percent(least / took)} of what the device could: "
        f"{number(took - least)} ms of a step are above the roofline"
    )


def _unknown(found: Operators) -> str:
    if found.kernel_ms <= found.known_ms or not found.kernel_ms:
        return ""
    share = percent(1 - found.known_ms / found.kernel_ms)
    return f"{share} of the kernels' time is in operators whose work is not known"


def operators_section(found: Operators) -> list[Section]:
    """Operators by the time that they are above the roofline."""
    if not found.rows:
        return []
    return [
        Section(
            "roofline-operators",
            "Operators beside the roofline",
            text=[*operator_lines(found), *found.notes],
            blocks=[_table(found.rows)],
            help=_HELP,
            nav="Operators",
        )
    ]


def _table(rows: Sequence[OperatorWork]) -> Table:
    head = ["operator", "sizes", "in", "calls", "ms", "work", "MB", "bound by", "attained"]
    cells = [
        [
            row.operator,
            sizes(row),
            row.precision,
            number(row.calls),
            number(row.ms),
            flops(row.flops) if row.flops else "",
            number(row.bytes / 1e6),
            row.bound or NOT_OBSERVED,
            NOT_OBSERVED if row.attained is None else percent(row.attained),
            NOT_OBSERVED if row.excess_ms is None else number(row.excess_ms),
        ]
        for row in rows
    ]
    return Table(
        "Operators of a step by the time that they are above the roofline: work and bytes are "
        "those of a call",
        [*head, "ms above"],
        cells,
        numeric=frozenset({3, 4, 5, 6, 8, 9}),
        names=frozenset({0}),
    )


def sizes(row: OperatorWork) -> str:
    """Sizes of tensors as PyTorch writes them."""
    return " ".join(str(dims) for dims in row.sizes)
