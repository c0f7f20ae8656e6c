"""A ladder told in sections."""

from __future__ import annotations

from collections.abc import Iterator

from traceprobe.formatting import NOT_OBSERVED, plus_minus, significant
from traceprobe.model.taxonomy import CLASS_LABELS
from traceprobe.records.comparison import scale_of
from traceprobe.records.ladder import Ladder, Rung
from traceprobe.render.document import Document, Section, Table, Tone
from traceprobe.render.pages.comparison import named_inputs, phase_bars, shares, table_of

MOST_CLASSES = 3
"""Classes that are named in a row of the table."""


def document(ladder: Ladder) -> Document:
    """The ladder for all outputs."""
    name = f"{ladder.name}: " if ladder.name else ""
    cautions = [f"{rung.run.label}: {c.message}" for rung in ladder.rungs for c in rung.cautions]
    points = [f"limits now: {ladder.limits}"]
    points += [
        f"next: {s.title}, up to {significant(s.saving_ms_per_step)} ms a step "
        f"({significant(s.speedup)}×). {s.advice}"
        for s in ladder.suggestions
    ]
    return Document(
        kind=ladder.kind,
        title=f"{name}{len(ladder.rungs)} rungs, {significant(ladder.rungs[-1].total_speedup)}×",
        tone="good" if ladder.rungs[-1].total_speedup > 1 else "plain",
        headline=ladder.headline,
        points=points,
        cautions=cautions,
        sections=list(_sections(ladder)),
        inputs=named_inputs([rung.run for rung in ladder.rungs]),
        version=ladder.traceprobe_version,
        json=ladder.to_json(),
    )


def _sections(ladder: Ladder) -> Iterator[Section]:
    runs = [rung.run for rung in ladder.rungs]
    yield Section(
        "rungs",
        "What each rung gained",
        blocks=[_table(ladder)],
        help="Speed-up is the ratio of throughputs, to the rung before and to the first. It is "
        "marked where the change of the step is larger than its interval and the drift inside the "
        "runs.",
    )
    scales = [scale_of(run, ladder.per) for run in runs]
    yield Section(
        "phases",
        f"Where the time of a {ladder.per} goes",
        blocks=[phase_bars(runs, scales, f"ms per {ladder.per}")],
    )
    yield Section("shares", "What holds each rung back", blocks=[shares(runs)])
    for place, rung in enumerate(ladder.rungs[1:], start=2):
        if not rung.explanation:
            continue
        yield Section(
            f"rung-{place}",
            f"Rung {place}: {rung.change}",
            text=rung.explanation,
            folded=True,
            brief=False,
        )
    if ladder.missing:
        rows = [[m.label, m.change, m.reason] for m in ladder.missing]
        table = Table("Rungs that were not measured", ("rung", "change", "why"), rows)
        yield Section("missing", "Not measured", blocks=[table])
    yield Section("runs", "The runs", blocks=[table_of(runs)], folded=True)


def _table(ladder: Ladder) -> Table:
    head = (
        "rung",
        "change",
        f"ms per {ladder.per}",
        "samples/s" if _all_sampled(ladder) else "steps/s",
        "speed-up",
        "in total",
        "what changed, ms",
    )
    rows = [_row(ladder, rung) for rung in ladder.rungs]
    tones: list[Tone] = [_tone(rung) for rung in ladder.rungs]
    caption = "The rungs in order"
    return Table(caption, head, rows, frozenset({2, 3, 4, 5}), tones, most=len(rows))


def _all_sampled(ladder: Ladder) -> bool:
    return all(rung.run.samples_per_second is not None for rung in ladder.rungs)


def _row(ladder: Ladder, rung: Rung) -> list[str]:
    run = rung.run
    rate = run.samples_per_second if _all_sampled(ladder) else 1e3 / run.step_ms
    real = rung.step is not None and rung.step.real
    return [
        run.label,
        rung.change,
        significant(run.step_ms * scale_of(run, ladder.per)),
        significant(rate or 0.0),
        NOT_OBSERVED
        if rung.speedup is None
        else f"{significant(rung.speedup)}×{'' if real else ' (noise)'}",
        f"{significant(rung.total_speedup)}×",
        ", ".join(
            f"{CLASS_LABELS[c.name]} {plus_minus(c.delta)}" for c in rung.classes[:MOST_CLASSES]
        )
        or NOT_OBSERVED,
    ]


def _tone(rung: Rung) -> Tone:
    if rung.step is None or not rung.step.real or rung.speedup is None:
        return "plain"
    return "good" if rung.speedup > 1 else "bad"
