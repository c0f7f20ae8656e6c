"""What a scaling curve says in sentences; they are for people and no part of the contract."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from traceprobe.compare.extrapolate import Nodes
from traceprobe.compare.losses import is_divided, waiting
from traceprobe.compare.run import Observed, device_names, settings
from traceprobe.formatting import counted, percent, plus_minus, significant
from traceprobe.model.taxonomy import LOSS_LABELS
from traceprobe.records.comparison import NOTABLE_SHARE, Basis
from traceprobe.records.report import Message
from traceprobe.records.scaling import HeldOut, Mode, Prediction, ScalingPoint, Work

OF_THE_SIZE = frozenset(
    {
        "seed",
        "steps",
        "ranks",
        "batch_size",
        "flops_per_step",
        "flops_per_step_by_formula",
        "loader_workers",
        "samples_per_step",
        "tokens_per_step",
        "predicted_all_reduces_per_step",
    }
)
"""Settings that a world size may change."""
MOST_NAMED = 3


def headline(mode: Mode, points: Sequence[ScalingPoint]) -> str:
    """Efficiency at the largest size, and the steps behind it."""
    first, last = points[0], points[-1]
    interval = ""
    if last.efficiency_low != last.efficiency_high:
        interval = f" ({percent(last.efficiency_low)} to {percent(last.efficiency_high)})"
    ideal = (
        ""
        if last.ideal_step_ms == first.step_ms
        else (f"; ideal would be {significant(last.ideal_step_ms)} ms")
    )
    return (
        f"{work_of(last)}: {mode} scaling at {percent(last.efficiency)} efficiency{interval}. A "
        f"step takes {significant(last.step_ms)} ms on {counted(last.world_size, 'rank')}, "
        f"{significant(first.step_ms)} ms on {first.world_size}{ideal}."
    )


def work_of(point: ScalingPoint) -> str:
    """How many ideal ranks do the same: `8 ranks do the work of 6.20`."""
    verb = "does" if point.world_size == 1 else "do"
    done = significant(point.efficiency * point.world_size)
    return f"{counted(point.world_size, 'rank')} {verb} the work of {done}"


def explanation(
    points: Sequence[ScalingPoint],
    held_out: Sequence[HeldOut],
    predictions: Sequence[Prediction],
    work: Work,
) -> list[str]:
    """What the largest run loses time to, what synchronisation costs, and what comes next."""
    said = list(_lost(points[-1]))
    said += [
        f"Without gradient synchronisation a step on {points[-1].world_size} ranks takes "
        f"{significant(found.without_ms)} instead of {significant(found.with_ms)} ms: it costs "
        f"{percent(found.overhead)} of the step"
        for found in points[-1].synchronisation[:1]
    ]
    errors = [(abs(h.error), h.prediction.world_size) for h in held_out if h.error is not None]
    known = [p for p in predictions if p.step_ms is not None]
    if known:
        last = known[-1]
        tested = "no held-out run tests the model"
        if errors:
            worst, size = max(errors)
            transfers = [abs(h.transfer_error) for h in held_out if h.transfer_error is not None]
            tested = (
                f"on held-out runs it is off by up to {percent(worst)} of the step ({size} ranks)"
                + (f" and {percent(max(transfers))} of the transfer" if transfers else "")
            )
        said.append(
            f"The model expects {percent(last.efficiency)} on {last.world_size} ranks "
            f"({significant(last.per_second or 0)} {work}/s, {significant(last.step_ms or 0)} ms a "
            f"step); {tested}"
        )
    missing: dict[str, list[str]] = {}
    for prediction in predictions:
        if prediction.reason is not None:
            missing.setdefault(prediction.reason, []).append(str(prediction.world_size))
    said += sorted(
        f"Nothing is predicted for {', '.join(sizes)} ranks: {reason}"
        for reason, sizes in missing.items()
    )
    return said


def _lost(point: ScalingPoint) -> Iterator[str]:
    if point.loss_ms < -NOTABLE_SHARE * point.step_ms:
        yield (
            f"On {point.world_size} ranks a step takes {significant(-point.loss_ms)} ms less than "
            "ideal: the smallest run is slow for its size"
        )
        return
    if point.loss_ms <= NOTABLE_SHARE * point.step_ms:
        yield f"On {point.world_size} ranks a step loses nothing that matters"
        return
    parts = {name: ms for name, ms in point.losses_ms.items() if ms}
    named = [
        name
        for name in sorted(parts, key=lambda name: -abs(parts[name]))
        if abs(parts[name]) > NOTABLE_SHARE * point.step_ms
    ][:MOST_NAMED]
    amounts = ", ".join(f"{plus_minus(parts[name])} ms {LOSS_LABELS[name]}" for name in named)
    yield (
        f"On {point.world_size} ranks a step takes {significant(point.loss_ms)} ms longer than "
        f"ideal{': ' if amounts else ', in many small parts'}{amounts}"
    )


def cautions(
    runs: Sequence[Observed], basis: Basis, even: bool, nodes: Nodes, farthest: int
) -> Iterator[Message]:
    """What a reader should know before believing the numbers, by stable codes."""
    if runs[0].world_size > 1:
        yield Message(
            "no-single-rank",
            f"The smallest run has {runs[0].world_size} ranks, so what these lose against one is "
            "no loss here.",
        )
    devices = sorted({", ".join(device_names(run.report.ranks)) for run in runs})
    if len(devices) > 1:
        yield Message(
            "different-devices", f"The runs are from different devices: {'; '.join(devices)}."
        )
    different = _different(runs)
    if different:
        yield Message(
            "different-settings",
            f"Other settings differ too: {', '.join(different)}; what they change counts as loss.",
        )
    if not even:
        yield Message(
            "uneven-work",
            "The work is the same neither for each rank nor for all together. An ideal step grows "
            "with the work of a rank; that small batches use a GPU worse counts as loss.",
        )
    known = [run.unprofiled_step_ms is not None for run in runs]
    if basis == "traced" and any(known):
        yield Message(
            "traced-steps",
            "Not all runs know their step without a profiler, so all steps are as traced, while "
            "some shares are corrected for the profiler.",
        )
    if basis == "traced" and len({i.format for run in runs for i in run.report.inputs}) > 1:
        yield Message(
            "different-profilers",
            "The runs were recorded by different profilers, which slow the host differently, and "
            "their steps without a profiler are not all known.",
        )
    undivided = [run.label for run in runs if not is_divided(run)]
    if undivided:
        yield Message(
            "undivided-communication",
            f"Communication of {', '.join(undivided)} is not told from waiting for ranks; give the "
            "traces of all ranks.",
        )
    merged = [run.label for run in runs if is_divided(run) and waiting(run) is None]
    if merged:
        yield Message(
            "waiting-not-apart",
            f"The reports of {', '.join(merged)} do not say how much is waiting for ranks: it "
            "counts for what made them late. Make them again from the traces.",
        )
    doubtful = [run.label for run in runs if run.report.verdict.bound == "inconclusive"]
    if doubtful:
        yield Message(
            "inconclusive-verdict",
            f"The verdict is inconclusive for {', '.join(doubtful)}, so their losses are too.",
        )
    damaged = [r.label for r in runs if r.report.quality.events_lost or r.report.quality.lost]
    if damaged:
        yield Message(
            "damaged-input",
            f"Parts of the recordings of {', '.join(damaged)} are lost; see their reports.",
        )
    if nodes.gpus is None and farthest > runs[-1].world_size:
        yield Message(
            "nodes-unknown",
            "What is predicted holds as long as all ranks are joined as those measured are; with "
            "--gpus-per-node it ends where a node does.",
        )
    elif nodes.several(farthest) and nodes.gbps is not None:
        yield Message(
            "nodes-not-measured",
            "Between nodes the bandwidth is the one given, and the latency that inside a node.",
        )


def _different(runs: Sequence[Observed]) -> list[str]:
    recorded = [settings(run.report) for run in runs]
    shared = set.intersection(*map(set, recorded)) - OF_THE_SIZE
    return sorted(name for name in shared if len({str(values[name]) for values in recorded}) > 1)
