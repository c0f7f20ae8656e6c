"""The memory of a step: the page of a prediction, and the section that a report has of it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

import msgspec

from traceprobe.formatting import NOT_OBSERVED, percent, shorten, size
from traceprobe.records.memory import PARTS, Memory, MemoryStep
from traceprobe.render.charts import specification
from traceprobe.render.document import (
    Bar,
    Bars,
    Block,
    Chart,
    Document,
    Piece,
    Section,
    Table,
    Text,
)

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
EVENTS = "allocations and releases"
NO_BYTES = size(0)
NARROW = 0.06
"""Part of the picture's width below which a phase has no room for its name."""
_HELP = (
    "What a step holds at its peak, by what it is for. The measured step is the last before the "
    "timing: the allocator kept a history of it. The prediction runs the same loop on tensors that "
    "have sizes but no data. “Activations” are what a forward pass leaves for its backward pass, "
    "“temporary” is all else that a step makes, “held from before” what was there and belongs to "
    "no tensor of the model. “Allocator slack” is reserved and not in use at the peak; the CUDA "
    "context of a prediction is a usual size, not a computed one."
)


def document(memory: Memory, version: str) -> Document:
    """The parts at the peak of the simulated step, and the largest of each phase.

    Args:
        memory: one with a prediction. version: of traceprobe.
    """
    step = memory.predicted
    assert step is not None, "only a prediction is shown so"
    needed = step.reserved_bytes + CONTEXT_BYTES
    kept = [(part, getattr(step.parts, part)) for part in PARTS]
    parts = [
        (WORDS[part], size(nbytes), percent(nbytes / max(step.peak_bytes, 1)))
        for part, nbytes in sorted(kept, key=lambda item: -item[1])
        if nbytes
    ]
    most = f"The largest part is {parts[0][0]}, {parts[0][1]}. " if parts else ""
    return Document(
        kind="memory",
        title=f"{size(needed)} of GPU memory",
        headline=f"A step holds {size(step.peak_bytes)} at its peak. {most}The allocator would "
        f"reserve {size(step.reserved_bytes)}, and a CUDA context takes about "
        f"{size(CONTEXT_BYTES)}; workspaces of cuBLAS and cuDNN come on top.",
        points=[*_needs(memory)][1:],
        sections=[
            Section(
                "parts",
                "What holds it",
                blocks=[
                    Table(
                        "Parts at the peak", ["part", "bytes", "share"], parts, frozenset({1, 2})
                    ),
                    _largest(step),
                ],
            )
        ],
        version=version,
        json=memory.to_json(),
    )


def section(memory: Memory) -> Section:
    """What a report says of memory: predicted and measured, at the peak and over the step."""
    steps = {"predicted": memory.predicted, "measured": memory.measured}
    known = {name: step for name, step in steps.items() if step is not None}
    blocks: list[Block] = [Text(sentences(memory))]
    for name, step in known.items():
        caption = f"Memory, {name}"
        blocks.append(Bars(caption, "part of the peak", [bar(memory, step, name)], relative=True))
    blocks.append(table(memory))
    blocks += [chart(step, name) for name, step in known.items()]
    return Section("memory", "Memory", blocks=blocks, help=_HELP)


def bar(memory: Memory, step: MemoryStep, label: str) -> Bar:
    """The parts at the peak, bytes, and what is reserved beside them."""
    pieces = [
        Piece(WORDS[key], COLOURS[key], value, size(value))
        for key, value in _whole(memory, step).items()
        if value
    ]
    return Bar(label, pieces)


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
    head = ["", "predicted", "measured", "difference", "of measured"]
    # A column of what was not measured, or not predicted, says nothing; nor does a part of nothing.
    shown = [n for n in range(5) if n == 0 or {row[n] for row in rows} != {NOT_OBSERVED}]
    cells = [[row[n] for n in shown] for row in rows if {*row[1:3]} - {NOT_OBSERVED, NO_BYTES}]
    numeric = frozenset(range(1, len(shown)))
    return Table("Memory at the peak of a step", [head[n] for n in shown], cells, numeric)


