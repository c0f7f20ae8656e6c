"""What causes cost a step: blocks of steps with and without them, timed in turns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import comb
from statistics import fmean, median
from typing import Any

from benchmarks.slowbench.cases import Case, Placed

Block = Mapping[str, Any]
FELT_SHARE, FELT_MS = 0.05, 0.3
"""A cause is felt where the step gets longer by more than both."""
LATE, LATE_BY = "late", 0.1
"""A control is timed with a host that is late by this part of each step, too."""
HIDDEN = 0.5
"""Part of that which a control may be longer by: a device that has enough to do hides it."""
NO_CONTROL = "no control"
CONFIDENCE = 0.93
"""Of intervals, at least. Five rounds have 0.9375 between the least and the most of them."""


def difference(slow: Sequence[Block], without: Sequence[Block]) -> dict[str, float]:
    """What a cause costs a step: the median over rounds, in each of which both forms were timed.

    The interval is that of the sign test: it holds the median that further rounds would have,
    whatever the noise is like, as far as rounds do not depend on each other.
    """
    apart = sorted(a["ms"] - b["ms"] for a, b in zip(slow, without, strict=True))
    out = outside(len(apart))
    return {
        "ms": round(median(apart), 4),
        "low": round(apart[out], 4),
        "high": round(apart[-1 - out], 4),
    }


def outside(rounds: int) -> int:
    """How many of so many sorted differences lie outside an interval of `CONFIDENCE`, at each end.

    The median lies below the least of n with a chance of 2**-n, below the one after it with
    (1 + n) 2**-n and so on (David and Nagaraja, Order Statistics, 7.1).
    """
    out = 0
    while 2 * sum(comb(rounds, k) for k in range(out + 2)) <= (1 - CONFIDENCE) * 2**rounds:
        out += 1
    return out


def mean_ms(blocks: Sequence[Block]) -> float:
    """Of a step of some blocks."""
    return round(fmean(block["ms"] for block in blocks), 4)


def is_felt(low_ms: float, healthy_ms: float) -> bool:
    """Whether a step is longer by enough, even by the least that it may be."""
    return low_ms > max(FELT_SHARE * healthy_ms, FELT_MS)


def waits_for_host(blocks: Mapping[str, Sequence[Block]]) -> str | None:
    """Why a case without a cause is no healthy one, or None.

    Its device has to be what its step waits for. So a host that is late for each step must not make
    it longer, as it does where the host or a loader is what it waits for.

    Args:
        blocks: of the case, and late ones; a CPU has none.
    """
    if not blocks.get(LATE):
        return None
    longer = difference(blocks[LATE], blocks["slow"])["ms"]
    late = median(block["late_ms"] for block in blocks[LATE])
    if longer <= HIDDEN * late:
        return None
    return f"{NO_CONTROL}: {late:.2f} ms of its host make a step {longer:.2f} ms longer"


def costs(case: Case, blocks: Mapping[str, Sequence[Block]]) -> dict[str, Any]:
    """What the causes of a case cost, from its blocks: fields of its row."""
    slow = blocks["slow"]
    healthy = blocks.get("healthy", slow)
    found: dict[str, Any] = {"slow_ms": mean_ms(slow), "healthy_ms": mean_ms(healthy)}
    causes = []
    for placed in case.causes:
        without = blocks.get(_without(case, placed), healthy)
        causes.append({"id": placed.cause, **difference(slow, without)})
    felt = [is_felt(cause["low"], found["healthy_ms"]) for cause in causes]
    return {**found, "causes": causes, "felt": any(felt), "each_felt": felt}


def _without(case: Case, placed: Placed) -> str:
    # What a cause of two costs is what goes away without it; the other one stays.
    return f"without {placed.cause}" if len(case.causes) > 1 else "healthy"
