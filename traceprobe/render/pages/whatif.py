"""A prediction told in sections."""

from __future__ import annotations

from collections.abc import Iterator

from traceprobe.formatting import NOT_OBSERVED, number, percent, significant
from traceprobe.records.whatif import Buckets, Predicted, WhatIf
from traceprobe.render.document import Document, Section, Table, Tone
from traceprobe.render.pages.comparison import named_inputs, phase_bars, shares, table_of

SAME = 0.01
"""Relative change of throughput up to which a change is told as none."""


def document(found: WhatIf) -> Document:
    """The prediction for all outputs."""
    asked = found.asked
    title = "What single changes would give" if asked is None else f"{significant(asked.speedup)}×"
    return Document(
        kind=found.kind,
        title=f"{title} ({found.run.label})",
        tone="plain" if asked is None else _tone(asked),
        headline=found.headline,
        cautions=[caution.message for caution in found.cautions],
        sections=list(_sections(found)),
        inputs=named_inputs([found.run]),
        version=found.traceprobe_version,
        json=found.to_json(),
    )


def _tone(predicted: Predicted) -> Tone:
    if abs(predicted.speedup - 1) <= SAME:
        return "plain"
    return "good" if predicted.speedup > 1 else "bad"


def _sections(found: WhatIf) -> Iterator[Section]:
    if found.asked is not None:
        rows = [found.asked, *(found.alone if len(found.asked.changes) > 1 else [])]
        title = "The changes, together and alone"
    else:
        rows, title = found.alone, "Single changes"
    yield Section(
        "changes",
        title,
        blocks=[_table(rows, found.now_ms)],
        help="The recorded iterations are played again: the host launches in the order in which it "
        "did, each stream works in order, and who waited for whom waits again. With a change, "
        "other things may become the limit; so changes do not add up.",
    )
    if found.buckets is not None:
        yield Section(
            "buckets",
            "Buckets of gradients",
            text=[_links(found.buckets)],
            blocks=[_buckets(found.buckets)],
        )
    yield Section("calibration", "How far to trust it", text=list(_calibration(found)))
    yield Section(
        "run",
        "The run as it is",
        blocks=[
            phase_bars([found.run], [1.0], "ms per step"),
            shares([found.run]),
            table_of([found.run]),
        ],
        folded=True,
        brief=False,
    )


def _table(rows: list[Predicted], now_ms: float) -> Table:
    cells = [
        [
            ", ".join(row.changes),
            significant(row.step_ms),
            f"{significant(row.low_ms)} to {significant(row.high_ms)}",
            f"{significant(row.speedup)}×",
        ]
        for row in rows
    ]
    head = ("change", "ms per step", "between", "throughput")
    caption = f"Predicted steps; now {significant(now_ms)} ms"
    tones = [_tone(row) for row in rows]
    return Table(caption, head, cells, frozenset({1, 2, 3}), tones, most=len(rows))


def _links(buckets: Buckets) -> str:
    latency = buckets.latency_us
    hop = f", {significant(latency)} µs a hop" if latency is not None else ""
    return (
        f"The links as the messages of the run show them: {significant(buckets.gbps)} GB/s{hop} "
        f"(error of the fit {percent(buckets.fit_error)})."
    )


def _buckets(buckets: Buckets) -> Table:
    before, after = buckets.before_bytes, buckets.bytes
    rows = [
        [
            str(place + 1),
            number(before[place] / 1e6) if place < len(before) else NOT_OBSERVED,
            number(after[place] / 1e6) if place < len(after) else NOT_OBSERVED,
        ]
        for place in range(max(len(before), len(after)))
    ]
    caption = "Messages in order, MB"
    return Table(caption, ("message", "now", "then"), rows, frozenset({0, 1, 2}))


def _calibration(found: WhatIf) -> Iterator[str]:
    c = found.calibration
    yield (
        f"Played without a change, the recorded iterations take {significant(c.played_ms)} ms a "
        f"step; the run takes {significant(found.now_ms)} ms."
    )
    if c.host_known:
        yield f"So the host's own time was scaled to {percent(c.host)} of what was recorded."
    elif c.host != 1:
        yield (
            "The step does not depend on the host; its time was taken to be "
            f"{percent(c.host)} of what was recorded, as the profiler slows it."
        )
    if c.collectives != 1:
        yield f"Collectives were scaled to {percent(c.collectives)}."
    if round(c.rest, 3) != 1:
        yield f"What is left is a factor of {c.rest:.3f} on every prediction."
