"""Time by what it is spent in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable


def spent_by(
    keys: Iterable[str | None], ns: Iterable[int], most: int | None = None
) -> dict[str, int]:
    """Sums of times by their keys, the longest first; what has no key is left out.

    Args:
        keys, ns: of each time. most: sums that are kept; None for all.
    """
    spent: Counter[str] = Counter()
    for key, each in zip(keys, ns, strict=True):
        if key is not None:
            spent[key] += each
    return dict(spent.most_common(most))
