"""What records other than reports must have: keys, lengths, signs, numbers that agree."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from traceprobe.model.taxonomy import CLASS_LABELS, LOSSES, PARTITION, SHARES
from traceprobe.records.ablation import Ablation, Interval, Share
from traceprobe.records.comparison import Change, Comparison, RunSummary
from traceprobe.records.gpus import GpuComparison
from traceprobe.records.ladder import Ladder
from traceprobe.records.peaks import MeasuredPeaks
from traceprobe.records.roofline import Roofline, RooflineRecord
from traceprobe.records.scaling import Scaling
from traceprobe.records.sweep import Sweep
from traceprobe.records.whatif import Predicted, WhatIf

if TYPE_CHECKING:
    import msgspec

ROUNDING = 1e-3
"""Bound on a sum of ms or shares that were rounded one by one."""
Problems = Iterator[str]


def of_record(record: msgspec.Struct) -> Problems:
    """What a record contradicts itself in; nothing where its kind leaves nothing to check."""
    if isinstance(record, Ablation):
        yield from of_ablation(record)
    elif isinstance(record, RooflineRecord):
        yield from of_roofline(record.roofline)
    elif isinstance(record, MeasuredPeaks):
        yield from _peaks(record)
    elif isinstance(record, Sweep):
        yield from _sweep(record)
    else:
        for run in _runs(record):
            yield from _run(run)
        for change in _changes(record):
            yield from _change(change)
        yield from _own(record)


def of_ablation(ablation: Ablation) -> Problems:
    """The same for an ablation."""
    if ablation.ranks < 1 or not ablation.variants:
        yield "an ablation without ranks or variants"
    for variant in ablation.variants:
        rates = [r for r in (variant.samples_per_second, variant.tokens_per_second) if r]
        if not variant.trial_ms or variant.steps_per_trial < 1 or min(variant.trial_ms) < 0:
            yield f"variant {variant.name} has no trials, or one that takes less than no time"
        if not all(map(_ordered, (variant.step_ms, *rates))):
            yield f"variant {variant.name}: an interval is out of order"
    shares = [share for share in ablation.oracle.shares.values() if share is not None]
    if set(ablation.oracle.shares) - set(SHARES) or not all(map(_ordered, shares)):
        yield "the shares of the ablation are unknown or out of order"
    overlap = ablation.overlap
    if overlap is not None and min(overlap.serial, overlap.full, overlap.parallel) <= 0:
        yield "the rates of the ablation are not above 0"


def of_roofline(found: Roofline) -> Problems:
    """The same for a roofline."""
    if min(found.step_ms, found.kernel_ms) < 0 or (found.flops_per_step or 1) <= 0:
        yield "roofline: a step takes less than no time, or no operations"
    if found.step_ms == 0 and found.math_ms is not None:
        yield "roofline: a step takes no time"
    for peaks in (found.published, found.measured):
        if peaks is not None and not _positive([*peaks.tflops.values(), peaks.bandwidth_gbps]):
            yield "roofline: a peak is not above 0"
    for p in found.phases:
        numbers = (p.ms, p.bytes, p.math_ms, p.memory_ms, p.floor_ms, p.tflops, p.gbps, p.intensity)
        if any(number < 0 for number in (*p.flops.values(), *numbers) if number is not None):
            yield f"roofline: {p.phase} has less than nothing"


def _peaks(peaks: MeasuredPeaks) -> Problems:
    rates = [*peaks.tflops.values(), peaks.copy_gbps, peaks.h2d_gbps]
    if any(rate < 0 for rate in rates if rate is not None):  # of a slow CPU one may round to 0
        yield "a peak is below 0"
    if min(peaks.matrix_side, peaks.repetitions) < 1:
        yield "nothing was measured"


def _sweep(sweep: Sweep) -> Problems:
    names = [rung.name for rung in sweep.rungs]
    if len(set(names)) < len(names):
        yield "a rung is there twice"
    for rung in sweep.rungs:
        if (rung.run is None) == (rung.state == "measured"):
            yield f"rung {rung.name} is {rung.state}, with a run or without"
        if rung.run is not None:
            yield from _run(rung.run)


def _run(run: RunSummary) -> Problems:
    name = f"run {run.label}"
    if not _positive([run.step_ms, run.traced_step_ms, run.unprofiled_step_ms]):
        yield f"{name}: a step takes no time"
    if min(run.world_size, run.steps) < 1 or not 0 <= run.confidence <= 1:
        yield f"{name}: no steps, no ranks, or a confidence that is no part of 1"
    rates = (run.samples_per_second, run.tokens_per_second)
    if not _positive([run.samples_per_step, run.tokens_per_step, *rates]):
        yield f"{name}: no samples in a step"
    if set(run.partition_ms) - set(PARTITION) or any(
        (ms or 0) < 0 for ms in run.partition_ms.values()
    ):
        yield f"{name}: its partition has an unknown class, or one of less than no time"
    elif not _agree(sum(ms or 0 for ms in run.partition_ms.values()), run.traced_step_ms):
        yield f"{name}: its partition does not sum to the step"
    if set(run.shares) != set(SHARES) or not _agree(sum(run.shares.values()), 1):
        yield f"{name}: its shares do not sum to 1"
    elif not all(0 <= share <= 1 + ROUNDING for share in run.shares.values()):
        yield f"{name}: its shares are no parts of 1"


def _change(change: Change) -> Problems:
    base, new, delta, low, high = change.base, change.new, change.delta, change.low, change.high
    if None not in (base, new, delta) and not _agree((new or 0) - (delta or 0), base or 0):
        yield f"{change.name}: the change is not the difference of the two"
    if (low is None) != (high is None) or (low is not None and high is not None and low > high):
        yield f"{change.name}: its interval is out of order"


def _own(record: msgspec.Struct) -> Problems:
    """What only this kind of record can have wrong."""
    if isinstance(record, Comparison):
        if len(record.steps_ms) != 2 or any(len(pair) != 2 for pair in record.settings.values()):
            yield "there are not two runs"
        if {change.name for change in record.classes} - set(PARTITION):
            yield "a class is unknown"
    elif isinstance(record, Ladder):
        changes = [change for rung in record.rungs for change in rung.classes]
        if not record.rungs or {change.name for change in changes} - set(CLASS_LABELS):
            yield "there are no rungs, or a class is unknown"
        if not _positive([s for rung in record.rungs for s in (rung.speedup, rung.total_speedup)]):
            yield "a speed-up is not above 0"
    elif isinstance(record, WhatIf):
        told = [*record.alone, *([record.asked] if record.asked else [])]
        if record.now_ms <= 0 or not all(map(_plausible, told)):
            yield "a prediction is out of order"
    elif isinstance(record, Scaling):
        yield from _scaling(record)
    elif isinstance(record, GpuComparison):
        yield from _gpus(record)


def _scaling(scaling: Scaling) -> Problems:
    sizes = [point.world_size for point in scaling.points]
    if not sizes or sizes != sorted(set(sizes)) or sizes[0] < 1:
        yield "the runs are out of order or repeated"
    for point in scaling.points:
        name = f"{point.world_size} ranks"
        rates = (point.per_second, point.ideal_per_second, point.efficiency)
        if not _positive([point.step_ms, point.ideal_step_ms, *rates]):
            yield f"{name}: a step or a rate is not above 0"
        if set(point.losses_ms) != set(LOSSES):
            yield f"{name}: losses differ from the contract"
        elif not _agree(sum(ms or 0 for ms in point.losses_ms.values()), point.loss_ms):
            yield f"{name}: the losses do not sum to that of the step"
        if not _agree(point.step_ms - point.ideal_step_ms, point.loss_ms):
            yield f"{name}: the loss is not what the step takes longer"
    predictions = [*scaling.predictions, *(held.prediction for held in scaling.held_out)]
    if any(p.world_size < 1 or not _positive([p.step_ms, p.per_second]) for p in predictions):
        yield "a prediction is not above 0"
    if not all(held.prediction.sources for held in scaling.held_out):
        yield "a prediction is made from no run"


def _gpus(comparison: GpuComparison) -> Problems:
    if not comparison.contenders:
        yield "there are no runs"
    for contender in comparison.contenders:
        hardware = contender.hardware
        if contender.rate <= 0 or not 0 < contender.relative <= 1 + ROUNDING:
            yield f"run {contender.run.label}: its rate is not above 0, or above the fastest"
        if hardware is not None and not 0 < hardware.part <= 1:
            yield f"run {contender.run.label}: its hardware is no part of itself"
        if not _positive([*contender.peaks.values(), contender.compute_ms or None]):
            yield f"run {contender.run.label}: a peak is not above 0"
    for fit in comparison.fits:
        if not any(c.compute_ms and fit.peak in c.peaks for c in comparison.contenders):
            yield f"no run has the peak {fit.peak}"


def _runs(record: Any) -> list[RunSummary]:
    """The runs that a record is made of."""
    if isinstance(record, Comparison):
        return [record.base, record.new]
    if isinstance(record, WhatIf):
        return [record.run]
    entries = getattr(record, "rungs", None) or getattr(record, "points", None)
    if isinstance(record, GpuComparison):
        entries = record.contenders
    return [entry.run for entry in entries or []]


def _changes(record: Any) -> list[Change]:
    if isinstance(record, Comparison):
        return [record.step, record.traced_step, *record.classes, *record.measures]
    if isinstance(record, Ladder):
        steps = [rung.step for rung in record.rungs if rung.step is not None]
        return [*steps, *(change for rung in record.rungs for change in rung.classes)]
    return []


def _ordered(interval: Interval | Share) -> bool:
    return interval.low <= interval.high


def _plausible(told: Predicted) -> bool:
    return 0 < told.low_ms <= told.high_ms and min(told.step_ms, told.speedup) > 0


def _positive(values: Iterable[float | None]) -> bool:
    return all(value > 0 for value in values if value is not None)


def _agree(one: float, other: float) -> bool:
    return abs(one - other) <= ROUNDING * max(abs(one), abs(other), 1)
