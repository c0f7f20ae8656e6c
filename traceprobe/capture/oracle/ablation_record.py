"""The trials of the ranks of one program to its ablation."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from traceprobe.capture.oracle.ablation_plan import RankTrials
from traceprobe.records.ablation import INCLUDES, Ablation, Interval, Variant, VariantName
from traceprobe.verdict import ablation as verdict
from traceprobe.verdict.thresholds import Thresholds
from traceprobe.version import __version__


def summarize_ablation(
    ranks: Mapping[int, RankTrials], thresholds: Thresholds | None = None
) -> Ablation:
    """The ablation of a run, from the trials of its ranks; the slowest rank sets a trial's time.

    Args:
        ranks: what each rank measured; every rank has the same variants and steps.
    """
    thresholds = thresholds or Thresholds()
    first = ranks[min(ranks)]
    trials: dict[VariantName, verdict.Floats] = {
        name: np.max([rank.seconds[name] for rank in ranks.values()], axis=0)
        * (1e3 / first.steps[name])
        for name in INCLUDES
        if all(name in rank.seconds for rank in ranks.values())
    }
    busy = [rank.busy_ns for rank in ranks.values() if rank.busy_ns is not None]
    busy_ms = round(max(busy) / 1e6, 6) if busy else None
    return Ablation(
        schema_version=Ablation.SCHEMA_VERSION,
        traceprobe_version=__version__,
        **first.run,
        ranks=len(ranks),
        variants=[
            Variant(
                name=name,
                includes=INCLUDES[name],
                steps_per_trial=first.steps[name],
                trial_ms=[round(ms, 6) for ms in values.tolist()],
                step_ms=verdict.interval(values),
                samples_per_second=_rate(first, "samples_per_step", values),
                tokens_per_second=_rate(first, "tokens_per_step", values),
            )
            for name, values in trials.items()
        ],
        gpu_busy_ms=busy_ms,
        overlap=verdict.overlap(trials),
        # Where communication could not be taken out, idle GPU may be waiting for other ranks.
        oracle=verdict.judge_ablation(
            trials, None if any(r.collectives for r in ranks.values()) else busy_ms, thresholds
        ),
    )


def _rate(rank: RankTrials, unit: str, step_ms: verdict.Floats) -> Interval | None:
    """A throughput of all ranks together; None where nobody says how much a step is."""
    amount = rank.workload.get(unit)
    return verdict.interval(1e3 * amount / step_ms) if isinstance(amount, (int, float)) else None
