"""A scaling curve told in sections."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter

from traceprobe.formatting import NOT_OBSERVED, counted, number, percent, plus_minus, significant
from traceprobe.model.taxonomy import LOSS_LABELS, LOSSES
from traceprobe.records.scaling import Fit, Prediction, Scaling, ScalingPoint
from traceprobe.render.charts import Line, curves
from traceprobe.render.colours import LOSS_COLOURS
from traceprobe.render.document import Bar, Bars, Chart, Document, Piece, Section, Table, Tone
from traceprobe.render.pages.comparison import (
    capitalized,
    named_inputs,
    phase_bars,
    runs_section,
    shares,
)

GOOD = 0.9
"""Efficiency from which a curve is good."""
BAD = 0.7
"""Efficiency below which it is bad."""
Value = Callable[[ScalingPoint | Prediction], float | None]

LOOPS = {"full": "whole loop", "synthetic": "on one batch"}


def document(scaling: Scaling) -> Document:
    """The scaling curve for all outputs."""
    first, last = scaling.points[0], scaling.points[-1]
    return Document(
        kind=scaling.kind,
        title=f"{counted(last.world_size, 'rank')} do the work of "
        f"{significant(last.efficiency * last.world_size)}",
        secondary=f"{scaling.mode} scaling from {counted(first.world_size, 'rank')}",
        tone=_tone(last.efficiency),
        headline=capitalized(scaling.headline.partition(": ")[2]),
        points=scaling.explanation,
        cautions=[caution.message for caution in scaling.cautions],
        sections=list(_sections(scaling)),
        inputs=named_inputs([point.run for point in scaling.points]),
        version=scaling.traceprobe_version,
        json=scaling.to_json(),
    )


def _tone(efficiency: float) -> Tone:
    if efficiency >= GOOD:
        return "good"
    return "plain" if efficiency >= BAD else "bad"


def _sections(s: Scaling) -> Iterator[Section]:
    runs = [point.run for point in s.points]
    yield Section(
        "curve",
        f"{s.mode.capitalize()} scaling",
        text=[f"{capitalized(s.why_mode)}."],
        blocks=[_efficiency(s), *([_rates(s)] if _sampled(s) else [])],
        brief=False,
    )
    yield Section(
        "efficiency",
        "Efficiency",
        blocks=[_efficiencies(s)],
        help="With weak scaling each rank keeps its work and the ideal step stays as long as that "
        "of the smallest run. With strong scaling all ranks share the work and the ideal step gets "
        "shorter as their number grows. Efficiency is the ideal step over the measured one. Its "
        "interval is from the spread of the traced steps.",
    )
    yield Section(
        "losses",
        "What is lost against the ideal step",
        blocks=[_loss_bars(s.points), _losses(s.points)],
        help="Each part of a step less that part of the ideal step; the parts sum to the loss. A "
        "part may be negative: then more ranks spend less on it. Computation grows where kernels "
        "share the GPU with collectives, where gradients are copied into buckets, and where small "
        "batches use the GPU worse.",
    )
    if any(point.synchronisation for point in s.points if point.world_size > 1):
        yield Section(
            "synchronisation",
            "With and without gradient synchronisation",
            blocks=[_synchronisation(s)],
            help="Measured by ablation, without a profiler. What goes away with the "
            "synchronisation is more than its exposed transfer: copies into buckets, slower "
            "kernels beside it, and its own work on the host.",
            folded=True,
            brief=False,
        )
    if s.predictions or s.held_out:
        yield Section(
            "ahead",
            "More ranks, by a model",
            text=_unpredicted(s),
            blocks=[*([found] if (found := _predicted(s)).rows else []), *_checks(s)],
            help="The step of the nearest measured run, with its transfers as much longer as the "
            "formula says: volume times size over bandwidth B, plus hops times latency. Ring: "
            "volume 2(n−1)/n, 2(n−1) hops. Tree: volume 2, 2·log2(n) hops. What was exposed grows "
            "with it, and so does what exceeds the backward pass. The interval is between ring "
            "and tree. A held-out run is predicted from the other runs named.",
        )
    yield Section(
        "step",
        "Where the time of a step goes",
        blocks=[phase_bars(runs, [1.0] * len(runs), "ms per step")],
        help="Each bar is one traced step on the GPU, cut into what the GPU did at each instant.",
        folded=True,
        brief=False,
    )
    yield Section(
        "shares", "What holds the runs back", blocks=[shares(runs)], folded=True, brief=False
    )
    yield runs_section(runs)


def _sampled(s: Scaling) -> bool:
    """Whether rates count samples or tokens; steps of ranks a second say nothing to anybody."""
    return s.work in ("samples", "tokens")


def _rates(s: Scaling) -> Chart | Table:
    per_second = attrgetter("per_second")
    lines = [
        Line("measured", _points(s.points, per_second)),
        Line("ideal", [(float(n), rate) for n, rate in _ideal(s)], dashed=True),
    ]
    for loop, word in LOOPS.items():
        bare = [
            (float(p.world_size), found.without_per_second)
            for p in s.points
            for found in p.synchronisation
            if found.loop == loop
        ]
        if len(bare) > 1:
            lines.append(Line(f"without synchronisation, {word}", bare))
            break  # the other is nearly the same line
    lines += _modelled(s, per_second)
    caption = f"{s.work.capitalize()} per second"
    return curves("chart-rates", caption, "ranks", f"{s.work}/s", lines, log=True)


def _ideal(s: Scaling) -> list[tuple[int, float]]:
    """The rate of the smallest run, times its ranks."""
    first = s.points[0]
    sizes = {p.world_size for p in s.points} | {
        p.world_size for p in s.predictions if p.step_ms is not None
    }
    return [(n, first.per_second * n / first.world_size) for n in sorted(sizes)]


def _efficiency(s: Scaling) -> Chart | Table:
    def percentage(p: ScalingPoint | Prediction) -> float | None:
        return 100 * p.efficiency if p.efficiency else None

    lines = [
        Line("measured", _points(s.points, percentage)),
        Line("ideal", [(float(n), 100.0) for n, _ in _ideal(s)], dashed=True),
    ]
    lines += _modelled(s, percentage)
    return curves("chart-efficiency", "Efficiency", "ranks", "%", lines)


def _points(found: Sequence[ScalingPoint | Prediction], value: Value) -> list[tuple[float, float]]:
    """World sizes and their values, where these are known."""
    return [(float(p.world_size), y) for p in found if (y := value(p)) is not None]


def _modelled(s: Scaling, value: Value) -> list[Line]:
    """The model where it can be tested, from the smallest run on, and beyond the largest."""
    measured = _points(s.points, value)
    lines = []
    if held_out := _points(_held_out(s), value):
        lines.append(Line("predicted from smaller runs", [measured[0], *held_out], dashed=True))
    if ahead := _points(_ahead(s), value):
        lines.append(Line("model", [measured[-1], *ahead], dashed=True))
    return lines


def _held_out(s: Scaling) -> list[Prediction]:
    """What the smaller runs make of each measured size."""
    every = [held.prediction for held in s.held_out]
    return [p for p in every if max(p.sources) < p.world_size]


def _ahead(s: Scaling) -> list[Prediction]:
    """Sizes beyond the largest run."""
    return [p for p in s.predictions if p.world_size > s.points[-1].world_size]


def _efficiencies(s: Scaling) -> Table:
    columns = {
        "step ms": [significant(p.step_ms) for p in s.points],
        "ideal ms": [significant(p.ideal_step_ms) for p in s.points],
        **({f"{s.work}/s": [significant(p.per_second) for p in s.points]} if _sampled(s) else {}),
        "efficiency": [percent(p.efficiency) for p in s.points],
        "95 % interval": [
            NOT_OBSERVED
            if p.efficiency_low == p.efficiency_high
            else f"{100 * p.efficiency_low:.1f} to {percent(p.efficiency_high)}"
            for p in s.points
        ],
    }
    known = {name: cells for name, cells in columns.items() if {*cells} != {NOT_OBSERVED}}
    rows = [
        [str(p.world_size), *(cells[n] for cells in known.values())] for n, p in enumerate(s.points)
    ]
    tones = [_tone(p.efficiency) for p in s.points]
    head = ("ranks", *known)
    return Table("Efficiency by world size", head, rows, frozenset(range(len(head))), tones)


def _loss_bars(points: Sequence[ScalingPoint]) -> Bars:
    """Losses only: a part that got less has no length."""
    bars = []
    for point in points[1:]:
        pieces = [
            Piece(LOSS_LABELS[name], LOSS_COLOURS[name], ms)
            for name in LOSSES
            if (ms := point.losses_ms[name]) is not None and ms > 0
        ]
        text = f"{plus_minus(point.loss_ms)} ms in all"
        bars.append(Bar(f"{point.world_size} ranks", pieces, text))
    return Bars("What a step loses against the ideal", "ms per step", bars)


def _losses(points: Sequence[ScalingPoint]) -> Table:
    head = ("ms per step", *(f"{p.world_size} ranks" for p in points[1:]))
    last = points[-1].losses_ms
    rows = [["in all", *(plus_minus(p.loss_ms) for p in points[1:])]]
    rows += [
        [LOSS_LABELS[name], *(plus_minus(p.losses_ms[name]) for p in points[1:])]
        for name in sorted(LOSSES, key=lambda name: -abs(last[name] or 0))
        if any(p.losses_ms[name] for p in points[1:])
    ]
    rows.append(["transfer, hidden or not", *(number(p.transfer_ms) for p in points[1:])])
    return Table("Parts of the loss, by world size", head, rows, frozenset(range(1, len(points))))


def _synchronisation(s: Scaling) -> Table:
    head = ("ranks", "loop", "with ms", "without ms", "cost", f"{s.work}/s with", "without")
    rows = [
        [
            str(p.world_size),
            LOOPS[found.loop],
            significant(found.with_ms),
            significant(found.without_ms),
            percent(found.overhead),
            significant(found.with_per_second),
            significant(found.without_per_second),
        ]
        for p in s.points
        if p.world_size > 1
        for found in p.synchronisation
    ]
    caption = "Steps with and without gradient synchronisation"
    return Table(caption, head, rows, frozenset({0, 2, 3, 4, 5, 6}))


def _checks(s: Scaling) -> Iterator[Section]:
    """How the model does on the measured runs, and what it was fitted to; folded."""
    tables = [table for table in (_tested(s), _fits(s)) if table.rows]
    if tables:
        yield Section("", "How far to trust the model", blocks=tables, folded=True)


def _unpredicted(s: Scaling) -> list[str]:
    """What the model cannot say, a sentence for each reason."""
    every = [*s.predictions, *(held.prediction for held in s.held_out)]
    sizes: dict[tuple[str, str], list[int]] = {}
    for p in every:
        if p.reason is not None:
            sizes.setdefault((_listed(p.sources), p.reason), []).append(p.world_size)
    return [
        f"{_listed(found)} ranks cannot be predicted from {sources}: {reason}."
        for (sources, reason), found in sizes.items()
    ]


def _predicted(s: Scaling) -> Table:
    head = ("ranks", "step ms", "ring to tree", f"{s.work}/s", "efficiency", "transfer ms")
    rows = [
        [
            str(p.world_size),
            number(p.step_ms),
            _between(p),
            number(p.per_second),
            percent(p.efficiency),
            number(p.transfer_ms),
        ]
        for p in s.predictions
        if p.reason is None
    ]
    return Table("Predicted world sizes", head, rows, frozenset(range(6)))


def _tested(s: Scaling) -> Table:
    head = ("ranks", "from", "measured", "predicted", "error", "of transfer", "ring to tree")
    rows = [
        [
            str(h.prediction.world_size),
            _listed(h.prediction.sources),
            significant(h.step_ms),
            number(h.prediction.step_ms),
            _percentage(h.error),
            _percentage(h.transfer_error),
            _between(h.prediction),
        ]
        for h in s.held_out
        if h.prediction.reason is None
    ]
    caption = "Measured runs as the model has them, ms per step"
    return Table(caption, head, rows, frozenset({0, 2, 3, 4, 5, 6}))


def _fits(s: Scaling) -> Table:
    head = ("links", "ranks", "B GB/s", "latency µs", "error", "used")
    rows = [_fit(fit) for fit in s.fits]
    return Table("Links, fitted to the transfers", head, rows, frozenset({2, 3, 4}))


def _fit(fit: Fit) -> list[str]:
    return [
        f"{fit.algorithm}, {'between nodes' if fit.between_nodes else 'as measured'}",
        _listed(fit.world_sizes),
        significant(fit.gbps),
        number(fit.latency_us),
        percent(fit.error),
        "yes" if fit.chosen else "no",
    ]


def _listed(sizes: Sequence[int]) -> str:
    return ", ".join(map(str, sizes))


def _between(p: Prediction) -> str:
    if p.low_ms is None or p.high_ms is None:
        return NOT_OBSERVED
    return f"{significant(p.low_ms)} to {significant(p.high_ms)}"


def _percentage(value: float | None) -> str:
    return NOT_OBSERVED if value is None else f"{100 * value:+.1f} %"
