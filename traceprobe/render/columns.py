"""Which columns of a table fit a terminal, and how wide they are."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len

GAP = 2
"""Cells between two columns."""
LEAST_CELL = 12
"""Cells that a column of text can be narrowed to."""


def fitting(
    texts: Sequence[Sequence[str]], numeric: frozenset[int], width: int
) -> tuple[list[int], dict[int, int]]:
    """Columns that fit beside each other, and their widths.

    Text is folded before a column goes.
    """
    full = {n: max(cell_len(row[n]) for row in texts) for n in range(len(texts[0]))}
    least = {n: min(full[n], LEAST_CELL) for n in full}
    for n in numeric & full.keys():  # a number is not folded, but its title is
        least[n] = max(least[n], *(cell_len(row[n]) for row in texts))
    shown = list(full)
    for column in _expendable(full, numeric):
        if _total(least, shown) > width:
            shown.remove(column)
    widths = {n: min(full[n], width) for n in shown}
    while _total(widths, shown) > width:
        widest = max((n for n in shown if widths[n] > least[n]), key=lambda n: widths[n])
        widths[widest] -= 1
    return shown, widths


def _expendable(full: dict[int, int], numeric: frozenset[int]) -> list[int]:
    """Columns in the order in which they go: long texts, then from the right.

    The last number, which often is the result, goes after those before it; the first column, which
    names the row, stays.
    """
    columns = list(full)[:0:-1]
    long = [n for n in columns if n not in numeric and full[n] > LEAST_CELL]
    rest = [n for n in columns if n not in long]
    return [*long, *rest[1:], *rest[:1]]


def _total(widths: dict[int, int], shown: Sequence[int]) -> int:
    return sum(widths[n] for n in shown) + GAP * (len(shown) - 1)
