"""What the memory of a step is for, in words, rows and a picture; the same for all outputs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

import msgspec

from traceprobe.formatting import NOT_OBSERVED, percent, shorten, size
from traceprobe.records.memory import PARTS, Memory, MemoryParts, MemoryStep
from traceprobe.render.bars import Segment, segments
from traceprobe.render.pages.report_tables import Table

CONTEXT_BYTES = 500_000_000
"""Of a CUDA context with its kernels, where nobody measured it: 300 to 600 MB since kernels are
loaded when they are first used, the default since CUDA 12.2 (`CUDA_MODULE_LOADING`)."""
NOTABLE = 0.02
"""Share of the peak from which a difference is worth a sentence."""
WORDS = {
    "weights": "weights",
    "optimizer_state": "optimizer state",
    "gradients": "gradients",
    "input": "batch",
    "activations": "activations",
    "temporary": "temporary",
    "held": "held from before",
    "slack": "allocator slack",
    "outside": "CUDA context",
}
COLOURS = {
    "weights": "#0072b2",
    "optimizer_state": "#009e73",
    "gradients": "#5b6fc4",
    "input": "#a6d96a",
    "activations": "#e69f00",
    "temporary": "#cc79a7",
    "held": "#8fa3b8",
    "slack": "#b8b2a7",
    "outside": "#6b6b6b",
}
MAX_PHASE = 40
NARROW = 6.0
"""Percent of the picture's width below which a phase has no room for its name."""


@dataclass(frozen=True)
class Area:
    """A part in the picture, as an SVG path in a box of 100 × 100."""

    word: str
    colour: str
    path: str


@dataclass(frozen=True)
class Stretch:
    """A phase in the picture; percent of its width."""

    name: str
    start: float
    width: float


@dataclass(frozen=True)
class Picture:
    """One step from left to right, what it holds piled up."""

    title: str
    summary: str
    areas: list[Area]
    stretches: list[Stretch]
    peak: float
    """Where the most is held, in percent of the width."""


def bar(memory: Memory, step: MemoryStep) -> list[Segment]:
    """The parts at the peak, and what is reserved beside them."""
    values = {key: float(value) for key, value in _whole(memory, step).items() if value}
    return segments(values, WORDS, COLOURS)


def table(memory: Memory) -> Table:
    """Part by part: predicted, measured, and the difference."""
    steps = (memory.predicted, memory.measured)
    both = [None if s is None else _whole(memory, s) for s in steps]
    rows = [
        _row(WORDS[key], *(None if one is None else one.get(key) for one in both)) for key in WORDS
    ]
    peaks = [None if s is None else s.peak_bytes for s in steps]
    reserved = [None if s is None else s.reserved_bytes for s in steps]
    sums = [None if one is None else sum(one.values()) for one in both]
    rows.append(_row("sum of the parts in use: the peak", *peaks))
    rows.append(_row("reserved by the allocator", *reserved))
    rows.append(_row("of the device, with the context", *sums))
    caption = "Memory at the peak of a step"
    return Table(caption, "lrrrr", ["", "predicted", "measured", "difference", "of measured"], rows)


def _row(word: str, predicted: int | None, measured: int | None) -> list[str]:
    if predicted is None or measured is None:
        return [word, size(predicted), size(measured), NOT_OBSERVED, NOT_OBSERVED]
    gap = predicted - measured
    sign = "−" if gap < 0 else "+" if gap else ""
    ratio = f"{sign}{percent(abs(gap) / measured)}" if measured else NOT_OBSERVED
    return [word, size(predicted), size(measured), f"{sign}{size(abs(gap))}", ratio]


def _whole(memory: Memory, step: MemoryStep) -> dict[str, int]:
    """The parts at the peak with slack and context, where they are known or documented."""
    found = {**_parts(step.parts), "slack": step.slack}
    if step is memory.predicted:
        return {**found, "outside": CONTEXT_BYTES}
    return found if memory.outside_bytes is None else {**found, "outside": memory.outside_bytes}


def _parts(parts: MemoryParts) -> dict[str, int]:
    found: dict[str, int] = msgspec.structs.asdict(parts)
    return found


def sentences(memory: Memory) -> list[str]:
    """What the step needs, how sure that is, and why prediction and measurement differ."""
    return [*_needs(memory), *_gaps(memory)]


def _needs(memory: Memory) -> Iterator[str]:
    step = memory.measured or memory.predicted
    if step is None:
        return
    verb = "held" if memory.measured else "would hold"
    largest = max(PARTS, key=lambda part: getattr(step.parts, part))
    at = f" in {shorten(step.peak_phase, MAX_PHASE)}" if step.peak_phase else ""
    share = ""
    if memory.device_bytes and memory.used_bytes is not None:
        share = f", {percent(memory.used_bytes / memory.device_bytes)} of the device with context"
    yield (
        f"A step {verb} {size(step.allocated)} at its peak{at}, of which {WORDS[largest]} "
        f"{size(getattr(step.parts, largest))}; {size(step.reserved_bytes)} reserved{share}"
    )
    lasting = step.most.weights + step.most.optimizer_state + step.most.gradients
    yield (
        f"Weights, gradients and optimizer state alone take {size(lasting)}, whatever the batch; "
        f"the forward pass leaves {size(step.most.activations)} of activations"
    )
    update = step.phases.get("optimizer")
    if memory.implementation == "foreach" and update is not None:
        made = update - lasting
        if made >= NOTABLE * step.peak_bytes:
            yield (
                f"The foreach optimizer goes up to {size(update)}, {size(made)} above weights, "
                "gradients and state: it makes lists of intermediate results, about as large as "
                "the parameters, which `fused=True` and `foreach=False` do not"
            )


