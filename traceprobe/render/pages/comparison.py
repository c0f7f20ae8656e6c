"""A comparison told in sections."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from traceprobe.formatting import NOT_OBSERVED, number, percent, plus_minus, significant
from traceprobe.model.taxonomy import (
    BOUND_LABELS,
    CLASS_LABELS,
    PARTITION,
    SHARE_LABELS,
    SHARES,
    label_of,
)
from traceprobe.records.comparison import Change, Comparison, RunSummary, scale_of
from traceprobe.render.charts import Line, curves
from traceprobe.render.colours import CLASS_COLOURS
from traceprobe.render.document import Bar, Bars, Document, Piece, Section, Table, Tone

DIRECTION_TONES: dict[str, Tone] = {
    "slower": "bad",
    "faster": "good",
    "unchanged": "plain",
    "unknown": "unclear",
}
GATE_WORDS = {
    "pass": "Gate passed",
    "regression": "Gate failed: regression",
    "inconclusive": "Gate inconclusive",
}
GATE_TONES: dict[str, Tone] = {"pass": "good", "regression": "bad", "inconclusive": "unclear"}


def document(comparison: Comparison) -> Document:
    """The comparison for all outputs."""
    gate = comparison.gate
    first, _, rest = comparison.headline.partition(": ")
    tone = DIRECTION_TONES[comparison.direction]
    points = list(comparison.explanation)
    if gate is not None:
        points = [f"{GATE_WORDS[gate.decision]}: {gate.reason}", *points]
        tone = GATE_TONES[gate.decision]
    return Document(
        kind=comparison.kind,
        title=f"{first} ({comparison.base.label} → {comparison.new.label})",
        tone=tone,
        headline=rest,
        points=points,
        cautions=[caution.message for caution in comparison.cautions],
        sections=list(_sections(comparison)),
        inputs=named_inputs([comparison.base, comparison.new]),
        version=comparison.traceprobe_version,
        json=comparison.to_json(),
    )


def _sections(c: Comparison) -> Iterator[Section]:
    runs = (c.base, c.new)
    yield Section(
        "step",
        f"Where the time of a {c.per} goes",
        blocks=[
            phase_bars(runs, [scale_of(run, c.per) for run in runs], f"ms per {c.per}"),
            changes(
                f"Classes of a traced step, ms per {c.per}", _by_size(c.classes, c), CLASS_LABELS
            ),
        ],
        help="Each bar is one step of a run on the GPU, cut into what the GPU did at each instant. "
        "A change is marked where its interval leaves out 0 and it exceeds the drift, which is how "
        "much the same quantity differs between the thirds of a run.",
    )
    yield Section(
        "shares",
        "What holds the runs back",
        blocks=[shares(runs)],
        help="The shares of the verdict: corrected for what the profiler did to the step.",
    )
    if c.measures:
        yield Section(
            "measures",
            "Overlap, collectives, launches",
            blocks=[changes("Quantities that are no part of the step", _telling(c.measures), {})],
        )
    if c.kernels:
        yield Section(
            "kernels",
            "Kernels that appeared, vanished or changed",
            blocks=[_kernels(c)],
            help="From the lists of the longest kernels of both reports. Where a kernel is in one "
            "list only, the other run spends less on it than on the shortest in its list.",
        )
    if c.settings:
        rows = [[name, _value(a), _value(b)] for name, (a, b) in c.settings.items()]
        table = Table("Settings that differ", ("setting", "base", "new"), rows)
        yield Section("settings", "Settings that differ", blocks=[table])
    lines = [
        Line(run.label, [(float(k), ms) for k, ms in enumerate(steps)])
        for run, steps in zip(runs, c.steps_ms, strict=True)
    ]
    steps = curves("chart-order", "Traced step times in order", "step", "ms", lines)
    yield Section("order", "Steps in order", blocks=[steps], folded=True, brief=False)
    yield Section("runs", "The runs", blocks=[table_of(runs)])


def named_inputs(runs: Sequence[RunSummary]) -> list[str]:
    """The traces of each run with its label, as those of different runs often have one name."""
    return [f"{run.label}: {', '.join(run.inputs)}" for run in runs]


def phase_bars(runs: Sequence[RunSummary], scales: Sequence[float], unit: str) -> Bars:
    """Exclusive classes of a traced step of each run, times its scale."""
    bars = []
    for run, scale in zip(runs, scales, strict=True):
        pieces = [
            Piece(CLASS_LABELS[name], CLASS_COLOURS[name], value * scale)
            for name in PARTITION
            if (value := run.partition_ms.get(name))
        ]
        text = f"{significant(run.traced_step_ms * scale)} ms"
        bars.append(Bar(run.label, pieces, text))
    return Bars("Exclusive classes of a traced step", unit, bars)


def shares(runs: Sequence[RunSummary]) -> Table:
    """Shares of the verdict, a column for each run."""
    rows = [
        [SHARE_LABELS[name], *(percent(run.shares.get(name)) for run in runs)] for name in SHARES
    ]
    rows.append(["bound", *(bound(run) for run in runs)])
    head = ("share of the step", *(run.label for run in runs))
    return Table("Shares of the verdict", head, rows, frozenset(range(1, len(runs) + 1)))


def bound(run: RunSummary) -> str:
    """What bounds a run, and the runner-up."""
    second = f", then {label_of(run.secondary)}" if run.secondary else ""
    return f"{BOUND_LABELS[run.bound]}{second}"


def table_of(runs: Sequence[RunSummary]) -> Table:
    """The facts of each run, a row each."""
    head = ("run", "step ms", "from", "steps", "ranks", "samples/s", "tokens/s", "device", "bound")
    rows = [
        [
            run.label,
            significant(run.step_ms),
            "without profiler" if run.basis == "unprofiled" else "trace",
            str(run.steps),
            str(run.world_size),
            number(run.samples_per_second),
            number(run.tokens_per_second),
            ", ".join(run.devices),
            bound(run),
        ]
        for run in runs
    ]
    return Table("The runs", head, rows, frozenset({1, 3, 4, 5, 6}))


def changes(caption: str, found: Sequence[Change], words: dict[str, str]) -> Table:
    """Changes with their intervals."""
    head = ("", "base", "new", "change", "interval", "drift", "real")
    rows = [
        [
            words.get(change.name, change.name)
            + ("" if change.unit == "ms" else f" ({change.unit})"),
            number(change.base),
            number(change.new),
            plus_minus(change.delta),
            NOT_OBSERVED
            if change.low is None
            else f"{plus_minus(change.low)} to {plus_minus(change.high)}",
            number(change.floor),
            "yes" if change.real else "no",
        ]
        for change in found
    ]
    tones: list[Tone] = ["plain" if not change.real else _tone(change) for change in found]
    return Table(caption, head, rows, frozenset({1, 2, 3, 4, 5}), tones)


def _tone(change: Change) -> Tone:
    if change.unit != "ms" or change.delta is None:
        return "plain"
    return "bad" if change.delta > 0 else "good"


def _by_size(found: Sequence[Change], c: Comparison) -> list[Change]:
    """The step, then its classes, largest change first; those that neither run has are left out."""
    there = [change for change in found if change.base or change.new]
    there.sort(key=lambda change: -abs(change.delta or 0))
    rows = [c.traced_step, *there]
    if c.step == c.traced_step:
        return rows
    return [replace(c.step, name="step without profiler"), *rows]


def _telling(measures: Sequence[Change]) -> list[Change]:
    """Measures that either run has; busy time only of what overlaps: classes show the rest."""
    overlapping = ("busy communication", "busy h2d", "busy d2h", "busy memory")
    return [
        change
        for change in measures
        if (change.base or change.new)
        and (not change.name.startswith("busy ") or change.name in overlapping)
    ]


def _kernels(c: Comparison) -> Table:
    head = ("kernel", "phase", "", f"base ms per {c.per}", f"new ms per {c.per}", "calls")
    rows = [
        [
            kernel.name,
            kernel.phase,
            kernel.state,
            number(kernel.base_ms),
            number(kernel.new_ms),
            f"{number(kernel.base_count)} → {number(kernel.new_count)}",
        ]
        for kernel in c.kernels
    ]
    return Table("Kernels of both runs", head, rows, frozenset({3, 4, 5}), most=6)


def _value(value: object) -> str:
    return NOT_OBSERVED if value is None else str(value)
