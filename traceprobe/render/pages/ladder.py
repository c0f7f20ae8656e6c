"""A ladder told in sections."""

from __future__ import annotations

from collections.abc import Iterator

from traceprobe.formatting import NOT_OBSERVED, counted, pace, plus_minus, significant, times
from traceprobe.model.taxonomy import BOUND_LABELS, CLASS_LABELS
from traceprobe.records.comparison import scale_of
from traceprobe.records.ladder import Ladder, Rung, Suggestion
from traceprobe.render.document import Document, Section, Table, Text, Tone
from traceprobe.render.pages.comparison import (
    capitalized,
    named_inputs,
    phase_bars,
    runs_section,
    shares,
    traced_unit,
)
from traceprobe.render.savings import gain

MOST_CLASSES = 3
"""Classes that are named in a sentence."""


def document(ladder: Ladder) -> Document:
    """The ladder for all outputs."""
    points = [f"Limits now: {ladder.limits}"] if ladder.limits else []
    points += [f"Next: {_saving(s)}" for s in ladder.suggestions]
    points += [f"Not measured: {m.label}: {m.reason}" for m in ladder.missing]
    return Document(
        kind=ladder.kind,
        title=_title(ladder),
        tone=_whole_tone(ladder),
        headline=ladder.headline,
        points=points,
        cautions=_cautions(ladder),
        sections=list(_sections(ladder)),
        inputs=named_inputs([rung.run for rung in ladder.rungs]),
        version=ladder.traceprobe_version,
        json=ladder.to_json(),
    )


def _title(ladder: Ladder) -> str:
    """The gain of the whole ladder; where no rung is beyond the noise there is none."""
    name = f"{ladder.name}: " if ladder.name else ""
    changes = len(ladder.rungs) - 1
    if not changes:
        return f"{name}one rung, nothing to compare" if name else "One rung, nothing to compare"
    total = pace(ladder.rungs[-1].total_speedup) if _real(ladder) else "no measurable change"
    total = total if name else capitalized(total)
    return f"{name}{total} after {counted(changes, 'change')}"


def _real(ladder: Ladder) -> bool:
    return any(rung.step is not None and rung.step.real for rung in ladder.rungs)


def _whole_tone(ladder: Ladder) -> Tone:
    if not _real(ladder):
        return "plain"
    return "good" if ladder.rungs[-1].total_speedup > 1 else "bad"


def _cautions(ladder: Ladder) -> list[str]:
    """Each caution once, with the rungs that it is about; with none where it is about all."""
    about: dict[str, list[str]] = {}
    for rung in ladder.rungs:
        for caution in rung.cautions:
            about.setdefault(caution.message, []).append(rung.run.label)
    every = len(ladder.rungs) - 1
    return [
        message if len(labels) == every > 1 else f"{', '.join(labels)}: {message}"
        for message, labels in about.items()
    ]


def _sections(ladder: Ladder) -> Iterator[Section]:
    runs = [rung.run for rung in ladder.rungs]
    scales = [scale_of(run, ladder.per) for run in runs]
    yield Section(
        "rungs",
        "What each rung gained",
        blocks=[
            phase_bars(runs, scales, traced_unit(runs, ladder.per)),
            _table(ladder),
            *([Text(changed)] if (changed := [*_changed(ladder)]) else []),
        ],
        help="Each bar is one traced step. A gain is the ratio of throughputs, to the rung before "
        "and in total to the first; where the change of the step is not larger than its noise, no "
        "gain is told.",
    )
    if ladder.suggestions:
        advice = [f"{s.title}: {s.advice}" for s in ladder.suggestions]
        yield Section("next", "What to try next", blocks=[Text(advice)])
    if ladder.missing:
        rows = [[m.label, m.change, m.reason] for m in ladder.missing]
        table = Table("Rungs that were not measured", ("rung", "change", "why"), rows)
        yield Section("missing", "Not measured", blocks=[table], folded=True, brief=False)
    yield Section(
        "details",
        "What holds each rung back",
        blocks=[shares(runs)],
        folded=True,
        brief=False,
    )
    yield runs_section(runs)


def _saving(s: Suggestion) -> str:
    """A suggestion and what it gives."""
    faster = f", {pace(s.speedup)}" if s.speedup > 1 else ""
    return f"{s.title}: {gain(s.predicted, s.saving_ms_per_step)}{faster}"


def _changed(ladder: Ladder) -> Iterator[str]:
    """What a rung did to the classes of a step."""
    for rung in ladder.rungs:
        if rung.classes:
            parts = [
                f"{CLASS_LABELS[c.name]} {plus_minus(c.delta)} ms"
                for c in rung.classes[:MOST_CLASSES]
            ]
            yield f"{rung.run.label}: {', '.join(parts)}"


def _table(ladder: Ladder) -> Table:
    head = ("rung", f"ms per {ladder.per}", "gain", "in total", "bound")
    rows = [_row(ladder, rung) for rung in ladder.rungs]
    tones: list[Tone] = [_tone(rung) for rung in ladder.rungs]
    caption = "The rungs in order"
    return Table(caption, head, rows, frozenset({1, 2, 3}), tones, most=len(rows))


def _row(ladder: Ladder, rung: Rung) -> list[str]:
    run, step = rung.run, rung.step
    told = rung.change not in ("", run.label) and rung.speedup is not None
    if rung.speedup is None:
        gain = NOT_OBSERVED
    else:
        gain = times(rung.speedup) if step is not None and step.real else "noise"
    return [
        f"{run.label}: {rung.change}" if told else run.label,
        significant(run.step_ms * scale_of(run, ladder.per)),
        gain,
        times(rung.total_speedup),
        BOUND_LABELS[run.bound],
    ]


def _tone(rung: Rung) -> Tone:
    if rung.step is None or not rung.step.real or rung.speedup is None:
        return "plain"
    return "good" if rung.speedup > 1 else "bad"
