"""Two runs: what changed between them, by how much, and how sure that is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from traceprobe.compare import text as words
from traceprobe.compare.kernels import kernel_changes
from traceprobe.compare.noise import Difference, Floats, difference, period, whole_periods
from traceprobe.compare.operators import operator_changes
from traceprobe.compare.run import UNITS, Observed, are_different, device_names, settings, summarize
from traceprobe.model.taxonomy import PARTITION
from traceprobe.records.comparison import Change, Comparison, Direction, Gate, Per, scale_of
from traceprobe.version import __version__

if TYPE_CHECKING:
    import numpy as np

LEVEL = 0.99
"""Of all intervals. Of many classes one in twenty would differ by chance, and a gate that fails
one job in forty for nothing is soon switched off."""
ENOUGH_STEPS = 5
"""Steps of a run below which its noise cannot be told from a change."""
UNNAMED = ("seed", "steps")
"""Settings that change nothing that a step takes."""


def compare(
    base: Observed, new: Observed, allowed: float | None = None, per: Per | None = None
) -> Comparison:
    """What changed from `base` to `new`.

    Args:
        allowed: how much slower a step of the new run may be, as a fraction of the base's; asks
            for a gate.
        per: what times are for; by default a sample where the steps differ in size.

    Returns:
        A comparison in ms per step, or per sample where the steps differ in size.
    """
    per = per or per_of(base, new)
    summaries = summarize(base), summarize(new)
    scale = scale_of(summaries[0], per), scale_of(summaries[1], per)
    periods = (period(base.step_ms), period(new.step_ms))
    traced = _change("step", "ms", base.step_ms * scale[0], new.step_ms * scale[1], periods)
    step = _step(base, new, scale, traced)
    classes = [
        _change(name, "ms", _scaled(before, scale[0]), _scaled(after, scale[1]), periods)
        for name in PARTITION
        for before, after in [(base.classes[name], new.classes[name])]
        if before is not None or after is not None
    ]
    measures = [
        _change(
            name,
            unit,
            _scaled(base.measures.get(name), scale[0] if unit == "ms" else 1),
            _scaled(new.measures.get(name), scale[1] if unit == "ms" else 1),
            periods,
        )
        for name, unit in UNITS.items()
        if name in base.measures or name in new.measures
    ]
    gate = None if allowed is None else decide(base, new, step, allowed)
    direction = _direction(base, new, step)
    operators = operator_changes(base.report, new.report, scale)
    return Comparison(
        schema_version=Comparison.SCHEMA_VERSION,
        traceprobe_version=__version__,
        base=summaries[0],
        new=summaries[1],
        per=per,
        direction=direction,
        headline=words.headline(*summaries, step, direction, per),
        explanation=words.explanation(*summaries, classes, measures, traced, operators or ()),
        step=step,
        traced_step=traced,
        classes=classes,
        measures=measures,
        settings=_settings(base, new),
        kernels=kernel_changes(base.report, new.report, scale),
        cautions=list(words.cautions(base, new, step, traced, per)),
        steps_ms=[[round(float(ms), 6) for ms in run.step_ms] for run in (base, new)],
        gate=gate,
        operators=operators,
    )


def decide(base: Observed, new: Observed, step: Change, allowed: float) -> Gate:
    """Whether the step got slower by more than `allowed`, a fraction of the base's.

    It did where the change is real and larger. It did not where the change is smaller and the noise
    is too. Where the noise exceeds what is allowed, or a run has too few steps to know its noise,
    nobody can say; nor where the runs are known to be of different devices, whose difference is in
    the change too.
    """
    fewest = min(len(base.step_ms), len(new.step_ms))
    assert step.base is not None
    assert step.delta is not None
    assert step.low is not None
    assert step.high is not None
    assert step.floor is not None
    limit = allowed * step.base
    text = words.gate_text(step, allowed)
    devices = [device_names(run.report.ranks) for run in (base, new)]
    if are_different(base.report.ranks, new.report.ranks):
        return Gate(
            allowed=allowed,
            decision="inconclusive",
            reason=f"{text}; but the runs are from different devices, {', '.join(devices[0])} and "
            f"{', '.join(devices[1])}: record both on the same",
        )
    if fewest < ENOUGH_STEPS:
        return Gate(
            allowed=allowed,
            decision="inconclusive",
            reason=f"{fewest} steps of a run are too few to estimate its noise; record at least "
            f"{ENOUGH_STEPS}, better 20",
        )
    if step.real and step.delta > limit:
        return Gate(allowed=allowed, decision="regression", reason=text)
    noise = max(step.high - step.delta, step.delta - step.low, step.floor)
    if step.delta <= limit and (noise <= limit or max(step.high, step.delta + step.floor) <= limit):
        return Gate(allowed=allowed, decision="pass", reason=text)
    return Gate(
        allowed=allowed,
        decision="inconclusive",
        reason=f"{text}; the runs are too noisy to detect {100 * allowed:g} %, record more steps",
    )


def per_of(base: Observed, new: Observed) -> Per:
    """A sample where the steps are known to hold different numbers of them, else a step."""
    sizes = base.per_step("samples"), new.per_step("samples")
    return "sample" if None not in sizes and sizes[0] != sizes[1] else "step"


def _scaled(values: Floats | None, scale: float) -> Floats | None:
    return None if values is None else values * scale


def _step(base: Observed, new: Observed, scale: tuple[float, float], traced: Change) -> Change:
    """The step without a profiler, where both runs timed it; else as traced.

    A calibration gives one number. That of the traced steps tells how sure it is: they are about
    as many, of the same loop.
    """
    plain = base.unprofiled_step_ms, new.unprofiled_step_ms
    if plain[0] is None or plain[1] is None:
        return traced
    before, after = plain[0] * scale[0], plain[1] * scale[1]
    assert traced.delta is not None
    assert traced.low is not None
    assert traced.high is not None
    assert traced.floor is not None
    shift = after - before - traced.delta
    low = max(traced.low + shift, -before)  # a step takes some time
    shifted = Difference(after - before, low, traced.high + shift, traced.floor)
    return _record("step", "ms", before, after, shifted)


def _change(
    name: str,
    unit: str,
    base: Floats | None,
    new: Floats | None,
    periods: tuple[int, int],
) -> Change:
    if base is None or new is None:
        means = [None if values is None else float(values.mean()) for values in (base, new)]
        return _record(name, unit, means[0], means[1], None)
    base, new = whole_periods(base, periods[0]), whole_periods(new, periods[1])
    difference_of_means = difference(base, new, LEVEL, periods)
    return _record(name, unit, float(base.mean()), float(new.mean()), difference_of_means)


def _record(
    name: str, unit: str, base: float | None, new: float | None, measured: Difference | None
) -> Change:
    return Change(
        name=name,
        unit=unit,
        base=_rounded(base),
        new=_rounded(new),
        delta=_rounded(measured.delta) if measured else None,
        low=_rounded(measured.low) if measured else None,
        high=_rounded(measured.high) if measured else None,
        floor=_rounded(measured.floor) if measured else None,
        real=measured.real if measured else False,
    )


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 6) + 0.0


def _direction(base: Observed, new: Observed, step: Change) -> Direction:
    if min(len(base.step_ms), len(new.step_ms)) < ENOUGH_STEPS and not step.real:
        return "unknown"
    if not step.real or step.delta is None:
        return "unchanged"
    return "slower" if step.delta > 0 else "faster"


def _settings(base: Observed, new: Observed) -> dict[str, list[Any]]:
    """Settings that both captures recorded and that differ."""
    before: Mapping[str, Any] = settings(base.report)
    after: Mapping[str, Any] = settings(new.report)
    return {
        name: [before[name], after[name]]
        for name in before
        if name in after and name not in UNNAMED and before[name] != after[name]
    }


def part(run: Observed, steps: np.ndarray) -> Observed:
    """Some steps of a run, by position, as a run of their own."""
    return Observed(
        run.label,
        run.report,
        run.step_ms[steps],
        {k: None if v is None else v[steps] for k, v in run.classes.items()},
        {k: v[steps] for k, v in run.measures.items()},
    )
