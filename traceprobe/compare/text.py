"""What a comparison says in sentences; they are for people and no part of the contract."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from traceprobe.compare.run import Observed, device_names
from traceprobe.formatting import plus_minus, significant
from traceprobe.model.taxonomy import BOUND_LABELS, CLASS_LABELS, label_of
from traceprobe.records.comparison import Change, Direction, Per, RunSummary
from traceprobe.records.report import Message

MOST_NAMED = 4
"""Changes of classes that are told in words."""
NOTABLE = 0.005
"""Part of the base's step below which a change is not told in words, however real."""
GONE = 0.1
"""Of a class no more than this part is left: it is gone."""
DISAGREE = 0.05
"""Part of the step by which timing with and without a profiler may differ unremarked."""


def headline(
    base: RunSummary, new: RunSummary, step: Change, direction: Direction, per: Per
) -> str:
    """The step in both runs, how sure that is, and what bounds them."""
    assert step.base is not None
    assert step.new is not None
    assert step.delta is not None
    times = f"{significant(step.base)} → {significant(step.new)} ms per {per}"
    ratio = f"{100 * abs(step.delta) / step.base:.1f} %" if step.base else ""
    text = {
        "slower": f"{ratio} slower: {times}",
        "faster": f"{ratio} faster: {times}",
        "unchanged": f"No change beyond the noise: {times}",
        "unknown": f"Too few steps to tell: {times}",
    }[direction]
    bounds = [bound_text(run) for run in (base, new)]
    if bounds[0] != bounds[1]:
        return f"{text}; {bounds[0]} → {bounds[1]}"
    return f"{text}; {bounds[0]} as before"


def explanation(
    base: RunSummary,
    new: RunSummary,
    classes: Sequence[Change],
    measures: Sequence[Change],
    per: Per,
) -> list[str]:
    """What the step gained or lost, largest first, and what limits it now."""
    changed = notable(classes)
    said = [_of_class(change, per) for change in changed[:MOST_NAMED]]
    rest = [
        change.delta for change in classes if change.real and change not in changed[:MOST_NAMED]
    ]
    if changed and any(rest):
        more = sum(delta or 0 for delta in rest)
        said.append(f"{len(rest)} smaller changes add up to {plus_minus(more)} ms")
    said += [_of_measure(change) for change in measures if change.real and _telling(change)]
    largest = largest_class(new)
    if largest is not None:
        said.append(f"the largest part of the new step is {largest[0]} ({largest[1]:.0f} %)")
    return said


def largest_class(run: RunSummary) -> tuple[str, float] | None:
    """The word of the class that takes most of a traced step, and its per cent; None without."""
    known = {name: value for name, value in run.partition_ms.items() if value}
    if not known:
        return None
    name, value = max(known.items(), key=lambda item: item[1])
    return CLASS_LABELS[name], 100 * value / run.traced_step_ms


def settings_text(changed: Mapping[str, Sequence[Any]]) -> str:
    """Settings that differ: `workers 2 → 4`; counts that follow from others are left out."""
    pairs = {name: pair for name, pair in changed.items() if name not in DERIVED}
    return ", ".join(f"{name} {_value(old)} → {_value(new)}" for name, (old, new) in pairs.items())


def _value(value: object) -> str:
    return "none" if value is None else str(value)


def notable(classes: Sequence[Change]) -> list[Change]:
    """Classes with a real change that is worth telling, largest first."""
    step = sum(change.base or 0 for change in classes)
    real = [c for c in classes if c.real and abs(c.delta or 0) >= NOTABLE * step]
    return sorted(real, key=lambda change: -abs(change.delta or 0))


def gate_text(step: Change, allowed: float) -> str:
    """The change of the step against what is allowed."""
    assert step.base
    parts = [100 * (value or 0) / step.base for value in (step.delta, step.low, step.high)]
    return (
        f"the step changed by {parts[0]:+.1f} % (99 % interval {parts[1]:+.1f} to {parts[2]:+.1f} "
        f"%, drift inside the runs {100 * (step.floor or 0) / step.base:.1f} %); "
        f"{100 * allowed:g} % are allowed"
    )


def cautions(
    base: Observed, new: Observed, step: Change, traced: Change, per: Per
) -> Iterator[Message]:
    """What a reader should know before believing the numbers, by stable codes."""
    runs = (base, new)
    formats = [{i.format for i in run.report.inputs} for run in runs]
    if formats[0] != formats[1] and step is traced:
        yield Message(
            "different-profilers",
            "The runs were recorded by different profilers, which slow the host differently, and "
            "their steps without a profiler are not known: trust the busy classes, not the idle "
            "time. `traceprobe profile` times the step without a profiler.",
        )
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
            f"The base ran on {base.world_size} ranks, the new run on {new.world_size}.",
        )
    samples = [run.per_step("samples") for run in runs]
    if per == "sample" and samples[0] != samples[1]:
        yield Message(
            "per-sample",
            f"A step holds {samples[0]:g} samples in the base and {samples[1]:g} in the new run, "
            "so all times are per sample.",
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
        noise = max((traced.high or 0) - (traced.low or 0), traced.floor or 0)
        if abs(step.delta - traced.delta) > max(DISAGREE * step.base, noise):
            yield Message(
                "profiler-distorts",
                f"Without a profiler the step changed by {plus_minus(step.delta)} ms, in the "
                f"traces by {plus_minus(traced.delta)} ms: the profiler distorts at least one of "
                "them. The classes are as traced.",
            )


def bound_text(run: RunSummary) -> str:
    """What bounds a run, and the runner-up, inside a sentence."""
    first = BOUND_LABELS[run.bound].lower().replace("i/o", "I/O")
    return first if run.secondary is None else f"{first}, then {label_of(run.secondary)}"


def _of_class(change: Change, per: Per) -> str:
    assert change.base is not None
    assert change.new is not None
    assert change.delta is not None
    word = CLASS_LABELS[change.name]
    amount = significant(abs(change.delta))
    if change.delta < 0 and change.new <= GONE * change.base:
        return f"{amount} ms of {word} are gone"
    if change.delta > 0 and change.base <= GONE * change.new:
        return f"{amount} ms of {word} are new"
    more = "longer" if change.delta > 0 else "shorter"
    return (
        f"{word} {amount} ms {more} per {per} ({significant(change.base)} → "
        f"{significant(change.new)} ms)"
    )


TELLING = ("communication hidden", "host-to-device hidden", "collectives", "launches")


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
    values = f"{significant(change.base or 0)} → {significant(change.new or 0)}"
    return f"{change.name}: {values} {change.unit}"