def _row(word: str, predicted: int | None, measured: int | None) -> list[str]:
    if predicted is None or measured is None:
        return [word, size(predicted), size(measured), NOT_OBSERVED, NOT_OBSERVED]
    gap = predicted - measured
    sign = "−" if gap < 0 else "+" if gap else ""
    ratio = f"{sign}{percent(abs(gap) / measured)}" if measured else NOT_OBSERVED
    return [word, size(predicted), size(measured), f"{sign}{size(abs(gap))}", ratio]


def _whole(memory: Memory, step: MemoryStep) -> dict[str, int]:
    """The parts at the peak with slack and context, where they are known or documented."""
    found = {part: getattr(step.parts, part) for part in PARTS} | {"slack": step.slack}
    if step is memory.predicted:
        return {**found, "outside": CONTEXT_BYTES}
    return found if memory.outside_bytes is None else {**found, "outside": memory.outside_bytes}


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
                f"The CUDA context, typically {size(CONTEXT_BYTES)}, and workspaces of cuBLAS and "
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


def chart(step: MemoryStep, name: str) -> Chart:
    """What a step holds, piled up part by part; a measured one has times, else events count."""
    timeline = step.timeline
    measured = name == "measured"
    at = [position / 1e3 if measured else position for position in timeline.position]
    parts = [part for part in PARTS if any(timeline.parts[part])]
    points = [
        (part, position, count)
        for part in parts
        for position, count in zip(at, timeline.parts[part], strict=True)
    ]
    held = [sum(counts) for counts in zip(*(timeline.parts[part] for part in PARTS), strict=True)]
    peak = max(range(len(held)), key=held.__getitem__)
    phase = f" in {shorten(timeline.phase[peak], MAX_PHASE)}" if timeline.phase[peak] else ""
    unit, across = ("ms", "Time") if measured else (EVENTS, EVENTS.capitalize())
    spec = specification("memory")
    for layer in spec["layer"]:
        layer["encoding"]["x"]["title"] = unit
    spec["layer"][0]["encoding"]["color"]["scale"].update(
        domain=[WORDS[part] for part in parts], range=[COLOURS[part] for part in parts]
    )
    return Chart(
        id=f"chart-memory-{name}",
        caption=f"One step, as {name}",
        summary=f"{across} to the right, up to {size(step.peak_bytes)}{phase}.",
        spec=spec,
        data={
            "parts": {
                "part": [WORDS[part] for part, _, _ in points],
                "order": [PARTS.index(part) for part, _, _ in points],
                "at": [position for _, position, _ in points],
                "GiB": [round(count / 2**30, 6) for _, _, count in points],
            },
            "peak": {"at": [at[peak]]},
            "phases": _phases(timeline.phase, at),
        },
        table=_largest(step),
        legend=[(WORDS[part], COLOURS[part]) for part in parts],
    )


def _phases(phases: list[str], at: list[float]) -> dict[str, list[float] | list[str]]:
    """The middles of phases that have room for their names."""
    names, middles = [], []
    for name, group in groupby(range(len(phases)), key=phases.__getitem__):
        inside = list(group)
        start, end = at[inside[0]], at[min(inside[-1] + 1, len(at) - 1)]
        if name and end - start >= NARROW * (at[-1] - at[0]):
            names.append(shorten(name, MAX_PHASE))
            middles.append((start + end) / 2)
    return {"phase": names, "at": middles}


def _largest(step: MemoryStep) -> Table:
    phases = sorted(step.phases.items(), key=lambda phase: -phase[1])
    rows = [(shorten(name, MAX_PHASE), size(nbytes)) for name, nbytes in phases]
    return Table("Largest of each phase", ["phase", "bytes"], rows, frozenset({1}))


def lines(memory: Memory | msgspec.UnsetType) -> list[str]:
    """The first sentence, for outputs that are short; none where there is nothing to say."""
    return [] if isinstance(memory, msgspec.UnsetType) else list(_needs(memory))[:1]
