"""Runs of one program at several world sizes: efficiency, what is lost, and what comes next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from traceprobe.compare import scaling_text as words
from traceprobe.compare.amounts import Amounts, amounts_of
from traceprobe.compare.extrapolate import (
    ALGORITHMS,
    Nodes,
    Sized,
    Unpredictable,
    likelier,
    links,
    predict,
    usable,
)
from traceprobe.compare.losses import is_divided, losses, parts, waiting
from traceprobe.compare.noise import difference
from traceprobe.compare.run import NothingToCompare, Observed, rounded, settings, summarize
from traceprobe.formatting import counted
from traceprobe.records.ablation import VariantName
from traceprobe.records.comparison import Basis
from traceprobe.records.rank import Rank
from traceprobe.records.scaling import (
    Fit,
    HeldOut,
    Loop,
    Mode,
    Prediction,
    Scaling,
    ScalingPoint,
    Synchronisation,
)
from traceprobe.verdict.ablation import bare_variant
from traceprobe.verdict.allreduce import Message
from traceprobe.version import __version__

LEVEL = 0.95
SHORTEST = 0.1
"""Part of a step below which its interval does not reach, however wide the steps spread."""
TIMES = (2, 4, 8)
"""World sizes to look ahead to, as multiples of the largest."""


def scale(
    runs: Sequence[Observed],
    mode: Mode | None = None,
    to: Sequence[int] = (),
    nodes: Nodes | None = None,
) -> Scaling:
    """How a program scales.

    Args:
        mode: where the runs do not record their work, or it is neither weak nor strong scaling.
        to: world sizes to predict; by default `TIMES` the largest.
        nodes: where machines end.

    Raises:
        NothingToCompare: fewer than two world sizes, a size twice, different programs, or a mode
            that is unknown or contradicts the runs.
    """
    nodes = nodes or Nodes()
    by_size = _by_size(runs)
    amounts = amounts_of(by_size, mode)
    basis: Basis = "unprofiled"
    if any(run.unprofiled_step_ms is None for run in by_size.values()):
        basis = "traced"
    steps = {n: _step(run, basis) for n, run in by_size.items()}
    sized = [_sized(run, steps[n], amounts.of_rank(n)) for n, run in by_size.items()]
    points = [_point(run, by_size, steps, amounts) for run in sized]
    largest = max(by_size)
    ahead = sorted({n for n in to or [largest * times for times in TIMES] if n not in by_size})
    predictions = [_prediction(sized, n, points[0], amounts, nodes) for n in ahead]
    held_out = list(_held_out(sized, points, amounts, nodes))
    return Scaling(
        schema_version=Scaling.SCHEMA_VERSION,
        traceprobe_version=__version__,
        mode=amounts.mode,
        why_mode=amounts.why,
        work=amounts.unit,
        basis=basis,
        headline=words.headline(amounts.mode, points),
        explanation=words.explanation(points, held_out, predictions, amounts.unit),
        points=points,
        fits=list(_fits(sized, nodes)),
        held_out=held_out,
        predictions=predictions,
        cautions=list(
            words.cautions(
                list(by_size.values()), basis, amounts.even, nodes, max([*ahead, largest])
            )
        ),
    )


def _by_size(runs: Sequence[Observed]) -> dict[int, Observed]:
    by_size: dict[int, Observed] = {}
    for run in sorted(runs, key=lambda run: run.world_size):
        other = by_size.setdefault(run.world_size, run)
        if other is not run:
            raise NothingToCompare(
                f"{other.label} and {run.label} both ran on {counted(run.world_size, 'rank')}; "
                "give one run of each size, and compare two of one size with `traceprobe compare`"
            )
    if len(by_size) < 2:
        raise NothingToCompare(
            "scaling needs runs of at least two world sizes; record the program on 1, 2, 4 … ranks"
        )
    programs = {name: run for run in by_size.values() if (name := settings(run.report).get("name"))}
    if len(programs) > 1:
        named = ", ".join(f"{run.label} of {name}" for name, run in programs.items())
        raise NothingToCompare(f"the runs are of different programs: {named}")
    return by_size


def _step(run: Observed, basis: Basis) -> float:
    return run.best_step_ms if basis == "unprofiled" else float(run.step_ms.mean())


def _point(
    sized: Sized, runs: Mapping[int, Observed], steps: Mapping[int, float], amounts: Amounts
) -> ScalingPoint:
    first, n = min(runs), sized.world_size
    base, run = runs[first], runs[n]
    work = amounts.of_rank(n) / amounts.of_rank(first)
    ideal, step = steps[first] * work, steps[n]
    loss = step - ideal
    low, high = (1.0, 1.0) if n == first else _interval(base, run, work, ideal, step)
    how = {
        "divided": is_divided(base) and is_divided(run),
        "apart": waiting(base) is not None and waiting(run) is not None,
    }
    lost = losses(parts(base, steps[first], **how), parts(run, step, **how), work, loss)
    rate = 1e3 * amounts.of[n] / step
    return ScalingPoint(
        world_size=n,
        run=summarize(run),
        step_ms=rounded(step),
        ideal_step_ms=rounded(ideal),
        per_second=rounded(rate),
        ideal_per_second=rounded(1e3 * amounts.of[n] / ideal),
        efficiency=rounded(ideal / step),
        efficiency_low=rounded(low),
        efficiency_high=rounded(high),
        loss_ms=rounded(loss),
        losses_ms=lost,
        transfer_ms=None if sized.transfer_ms is None else rounded(sized.transfer_ms),
        exposed_ms=None if sized.transfer_ms is None else rounded(sized.exposed_ms),
        synchronisation=list(_synchronisation(run, amounts.of[n])),
    )


def _interval(
    base: Observed, run: Observed, work: float, ideal: float, step: float
) -> tuple[float, float]:
    """The efficiency with the spread of the traced steps around it.

    A step without a profiler is taken to spread as much in proportion.
    """
    spread = difference(base.step_ms * work, run.step_ms, LEVEL)
    scale = step / float(run.step_ms.mean())
    steps = (step + scale * (edge - spread.delta) for edge in (spread.high, spread.low))
    low, high = (ideal / max(each, SHORTEST * step) for each in steps)
    return low, high


def _synchronisation(run: Observed, work: float) -> Iterator[Synchronisation]:
    """What the ablation measured with and without; one rank has nothing to synchronise."""
    ablation = run.report.ablation
    if ablation is None:
        return
    times = {variant.name: variant.step_ms.median for variant in ablation.variants}
    pairs: list[tuple[Loop, VariantName, VariantName]] = [
        ("full", "full", "full-no-comm"),
        ("synthetic", bare_variant(times), "synthetic-no-comm"),
    ]
    for loop, name, alone in pairs:
        if name not in times:
            continue
        whole = times[name]
        without = whole if run.world_size == 1 else times.get(alone)
        if without is not None:
            yield Synchronisation(
                loop=loop,
                with_ms=rounded(whole),
                without_ms=rounded(without),
                overhead=rounded(1 - without / whole),
                with_per_second=rounded(1e3 * work / whole),
                without_per_second=rounded(1e3 * work / without),
            )


def _sized(run: Observed, step: float, work: float) -> Sized:
    """The run as the model needs it."""
    apart = waiting(run) is not None
    part = parts(run, step, divided=is_divided(run), apart=apart)
    exposed = part["transfer"] or part["communication"] or 0.0
    scaling = (part["compute"] or 0.0) + (part["io"] or 0.0)
    transfer = None
    if run.world_size == 1:
        transfer = exposed
    elif not any(rank.summary.busy_ns["communication"] for rank in run.report.ranks):
        transfer = 0.0
    elif run.report.run is not None and run.report.run.transfer_ns is not None:
        transfer = run.report.run.transfer_ns / 1e6
    backward = run.classes["backward"]
    return Sized(
        world_size=run.world_size,
        work=work,
        scaling_ms=scaling,
        constant_ms=step - scaling - exposed,
        exposed_ms=exposed,
        transfer_ms=transfer,
        messages=_messages(run),
        room_ms=0.0 if backward is None else float(backward.mean()) / _accumulated(run),
        sizes=next(filter(None, map(_sizes, run.report.ranks)), None),
    )


def _accumulated(run: Observed) -> int:
    """Backward passes of a step, of which only the last has gradients to send."""
    value = settings(run.report).get("accumulate")
    return value if isinstance(value, int) and value > 1 else 1


def _sizes(rank: Rank) -> str | None:
    return None if rank.summary.communication is None else rank.summary.communication.sizes


def _messages(run: Observed) -> list[Message]:
    """Matched collectives of all ranks; their transfer is the same on each rank."""
    groups: dict[tuple[str, int], list[tuple[float, float, float]]] = {}
    for rank in run.report.ranks:
        for group in rank.summary.collectives:
            matched = group.matched and group.transfer_ns and group.count_per_step
            if not matched or not usable(
                group.operation, group.bytes, group.group_size, run.world_size
            ):
                continue
            assert group.bytes is not None
            assert group.transfer_ns is not None
            assert group.count_per_step is not None
            values = (
                group.transfer_ns / group.matched / 1e6,
                group.count_per_step,
                group.exposed_ns / group.total_ns if group.total_ns else 0.0,
            )
            groups.setdefault((group.operation, group.bytes), []).append(values)
    means = {key: np.mean(values, axis=0).tolist() for key, values in groups.items()}
    return [
        Message(operation, size, run.world_size, ms, count, exposed)
        for (operation, size), (ms, count, exposed) in sorted(means.items())
    ]


def _prediction(
    sized: Sequence[Sized], n: int, base: ScalingPoint, amounts: Amounts, nodes: Nodes
) -> Prediction:
    sources = [run.world_size for run in sized]
    work = amounts.of_rank(n)
    chosen = likelier(sized, nodes)
    try:
        either = {name: predict(sized, n, work, nodes, name) for name in ALGORITHMS}
    except Unpredictable as reason:
        return Prediction(world_size=n, sources=sources, reason=str(reason))
    predicted = either[chosen]
    ideal = base.step_ms * work / amounts.of_rank(base.world_size)
    return Prediction(
        world_size=n,
        sources=sources,
        step_ms=rounded(predicted.step_ms),
        low_ms=rounded(min(other.step_ms for other in either.values())),
        high_ms=rounded(max(other.step_ms for other in either.values())),
        per_second=rounded(1e3 * amounts.at(n) / predicted.step_ms),
        efficiency=rounded(ideal / predicted.step_ms),
        transfer_ms=rounded(predicted.transfer_ms),
        exposed_ms=rounded(predicted.exposed_ms),
    )


def _held_out(
    sized: Sequence[Sized], points: Sequence[ScalingPoint], amounts: Amounts, nodes: Nodes
) -> Iterator[HeldOut]:
    """Each run but the smallest from the smaller ones, and where there are larger, from all others.

    The first is what looking ahead does.
    """
    for point in points[1:]:
        n = point.world_size
        smaller = [run for run in sized if run.world_size < n]
        others = [run for run in sized if run.world_size != n]
        for sources in [smaller] if len(others) == len(smaller) else [smaller, others]:
            prediction = _prediction(sources, n, points[0], amounts, nodes)
            yield HeldOut(
                prediction=prediction,
                step_ms=point.step_ms,
                transfer_ms=point.transfer_ms,
                error=_error(prediction.step_ms, point.step_ms),
                transfer_error=_error(prediction.transfer_ms, point.transfer_ms),
            )


def _error(predicted: float | None, measured: float | None) -> float | None:
    return None if predicted is None or not measured else rounded(predicted / measured - 1)


def _fits(sized: Sequence[Sized], nodes: Nodes) -> Iterator[Fit]:
    chosen = likelier(sized, nodes)
    for several in (False, True):
        for name in ALGORITHMS:
            links_of = links(sized, nodes, several, name)
            if links_of is not None:
                yield Fit(
                    algorithm=name,
                    chosen=name == chosen,
                    world_sizes=list(links_of.ranks),
                    gbps=rounded(links_of.gbps),
                    latency_us=rounded(links_of.latency_us) if links_of.latency_known else None,
                    error=rounded(links_of.error),
                    between_nodes=several,
                )
