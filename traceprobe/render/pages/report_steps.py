"""How long the used steps of a rank take: a histogram."""

from __future__ import annotations

import math
from itertools import pairwise

import msgspec

from traceprobe.formatting import significant
from traceprobe.records.rank import Rank
from traceprobe.render.charts import specification
from traceprobe.render.document import Chart, Table

FEWEST = 5
"""Steps below which a distribution shows nothing that the picture of every step does not."""
MAX_BINS = 40
MAX_TICKS = 5
"""Lines across a chart of counts, which has no use for fractions."""
TAIL = 1.5
"""A step this many times the median is slow enough to be mentioned."""


class Histogram(msgspec.Struct, frozen=True):
    """Steps by duration. Bin `i` holds `counts[i]` steps from `edges[i]` to `edges[i + 1]` ms."""

    edges: list[float]
    counts: list[int]
    steps_ms: list[float]


def histogram(rank: Rank) -> Histogram | None:
    """The steps that the summary uses; None where they are too few."""
    times = sorted(
        (i.end_ns - i.start_ns) / 1e6
        for i in rank.iterations
        if i.used and i.start_ns is not None and i.end_ns is not None
    )
    if len(times) < FEWEST:
        return None
    low, high = times[0], times[-1]
    # As narrow as the steps allow, but a spread of nothing is one bin and not forty.
    count = min(MAX_BINS, 2 * math.isqrt(len(times)) + 1) if high > low else 1
    width = (high - low) / count or low * 0.01 or 1.0
    counts = [0] * count
    for time in times:
        counts[min(int((time - low) / width), count - 1)] += 1
    return Histogram([low + k * width for k in range(count + 1)], counts, times)


def steps_chart(rank: Rank) -> Chart | None:
    """Steps by duration, with lines at the median and where the outer tenths begin."""
    found, step = histogram(rank), rank.summary.step_ms
    if found is None or step is None:
        return None
    spec = specification("steps")
    most = max(found.counts)
    spec["layer"][0]["encoding"]["y"]["axis"]["values"] = [
        *range(0, most + 1, -(-most // MAX_TICKS))
    ]
    # The texts would lie on each other where the steps are alike: then the median alone.
    spread = step.p90 - step.p10 > 0.2 * (found.edges[-1] - found.edges[0])
    named = {"median": step.p50, **({"p10": step.p10, "p90": step.p90} if spread else {})}
    ends = [(significant(low), significant(high)) for low, high in pairwise(found.edges)]
    rows = [
        [low, high, str(count)]
        for (low, high), count in zip(ends, found.counts, strict=True)
        if count
    ]
    return Chart(
        id=f"chart-steps-{rank.rank}",
        caption="How long a step takes",
        summary=histogram_summary(found, rank),
        spec=spec,
        data={
            "bins": {
                "from": [round(edge, 6) for edge in found.edges[:-1]],
                "to": [round(edge, 6) for edge in found.edges[1:]],
                "steps": list(found.counts),
                "range": [f"{low} to {high} ms" for low, high in ends],
            },
            "marks": {"what": list(named), "ms": list(named.values())},
        },
        table=Table(
            "Steps by duration", ["from (ms)", "to (ms)", "steps"], rows, frozenset({0, 1, 2})
        ),
    )


def histogram_summary(found: Histogram, rank: Rank) -> str:
    """The spread in words, with what is slow."""
    times, step = found.steps_ms, rank.summary.step_ms
    middle = step.p50 if step is not None else times[len(times) // 2]
    words = (
        f"{len(times)} steps from {significant(times[0])} to {significant(times[-1])} ms,"
        f" the median {significant(middle)} ms."
    )
    slow = [time for time in times if time > TAIL * middle]
    if slow:
        part = sum(slow) / sum(times)
        are = "step is" if len(slow) == 1 else "steps are"
        words += (
            f" {len(slow)} {are} more than {TAIL:g} times as long as that and take"
            f" {100 * part:.0f} % of the time."
        )
    return words
