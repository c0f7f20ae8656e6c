"""The tables of a comparison of two runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from traceprobe.records.comparison import (
    Change,
    Comparison,
    KernelChange,
    OperatorChange,
    RunSummary,
)
from traceprobe.records.frames.columns import Frame, columns_of, known, values_of

_NOT_ONE_VALUE = ("partition_ms", "shares", "settings")
RUNS = ("base", "new")


def _runs(comparison: Comparison) -> Iterator[list[object]]:
    for name, run in zip(RUNS, (comparison.base, comparison.new), strict=True):
        yield [name, *values_of(run, _NOT_ONE_VALUE)]


def _steps(comparison: Comparison) -> Iterator[list[object]]:
    for name, steps in zip(RUNS, comparison.steps_ms, strict=True):
        for number, ms in enumerate(steps):
            yield [name, number, ms]


def _measures(comparison: Comparison) -> Iterator[list[object]]:
    traced = replace(comparison.traced_step, name="traced_step")  # its own name is that of the step
    yield from map(values_of, (comparison.step, traced, *comparison.measures))


FRAMES: Mapping[str, Frame] = {
    "runs": Frame({"run": "str", **columns_of(RunSummary, _NOT_ONE_VALUE)}, _runs),
    "steps": Frame({"run": "str", "number": "int", "ms": "float"}, _steps),
    "classes": Frame(columns_of(Change), lambda c: map(values_of, c.classes)),
    "measures": Frame(columns_of(Change), _measures),
    "kernels": Frame(columns_of(KernelChange), lambda c: map(values_of, c.kernels)),
    "operators": Frame(
        columns_of(OperatorChange), lambda c: map(values_of, known(c.operators) or ())
    ),
}
"""By name."""
