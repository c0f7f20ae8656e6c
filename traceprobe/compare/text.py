"""What a comparison says in sentences; they are for people and no part of the contract."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from traceprobe.compare.run import Observed, device_names, settings
from traceprobe.formatting import counted, pace, plain, plus_minus, significant, within_sentence
from traceprobe.model.taxonomy import BOUND_LABELS, CLASS_LABELS, SHARE_CLASSES
from traceprobe.records.comparison import (
    NOTABLE_SHARE,
    Change,
    Direction,
    OperatorChange,
    Per,
    RunSummary,
)
from traceprobe.records.report import Message
from traceprobe.verdict.bounds import deciding as decides
from traceprobe.verdict.wording import runner_up

MOST_NAMED = 4
"""Changes of classes that are told in words."""
NO_CHANGE = "No measurable change"
TOO_FEW = "Too few steps to tell"
EXPLAINS = 0.3
"""Part of the change of a step from which on an operator is told as its cause."""
DISAGREE = 0.05
"""Part of the step by which timing with and without a profiler may differ unremarked."""


def headline(
    base: RunSummary, new: RunSummary, step: Change, direction: Direction, per: Per
) -> str:
    """How much faster or slower the new run is, and what bounds both."""
    assert step.base is not None
    assert step.new is not None
    before, after = (f"{significant(value)} ms" for value in (step.base, step.new))
    counts = [counted(run.steps, "step") for run in (base, new)]
    of = f"{counts[0]} of each run" if counts[0] == counts[1] else " and ".join(counts)
    if direction == "unknown":
        text = (
            f"{TOO_FEW}: a {per} took {before}, then {after} ({of}); record at least 5 steps of "
            "each, better 20"
        )
    elif direction == "unchanged":
        both = f"{after} in both" if before == after else f"{after}, before {before}"
        text = f"{NO_CHANGE}: a {per} takes {both} ({of})"
    else:
        text = f"{_pace(step)}: a {per} takes {after} instead of {before} ({of})"
    bounds = [bound_text(run) for run in (base, new)]
    if bounds[0] != bounds[1]:
        return f"{text}. It was {bounds[0]}; now it is {bounds[1]}."
    return f"{text}. Both runs are {bounds[0]}."


def _pace(step: Change) -> str:
    """A change that is real, in words; a step of no time has no pace."""
    if not step.base or not step.new:
        return "faster" if (step.delta or 0) < 0 else "slower"
    return pace(step.base / step.new)


def explanation(
    base: RunSummary,
    new: RunSummary,
    classes: Sequence[Change],
    measures: Sequence[Change],
    traced: Change,
    operators: Sequence[OperatorChange],
) -> list[str]:
    """What the step gained or lost, largest first, and what limits it now.

    Args:
        traced: of the step as traced.
    """
    step = base.traced_step_ms
    changed = notable(classes)
    said = [(abs(c.delta or 0), _of_class(c)) for c in changed[:MOST_NAMED]]
    said += [
        (c.base or c.new or 0, _of_one_side(c))
        for c in classes
        if c.delta is None and (c.base or c.new or 0) >= NOTABLE_SHARE * step
    ]
    lines = [line for _, line in sorted(said, key=lambda item: -item[0])]
    lines[1:1] = _of_operators(operators, traced)
    rest = [c.delta or 0 for c in classes if c.real and c not in changed[:MOST_NAMED]]
    if abs(sum(rest)) >= NOTABLE_SHARE * step:
        lines.append(f"{plus_minus(sum(rest))} ms in {counted(len(rest), 'smaller change')}")
    lines += [_of_measure(change) for change in measures if change.real and _telling(change)]
    largest = largest_class(new)
    if largest is not None:
        lines.append(f"What limits the new run most: {largest}")
    return lines


def _of_operators(operators: Sequence[OperatorChange], step: Change) -> Iterator[str]:
    """The operator whose kernels changed most, where that is much of a real change of the step."""
    delta = step.delta or 0.0
    alike = [each for each in operators if each.delta_ms * delta > 0]
    largest = max(alike, key=lambda each: abs(each.delta_ms), default=None)
    if step.real and largest is not None and abs(largest.delta_ms) >= EXPLAINS * abs(delta):
        before, after = significant(largest.base_ms), significant(largest.new_ms)
        calls = f"{plain(largest.base_count)} → {plain(largest.new_count)} calls a step"
        yield (
            f"Operator that changed most: {largest.name}, {plus_minus(largest.delta_ms)} ms on the "
            f"device ({before} → {after}; {calls})"
        )


def largest_class(run: RunSummary) -> str | None:
    """The class that takes most of a traced step, and its part; None without any.

    Of a run with a verdict only classes that count for it: another would seem to contradict it.
    """
    deciding = [c for share in decides(run.bound, run.secondary) for c in SHARE_CLASSES[share]]
    known = {
        name: value
        for name, value in run.partition_ms.items()
        if value and (name in deciding or not deciding)
    }
    if not known:
        return None
    name, value = max(known.items(), key=lambda item: item[1])
    return f"{CLASS_LABELS[name]}, {100 * value / run.traced_step_ms:.0f} % of its step"


def settings_text(changed: Mapping[str, Sequence[Any]]) -> str:
    """Settings that differ: `workers 2 → 4`; counts that follow from others are left out."""
    pairs = {name: pair for name, pair in changed.items() if name not in DERIVED}
    return ", ".join(f"{name} {_value(old)} → {_value(new)}" for name, (old, new) in pairs.items())


def _value(value: object) -> str:
    return "none" if value is None else str(value)


def notable(classes: Sequence[Change]) -> list[Change]:
    """Classes with a real change that is worth telling, largest first."""
    step = sum(change.base or 0 for change in classes)
    real = [c for c in classes if c.real and abs(c.delta or 0) >= NOTABLE_SHARE * step]
    return sorted(real, key=lambda change: -abs(change.delta or 0))


def gate_text(step: Change, allowed: float) -> str:
    """The change of the step against what is allowed."""
    assert step.base
    parts = [_percent(value, step.base) for value in (step.delta, step.low, step.high)]
    return (
        f"The time of a step changed by {parts[0]} % (99 % interval {parts[1]} to {parts[2]} %, "
        f"drift inside the runs {100 * (step.floor or 0) / step.base:.1f} %); up to "
        f"+{100 * allowed:g} % is allowed"
    )


def _percent(part: float | None, whole: float) -> str:
    """With a sign, and none for what rounds to 0."""
    value = round(100 * (part or 0) / whole, 1)
    return f"{value:+.1f}".replace("-", "−") if value else "0.0"


def cautions(
    base: Observed, new: Observed, step: Change, traced: Change, per: Per
) -> Iterator[Message]:
    """What a reader should know before believing the numbers, by stable codes."""
    runs = (base, new)
    programs = [str(settings(run.report).get("name") or "") for run in runs]
    if all(programs) and programs[0] != programs[1]:
        yield Message(
            "different-workloads",
            f"The runs are of different programs: {programs[0]} and {programs[1]}.",
        )
    digests = [[source.sha256 for source in run.report.inputs] for run in runs]
    if digests[0] == digests[1] != []:
        yield Message("same-recording", "Base and new run are the same recording.")
    devices = [device_names(run.report.ranks) for run in runs]
    if devices[0] != devices[1]:
        yield Message(
            "different-devices",
            f"The runs are from different devices: {', '.join(devices[0])} and "
            f"{', '.join(devices[1])}.",
        )
    if base.world_size != new.world_size:
        yield Message(
            "different-world-sizes",
            f"The base ran on {counted(base.world_size, 'rank')}, the new run on {new.world_size}.",
        )
    formats = [{i.format for i in run.report.inputs} for run in runs]
    if formats[0] != formats[1] and step is traced:
        yield Message(
            "different-profilers",
            "The runs were recorded by different profilers, which slow the host differently, and "
            "their steps without a profiler are not known: trust the busy classes, not the idle "
            "time. `traceprobe profile` times the step without a profiler.",
        )
    samples = [run.per_step("samples") for run in runs]
    if per == "sample" and samples[0] != samples[1]:
        yield Message(
            "per-sample",
            f"A step holds {counted(samples[0] or 0, 'sample')} in the base and "
            f"{plain(samples[1] or 0)} in the new run, so all times are per sample.",
        )
    if per == "step" and None not in samples and samples[0] != samples[1]:
        yield Message(
            "different-batches",
            f"A step holds {counted(samples[0] or 0, 'sample')} in the base and "
            f"{plain(samples[1] or 0)} in the new run, and not all runs record it: times per step "
            "do not compare.",
        )
    if None in samples and base.report.inputs != new.report.inputs:
        yield Message(
            "unknown-batches",
            "How many samples a step holds is not recorded; if that changed, times per step do "
            "not compare.",
        )
    for word, run in zip(("base", "new run"), runs, strict=True):
        if run.report.verdict.bound == "inconclusive":
            yield Message(
                "inconclusive-verdict",
                f"The verdict of the {word} is inconclusive.",
            )
        if run.report.quality.events_lost or run.report.quality.lost:
            yield Message(
                "damaged-input", f"Parts of the {word}'s recording are lost; see its report."
            )
    if step is not traced and step.base and step.delta is not None and traced.delta is not None:
        noise = max(((traced.high or 0) - (traced.low or 0)) / 2, traced.floor or 0)
        if abs(step.delta - traced.delta) > max(DISAGREE * step.base, noise):
            yield Message(
                "profiler-distorts",
                f"Without a profiler the step changed by {plus_minus(step.delta)} ms, in the "
                f"traces by {plus_minus(traced.delta)} ms: the profiler distorts at least one of "
                "them. The classes are as traced.",
            )


def bound_text(run: RunSummary) -> str:
    """What bounds a run, and the runner-up, inside a sentence."""
    second = runner_up(run.bound, run.secondary)
    return ", ".join(filter(None, (within_sentence(BOUND_LABELS[run.bound]), second)))


def _of_class(change: Change) -> str:
    word, delta = CLASS_LABELS[change.name], plus_minus(change.delta)
    return f"{delta} ms {word} ({significant(change.base or 0)} → {significant(change.new or 0)})"


def _of_one_side(change: Change) -> str:
    """A class that one of the runs does not show: no difference can be told."""
    word = CLASS_LABELS[change.name]
    if change.base is None:
        return f"{significant(change.new or 0)} ms {word} in the new run; the base shows none"
    return f"{significant(change.base)} ms {word} in the base; the new run shows none"


TELLING = ("communication hidden", "host-to-device hidden", "collectives", "launches")
"""Measures that are told in words."""

DERIVED = (
    "compiled",
    "flops_per_step",
    "flops_per_step_by_formula",
    "loader_workers",
    "parameter_tensors",
    "parameters",
    "predicted_all_reduces_per_step",
    "samples_per_step",
    "tokens_per_step",
    "vocabulary",
    "work_missing",
)
"""Recorded facts that follow from settings."""


def _telling(change: Change) -> bool:
    """Whether a measure says what the classes do not."""
    if change.name not in TELLING or not change.base:
        return False
    return abs(change.delta or 0) >= (1 if change.unit == "%" else 0.05 * change.base)


def _of_measure(change: Change) -> str:
    before, after = (plain(value or 0) for value in (change.base, change.new))
    return f"{change.name.capitalize()}: {before} → {after} {change.unit}"