def _gaps(memory: Memory) -> Iterator[str]:
    measured, predicted = memory.measured, memory.predicted
    if measured is None:
        reason = memory.not_measured
        yield (
            f"Not measured: {shorten(reason, 200)}"
            if reason
            else (
                f"The CUDA context, {size(CONTEXT_BYTES)} as a rule, and workspaces of cuBLAS and "
                "cuDNN come on top"
            )
        )
        return
    if memory.outside_bytes is None:
        yield "Other processes use the GPU too, so the size of the CUDA context is not known"
    if predicted is None:
        if memory.not_predicted:
            yield f"Not predicted: {shorten(memory.not_predicted, 200)}"
        return
    off = predicted.allocated / measured.allocated - 1 if measured.allocated else 0.0
    yield f"The prediction is {percent(abs(off))} {'above' if off > 0 else 'below'} the measurement"
    held = measured.parts.held - predicted.parts.held
    if held >= NOTABLE * measured.peak_bytes:
        yield (
            f"{size(held)} were there before the step and belong to no tensor of the model: "
            "workspaces of libraries such as cuBLAS, or tensors that the program keeps elsewhere"
        )
    scratch = measured.parts.temporary - predicted.parts.temporary
    if abs(scratch) >= NOTABLE * measured.peak_bytes:
        word = "more" if scratch > 0 else "less"
        yield (
            f"{size(abs(scratch))} {word} of temporary memory than predicted: kernels take scratch "
            "memory that no tensor shows, and some write where others make a copy"
        )
    slack = measured.slack - predicted.slack
    if abs(slack) >= NOTABLE * measured.peak_bytes:
        word = "more" if slack > 0 else "less"
        yield f"{size(abs(slack))} {word} reserved and not in use at the peak than predicted"


def picture(step: MemoryStep, *, measured: bool) -> Picture:
    """The timeline of a step as areas that pile up; `measured` has times, else events count."""
    timeline = step.timeline
    first, span = timeline.position[0], timeline.position[-1] - timeline.position[0]
    across = [100 * (at - first) / (span or 1) for at in timeline.position]
    floor = [0] * len(across)
    top = max(step.peak_bytes, 1)
    areas = []
    for part in PARTS:
        series = timeline.parts[part]
        ceiling = [low + more for low, more in zip(floor, series, strict=True)]
        if any(series):
            areas.append(Area(WORDS[part], COLOURS[part], _path(across, floor, ceiling, top)))
        floor = ceiling
    peak = max(range(len(floor)), key=floor.__getitem__)
    phase = f" in {shorten(timeline.phase[peak], MAX_PHASE)}" if timeline.phase[peak] else ""
    unit = "time" if measured else "allocations and releases"
    return Picture(
        title="One step, as measured" if measured else "One step, as predicted",
        summary=f"{unit.capitalize()} to the right, up to {size(step.peak_bytes)}{phase}.",
        areas=areas,
        stretches=_stretches(timeline.phase, across),
        peak=across[peak],
    )


def _path(across: list[float], floor: list[int], ceiling: list[int], top: int) -> str:
    there = [f"{x:.2f},{100 - 100 * y / top:.2f}" for x, y in zip(across, ceiling, strict=True)]
    back = [f"{x:.2f},{100 - 100 * y / top:.2f}" for x, y in zip(across, floor, strict=True)]
    return f"M{' L'.join([*there, *reversed(back)])}Z"


def _stretches(phases: list[str], across: list[float]) -> list[Stretch]:
    """Phases that have room for their names."""
    found = []
    for name, group in groupby(range(len(phases)), key=phases.__getitem__):
        inside = list(group)
        end = across[min(inside[-1] + 1, len(across) - 1)]
        width = end - across[inside[0]]
        if name and width >= NARROW:
            found.append(Stretch(shorten(name, MAX_PHASE), across[inside[0]], width))
    return found


@dataclass(frozen=True)
class View:
    """What the page shows."""

    bars: list[tuple[str, list[Segment]]]
    sentences: list[str]
    table: Table
    pictures: list[Picture]


def view(memory: Memory | msgspec.UnsetType) -> View | None:
    """None where there is nothing to show."""
    if isinstance(memory, msgspec.UnsetType):
        return None
    steps = {"predicted": memory.predicted, "measured": memory.measured}
    known = {name: step for name, step in steps.items() if step is not None}
    return View(
        bars=[(name, bar(memory, step)) for name, step in known.items()],
        sentences=sentences(memory),
        table=table(memory),
        pictures=[picture(step, measured=name == "measured") for name, step in known.items()],
    )


def line(memory: Memory | msgspec.UnsetType) -> str | None:
    """The first sentence, for outputs that are short; None where there is nothing to say."""
    return None if isinstance(memory, msgspec.UnsetType) else next(_needs(memory), None)
