"""A prediction told in sections."""

from __future__ import annotations

from collections.abc import Iterator

from traceprobe.formatting import NOT_OBSERVED, number, pace, percent, significant, times
from traceprobe.records.whatif import NOTHING, SAME, Buckets, Predicted, WhatIf
from traceprobe.render.colours import OTHER_COLOUR, SHARE_COLOURS
from traceprobe.render.document import Bar, Bars, Block, Document, Piece, Section, Table, Text, Tone
from traceprobe.render.pages.comparison import named_inputs, phase_bars, shares, table_of

MORE = 1.5
"""A predicted step that takes so much longer than its throughput says holds several batches."""


def document(found: WhatIf) -> Document:
    """The prediction for all outputs."""
    best = _best(found)
    return Document(
        kind=found.kind,
        title=_title(found),
        secondary=found.run.label,
        tone="plain" if found.asked is None else _tone(found.asked),
        headline=found.headline,
        points=list(_points(found, best)),
        cautions=[caution.message for caution in found.cautions],
        sections=list(_sections(found)),
        inputs=named_inputs([found.run]),
        version=found.traceprobe_version,
        json=found.to_json(),
    )


def _best(found: WhatIf) -> Predicted | None:
    """What was asked for, or else the best of the single changes."""
    return found.asked or next(iter(found.alone), None)


def _title(found: WhatIf) -> str:
    best = _best(found)
    if best is None or not _has_effect(best) or (found.asked is None and best.speedup < 1):
        return "No effect" if found.asked is not None else "No single change helps"
    up_to = "Up to " if found.asked is None else ""
    return f"{up_to}{pace(best.speedup)}"


def _has_effect(predicted: Predicted) -> bool:
    return abs(predicted.speedup - 1) > SAME


def _tone(predicted: Predicted) -> Tone:
    if not _has_effect(predicted):
        return "plain"
    return "good" if predicted.speedup > 1 else "bad"


def _points(found: WhatIf, best: Predicted | None) -> Iterator[str]:
    """What the prediction assumes, and how far it may be off."""
    yield (
        "Predicted by replaying the recorded iterations: everything but what is changed takes "
        "as long as it did"
    )
    c = found.calibration
    if f"{c.played_ms:.3g}" != f"{found.now_ms:.3g}":
        yield (
            f"Played without a change they take {significant(c.played_ms)} ms a step; the replay "
            f"is fitted to the {significant(found.now_ms)} ms that the run takes"
        )
    if best is not None and best.low_ms <= NOTHING * best.step_ms:
        yield (
            "The recorded steps differ too much for a lower bound: record more of them for a "
            "narrower interval"
        )


def _sections(found: WhatIf) -> Iterator[Section]:
    several = found.asked is not None and len(found.asked.changes) > 1
    if found.asked is not None:
        rows = [found.asked, *(found.alone if several else [])]
        title = "The changes, together and alone" if several else "The change"
    else:
        rows, title = found.alone, "Single changes"
    # What was asked for is told even where it changes nothing.
    told = [row for row in rows if row is found.asked or _has_effect(row)]
    none = [row for row in rows if row not in told]
    words = ", ".join(change for row in none for change in row.changes)
    blocks: list[Block] = []
    if told:
        blocks += [_bars(told, found.now_ms), _table(told, found.now_ms)]
    if none:
        blocks.append(Text([f"No effect on the step{' alone' if several else ''}: {words}."]))
    yield Section(
        "changes",
        title,
        blocks=blocks,
        help="The recorded iterations are replayed: the host launches in the order in which it "
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
    yield Section(
        "calibration",
        "How far to trust it",
        text=list(_calibration(found)),
        folded=True,
        brief=False,
    )
    yield Section(
        "run",
        "The run as it is",
        blocks=[
            phase_bars([found.run], [1.0], "ms per step"),
            shares([found.run]),
            *table_of([found.run]),
        ],
        folded=True,
        brief=False,
    )


def _bars(rows: list[Predicted], now_ms: float) -> Bars:
    """What the same work takes now and with each change; steps of several batches by the batch."""
    colour = SHARE_COLOURS["compute"]
    bars = [Bar("now", [Piece("step", OTHER_COLOUR, now_ms)], f"{significant(now_ms)} ms")]
    for row in rows:
        ms = now_ms / row.speedup
        label = " and ".join(row.changes)
        bars.append(Bar(label, [Piece("predicted step", colour, ms)], f"{significant(ms)} ms"))
    several = any(row.step_ms > MORE * now_ms / row.speedup for row in rows)
    unit = "ms per batch" if several else "ms per step"
    return Bars("Now and with each change", unit, bars)


def _table(rows: list[Predicted], now_ms: float) -> Table:
    cells = [
        [
            ", ".join(row.changes),
            significant(row.step_ms),
            f"up to {significant(row.high_ms)}"
            if row.low_ms <= NOTHING * row.step_ms
            else f"{significant(row.low_ms)} to {significant(row.high_ms)}",
            times(row.speedup),
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
    if c.held_up != 1:
        yield f"Its pauses and stalls were taken to last {percent(c.held_up)} of what they did."
    if c.collectives != 1:
        yield f"Collectives were scaled to {percent(c.collectives)}."
    if round(c.rest, 3) != 1:
        yield f"What is left is a factor of {c.rest:.3f} on every prediction."
