"""A run as comparisons need it: what each of its steps took, taken from a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from traceprobe.compare.noise import Floats
from traceprobe.errors import UsageError
from traceprobe.model.taxonomy import BUSY, PARTITION
from traceprobe.records.comparison import Basis, RunSummary
from traceprobe.records.loader import Loader
from traceprobe.records.rank import Iteration, Rank
from traceprobe.records.report import Report
from traceprobe.verdict.gpu_specs import bare_name

LEAST_STEPS = 3
"""Steps below which there is no mean worth comparing, as for the verdict."""

PARTIAL = 0.1
"""Relative distance from a whole number of batches a step that the end of an epoch may make."""

LOADER = ("workers", "batch_size", "prefetch_factor", "pin_memory", "persistent_workers")
"""Settings of a loader, by the names of `torch.utils.data.DataLoader` without their `num_`."""


class NothingToCompare(UsageError):
    """A report without steps; the message says what to do."""


class Observed(msgspec.Struct, frozen=True):
    """Steps of a run.

    Args:
        label: what to call it.
        report: what it was taken from.
        step_ms: each used step as traced, mean over the ranks, ms.
        classes: the same for each exclusive class; None where any rank cannot show it.
        measures: quantities that are no part of the step, each step; keys are those of `UNITS`.
    """

    label: str
    report: Report
    step_ms: Floats
    classes: Mapping[str, Floats | None]
    measures: Mapping[str, Floats] = msgspec.field(default_factory=dict)

    @property
    def unprofiled_step_ms(self) -> float | None:
        """Step time without a profiler, ms; None where it is not known of steps like these."""
        effect = self.report.quality.observer_effect
        return None if effect is None or effect.other_conditions else effect.unprofiled_step_ms

    @property
    def basis(self) -> Basis:
        """Where the best known step time comes from."""
        return "traced" if self.unprofiled_step_ms is None else "unprofiled"

    @property
    def best_step_ms(self) -> float:
        """The step time to believe: without a profiler where that was timed."""
        return self.unprofiled_step_ms or float(self.step_ms.mean())

    def per_step(self, unit: str) -> float | None:
        """Samples or tokens of all ranks in a step; None where the capture did not record it.

        Samples are those of the loader that feeds the steps where the program does not tell: each
        rank is taken to have its own.
        """
        value = (self.report.workload or {}).get(f"{unit}_per_step")
        if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0:
            return float(value)
        return self._loaded() if unit == "samples" else None

    def _loaded(self) -> float | None:
        loader = self.report.loader
        if not isinstance(loader, Loader) or not loader.batch_size:
            return None
        batches = round(loader.batches_per_step)
        whole = batches > 0 and abs(loader.batches_per_step - batches) <= PARTIAL * batches
        return float(loader.batch_size * batches * self.world_size) if whole else None

    @property
    def world_size(self) -> int:
        """Ranks of the run, of which the report may hold only some."""
        run = self.report.run
        return max(len(self.report.ranks), run.world_size if run is not None else 1)


def as_traced(run: Observed) -> Observed:
    """The run as one whose step without a profiler is not known."""
    quality = replace(run.report.quality, observer_effect=None)
    return replace(run, report=replace(run.report, quality=quality))


UNITS: Mapping[str, str] = {
    **{f"busy {kind}": "ms" for kind in BUSY},
    "communication hidden": "%",
    "host-to-device hidden": "%",
    "collectives": "a step",
    "launches": "a step",
    "waiting for ranks": "ms",
}
"""Measures and their units."""


def observe(report: Report, label: str | None = None, least: int = LEAST_STEPS) -> Observed:
    """Take the used steps out of a report.

    Args:
        label: what to call the run; by default after its inputs.
        least: used steps.

    Raises:
        NothingToCompare: it has fewer.
    """
    label = label or default_label(report)
    detailed = [rank for rank in report.ranks if rank.iterations]
    used = [{i.index: i for i in rank.iterations if i.used} for rank in detailed]
    common = sorted(set.intersection(*map(set, used))) if used else []
    if len(common) < least:
        raise NothingToCompare(
            f"{label}: has {len(common)} complete steps, {least} are needed; record more "
            "steps, or name their ranges with --step"
        )
    table = [[steps[index] for index in common] for steps in used]
    classes = {name: _mean([_class(row, name) for row in table]) for name in PARTITION}
    step = _mean([np.array([_window(i) for i in row]) for row in table])
    assert step is not None
    return Observed(label, report, step, classes, _measures(table))


def default_label(report: Report) -> str:
    """The name of the run's first input without its suffixes, or that of its workload."""
    if not report.inputs:
        return "run"
    name = Path(report.inputs[0].name).name
    for suffix in (".gz", ".json", ".sqlite", ".pt.trace", ".db"):
        name = name.removesuffix(suffix)
    return name or "run"


