"""Whether two series of numbers have the same order."""

from __future__ import annotations

from collections.abc import Sequence


def spearman(ours: Sequence[float], theirs: Sequence[float]) -> float | None:
    """Correlation of ranks, ties sharing theirs; None below three pairs or where all are equal."""
    if len(ours) < 3:
        return None
    x, y = _ranks(ours), _ranks(theirs)
    middle = (len(x) + 1) / 2
    over = sum((a - middle) * (b - middle) for a, b in zip(x, y, strict=True))
    under = sum((a - middle) ** 2 for a in x) * sum((b - middle) ** 2 for b in y)
    return round(over / under**0.5, 4) if under else None


def _ranks(values: Sequence[float]) -> list[float]:
    order = sorted(values)
    return [order.index(v) + (order.count(v) + 1) / 2 for v in values]
