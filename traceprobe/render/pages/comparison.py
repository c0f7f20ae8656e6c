"""A comparison told in sections."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from traceprobe.formatting import NOT_OBSERVED, number, pace, plus_minus, significant
from traceprobe.model.taxonomy import (
    BOUND_LABELS,
    CLASS_LABELS,
    PARTITION,
    SHARE_LABELS,
    SHARES,
)
from traceprobe.records.comparison import (
    NOTABLE_SHARE,
    Change,
    Comparison,
    KernelState,
    RunSummary,
    scale_of,
)
from traceprobe.render.charts import Line, curves
from traceprobe.render.colours import CLASS_COLOURS, SHARE_COLOURS
from traceprobe.render.document import Bar, Bars, Document, Facts, Piece, Section, Table, Text, Tone
from traceprobe.render.kernel_names import short_name
from traceprobe.render.pages.comparison_operators import operator_section
from traceprobe.verdict.wording import runner_up

DIRECTION_TONES: dict[str, Tone] = {
    "slower": "bad",
    "faster": "good",
    "unchanged": "plain",
    "unknown": "unclear",
}
KERNEL_WORDS: dict[KernelState, str] = {
    "appeared": "new",
    "vanished": "gone",
    "slower": "slower",
    "faster": "faster",
}
KERNEL_TONES: dict[KernelState, Tone] = {
    "appeared": "bad",
    "vanished": "good",
    "slower": "bad",
    "faster": "good",
}
NUMBERS = ("step ms", "steps", "ranks", "samples/s", "tokens/s")
"""Columns of the table of runs that are aligned right."""
MOST_SETTINGS = 4
"""Settings that differ and that a sentence names."""
NO_SHARE = 0.0005
"""Shares below this, which would be told as 0.0 %, have no piece."""
MEASURE_LABELS = {
    "busy communication": "communication, hidden or not",
    "busy h2d": "host-to-device, hidden or not",
    "busy d2h": "device-to-host, hidden or not",
    "busy memory": "memory ops, hidden or not",
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
    tone = DIRECTION_TONES[comparison.direction]
    title, points = _title(comparison), list(comparison.explanation)
    if gate is not None:
        title = f"{GATE_WORDS[gate.decision]}: {title[0].lower()}{title[1:]}"
        points = [gate.reason, *points]
        tone = GATE_TONES[gate.decision]
    if comparison.settings:
        points.insert(0, _differ(comparison.settings))
    return Document(
        kind=comparison.kind,
        title=title,
        secondary=f"{comparison.base.label} → {comparison.new.label}",
        tone=tone,
        headline=capitalized(comparison.headline.partition(": ")[2]),
        points=points,
        cautions=[caution.message for caution in comparison.cautions],
        sections=list(_sections(comparison)),
        inputs=named_inputs([comparison.base, comparison.new]),
        version=comparison.traceprobe_version,
        json=comparison.to_json(),
    )


def _title(c: Comparison) -> str:
    """How much faster or slower, in two or three words."""
    if c.direction == "unknown":
        return "Too few steps to tell"
    if c.direction == "unchanged" or not c.step.base or not c.step.new:
        return "No measurable change"
    return pace(c.step.base / c.step.new)


def capitalized(sentence: str) -> str:
    """The sentence with a capital first letter."""
    return f"{sentence[:1].upper()}{sentence[1:]}"


def _differ(settings: Mapping[str, Sequence[Any]]) -> str:
    """The first settings that differ, and how many more do."""
    pairs = [f"{name} {_value(a)} → {_value(b)}" for name, (a, b) in settings.items()]
    more = f" and {len(pairs) - MOST_SETTINGS} more" if len(pairs) > MOST_SETTINGS else ""
    return f"Settings that differ: {', '.join(pairs[:MOST_SETTINGS])}{more}"


def _sections(c: Comparison) -> Iterator[Section]:
    runs = (c.base, c.new)
    steps = [c.traced_step]
    if c.step != c.traced_step:
        steps = [
            replace(c.step, name="step without profiler"),
            replace(c.traced_step, name="step as traced"),
        ]
    told, quiet = _told(c)
    yield Section(
        "step",
        f"Where the time of a {c.per} goes",
        blocks=[
            phase_bars(runs, [scale_of(run, c.per) for run in runs], traced_unit(runs, c.per)),
            changes(f"Changes, ms per {c.per}", [*steps, *told], CLASS_LABELS),
            *([_no_change(quiet)] if quiet else []),
        ],
        help="Each bar is one step of a run on the GPU, cut into what the GPU did at each instant. "
        "A change counts where it exceeds the noise: how far its 99 % interval reaches towards no "
        "change, and how much the same quantity differs between the thirds of one run.",
    )
    if c.kernels:
        yield Section(
            "kernels",
            "Kernels that appeared, vanished or changed",
            blocks=[_kernels(c)],
            help="From the lists of the longest kernels of both reports. Where a kernel is in one "
            "list only, the other run spends less on it than on the shortest in its list.",
        )
    yield from operator_section(c, NOTABLE_SHARE * (c.traced_step.base or 0.0))
    if len(c.settings) > MOST_SETTINGS:
        rows = [[name, _value(a), _value(b)] for name, (a, b) in c.settings.items()]
        table = Table("Settings that differ", ("setting", "base", "new"), rows, most=6)
        yield Section("settings", "Settings that differ", blocks=[table], folded=True)
    details = [Section("", "What holds the runs back", blocks=[shares(runs)])]
    if quiet:
        caption = f"Small changes and none, ms per {c.per}"
        details.append(Section("", caption, blocks=[changes(caption, quiet, CLASS_LABELS)]))
    if measures := _telling(c.measures):
        caption = "Overlap, collectives, launches"
        details.append(Section("", caption, blocks=[changes(caption, measures, MEASURE_LABELS)]))
    lines = [
        Line(run.label, [(float(k), ms) for k, ms in enumerate(steps)])
        for run, steps in zip(runs, c.steps_ms, strict=True)
    ]
    details.append(
        Section(
            "order",
            "Steps in order",
            blocks=[curves("chart-order", "Traced step times in order", "step", "ms", lines)],
        )
    )
    yield Section("details", "Details", blocks=details, folded=True, brief=False)
    yield runs_section(runs)


def runs_section(runs: Sequence[RunSummary]) -> Section:
    """The facts of the runs, folded."""
    return Section("runs", "The runs", blocks=[*table_of(runs)], folded=True, brief=False)


def named_inputs(runs: Sequence[RunSummary]) -> list[str]:
    """The traces of each run with its label, as those of different runs often have one name."""
    return [f"{run.label}: {', '.join(run.inputs)}" for run in runs]


def traced_unit(runs: Sequence[RunSummary], per: str) -> str:
    """The unit of bars that are of traced steps, beside numbers that may be of others."""
    return f"ms per {per}" + (
        ", as traced" if any(run.step_ms != run.traced_step_ms for run in runs) else ""
    )


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


def shares(runs: Sequence[RunSummary]) -> Bars:
    """Shares of the verdict, a bar for each run, and what bounds it."""
    bars = []
    for run in runs:
        known = {name: share for name, share in run.shares.items() if share >= NO_SHARE}
        pieces = [
            Piece(SHARE_LABELS[name], SHARE_COLOURS[name], known[name])
            for name in SHARES
            if name in known
        ]
        bars.append(Bar(run.label, pieces, BOUND_LABELS[run.bound]))
    return Bars("Shares of the step, by the verdict", "share of the step", bars, relative=True)


def bound(run: RunSummary) -> str:
    """What bounds a run, and the runner-up."""
    second = runner_up(run.bound, run.secondary)
    return ", ".join(filter(None, (BOUND_LABELS[run.bound], second)))


def table_of(runs: Sequence[RunSummary]) -> Iterator[Facts | Table]:
    """What all runs have in common, and a row with the rest of each; nothing that none knows."""
    columns = {
        "step ms": [significant(run.step_ms) for run in runs],
        "steps": [f"{run.steps:,}" for run in runs],
        "ranks": [str(run.world_size) for run in runs],
        "samples/s": [number(run.samples_per_second) for run in runs],
        "tokens/s": [number(run.tokens_per_second) for run in runs],
        "bound": [bound(run) for run in runs],
        "device": [", ".join(run.devices) for run in runs],
        "step time": [
            "without profiler" if run.basis == "unprofiled" else "as traced" for run in runs
        ],
    }
    known = {name: cells for name, cells in columns.items() if {*cells} != {NOT_OBSERVED}}
    same = [name for name, cells in known.items() if len({*cells}) == 1 and name != "step ms"]
    if same:
        yield Facts([(name, known[name][0]) for name in same])
    own = [name for name in known if name not in same]
    rows = [[run.label, *(known[name][n] for name in own)] for n, run in enumerate(runs)]
    numeric = frozenset(n for n, name in enumerate(own, 1) if name in NUMBERS)
    yield Table("The runs", ("run", *own), rows, numeric)


def changes(caption: str, found: Sequence[Change], words: Mapping[str, str]) -> Table:
    """Changes with their noise, in their order."""
    head = ("", "base", "new", "change", "noise ±")
    rows = [
        [
            words.get(change.name, change.name)
            + ("" if change.unit == "ms" else f" ({change.unit})"),
            number(change.base),
            number(change.new),
            plus_minus(change.delta),
            number(noise(change)),
        ]
        for change in found
    ]
    tones: list[Tone] = ["plain" if not change.real else _tone(change) for change in found]
    return Table(caption, head, rows, frozenset({1, 2, 3, 4}), tones)


def noise(change: Change) -> float | None:
    """What a change has to exceed to be real: its interval towards 0, and the drift."""
    if change.delta is None or change.low is None or change.high is None:
        return None
    below, above = change.delta - change.low, change.high - change.delta
    sides = (below if change.delta > 0 else above) if change.delta else max(below, above)
    return max(sides, change.floor or 0.0)


def _tone(change: Change) -> Tone:
    if change.unit != "ms" or change.delta is None:
        return "plain"
    return "bad" if change.delta > 0 else "good"


def _told(c: Comparison) -> tuple[list[Change], list[Change]]:
    """Classes with a change to tell, or that one run does not show, by size; and the others."""
    there = [change for change in c.classes if change.base or change.new]
    there.sort(key=lambda change: -_size(change))
    least = NOTABLE_SHARE * (c.traced_step.base or 0.0)
    told = [n for n in there if (n.real or n.delta is None) and _size(n) >= least]
    return told, [change for change in there if change not in told]


def _size(change: Change) -> float:
    return abs(change.delta if change.delta is not None else (change.new or change.base or 0.0))


def _no_change(quiet: Sequence[Change]) -> Text:
    words = ", ".join(CLASS_LABELS[change.name] for change in quiet)
    why = "No measurable change"
    if any(change.real or change.delta is None for change in quiet):
        why += f", or one of less than {100 * NOTABLE_SHARE:g} % of the step"
    return Text([f"{why}: {words}."])


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
    head = ("kernel", "phase", "base", "new", "change")
    rows = [
        [
            short_name(kernel.name),
            kernel.phase,
            number(kernel.base_ms),
            number(kernel.new_ms),
            plus_minus((kernel.new_ms or 0) - (kernel.base_ms or 0))
            if kernel.base_ms is not None and kernel.new_ms is not None
            else KERNEL_WORDS[kernel.state],
        ]
        for kernel in c.kernels
    ]
    tones: list[Tone] = [KERNEL_TONES[kernel.state] for kernel in c.kernels]
    caption = f"Kernels of both runs, ms per {c.per}"
    return Table(
        caption,
        head,
        rows,
        frozenset({2, 3, 4}),
        tones,
        most=4,
        names=frozenset({0}),
        full=[kernel.name for kernel in c.kernels],
    )


def _value(value: object) -> str:
    return NOT_OBSERVED if value is None else str(value)