def summarize(run: Observed) -> RunSummary:
    """What all comparisons show of a run."""
    report, step = run.report, run.best_step_ms
    samples, tokens = run.per_step("samples"), run.per_step("tokens")
    return RunSummary(
        label=run.label,
        inputs=[i.name for i in report.inputs],
        formats=sorted({i.format for i in report.inputs}),
        devices=device_names(report.ranks),
        world_size=run.world_size,
        steps=len(run.step_ms),
        samples_per_step=samples,
        tokens_per_step=tokens,
        basis=run.basis,
        step_ms=rounded(step),
        traced_step_ms=rounded(run.step_ms.mean()),
        unprofiled_step_ms=run.unprofiled_step_ms,
        samples_per_second=rounded(1e3 * samples / step) if samples else None,
        tokens_per_second=rounded(1e3 * tokens / step) if tokens else None,
        partition_ms={
            name: None if values is None else rounded(values.mean())
            for name, values in run.classes.items()
        },
        shares=report.verdict.shares,
        bound=report.verdict.bound,
        secondary=report.verdict.secondary,
        confidence=report.verdict.confidence,
        settings=settings(report),
    )


def device_names(ranks: Sequence[Rank]) -> list[str]:
    """Names of the devices, each once; an unknown one by its kind.

    Drivers differ in whether they put the vendor before the name.
    """
    names = (rank.device.name or f"unknown {rank.device.kind}" for rank in ranks)
    return sorted({name.removeprefix("NVIDIA ") for name in names})


def are_different(base: Sequence[Rank], new: Sequence[Rank]) -> bool:
    """Whether two runs are known to be of different devices: of other kinds, or of other names.

    One without a name may be the same. Tools differ in how they spell names.
    """
    kinds = [{rank.device.kind for rank in ranks} for ranks in (base, new)]
    if kinds[0] != kinds[1]:
        return True
    if any(not rank.device.name for rank in (*base, *new)):
        return False
    names = [{bare_name(rank.device.name) for rank in ranks} for ranks in (base, new)]
    return names[0] != names[1]


def settings(report: Report) -> dict[str, Any]:
    """What a capture recorded of its program, one level deep; nothing nested survives.

    With what it saw of the loader that feeds the steps, where the program does not tell that.
    """
    flat: dict[str, Any] = {}
    if isinstance(report.loader, Loader):
        known = {name: getattr(report.loader, name) for name in LOADER}
        flat |= {name: value for name, value in known.items() if value is not None}
    for name, value in (report.workload or {}).items():
        inner = value.items() if isinstance(value, dict) else [(name, value)]
        flat |= {
            str(key): item
            for key, item in inner
            if item is None or isinstance(item, (str, int, float, bool))
        }
    return dict(sorted(flat.items()))


def _class(steps: Sequence[Iteration], name: str) -> Floats | None:
    values = [(step.partition_ns or {}).get(name) for step in steps]
    if any(value is None for value in values):
        return None
    return np.array(values, dtype=np.float64) / 1e6


def _window(step: Iteration) -> float:
    assert step.start_ns is not None
    assert step.end_ns is not None
    return (step.end_ns - step.start_ns) / 1e6


def _measures(table: Sequence[Sequence[Iteration]]) -> dict[str, Floats]:
    """Those of `UNITS` that every rank shows in every step."""
    rows = [list(map(_of_step, steps)) for steps in table]
    measures: dict[str, Floats] = {}
    for name in UNITS:
        values = [[step.get(name) for step in steps] for steps in rows]
        if all(value is not None for steps in values for value in steps):
            measures[name] = np.array(values, dtype=np.float64).mean(axis=0)
    return measures


def _of_step(step: Iteration) -> dict[str, float | None]:
    busy, partition = step.busy_ns or {}, step.partition_ns or {}
    found: dict[str, float | None] = {
        f"busy {kind}": None if (value := busy.get(kind)) is None else value / 1e6 for kind in BUSY
    }
    for kind, name in (("communication", "communication hidden"), ("h2d", "host-to-device hidden")):
        total, exposed = busy.get(kind), partition.get(kind)
        found[name] = 100 * (1 - exposed / total) if total and exposed is not None else None
    found["collectives"] = step.collectives
    found["launches"] = step.launches
    found["waiting for ranks"] = (
        None if step.skew_exposed_ns is None else step.skew_exposed_ns / 1e6
    )
    return found


def _mean(values: Sequence[Floats | None]) -> Floats | None:
    """Mean over the ranks; None where any of them is."""
    known = [value for value in values if value is not None]
    return np.mean(known, axis=0) if known and len(known) == len(values) else None


def rounded(value: float) -> float:
    """Six decimals, as records hold numbers."""
    return round(float(value), 6)
