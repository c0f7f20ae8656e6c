"""What the ranks of one program measured to a record of its probes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

import numpy as np

from traceprobe.capture.oracle.probe_plan import RankProbes
from traceprobe.errors import UsageError
from traceprobe.records.causal import Causal, Delayed, ProbedRegion, RegionName, Resource
from traceprobe.verdict import criticality
from traceprobe.version import __version__

Floats = criticality.Floats
FEWEST_ROUNDS = 2
"""That have an interval."""


def check_rounds(rounds: int) -> None:
    """Refuse what would give slopes without intervals.

    Raises:
        UsageError: there are too few rounds.
    """
    if rounds < FEWEST_ROUNDS:
        raise UsageError(f"a slope with an interval needs --trials {FEWEST_ROUNDS} at least")


def summarize_probes(ranks: Mapping[int, RankProbes]) -> Causal:
    """The probes of a run; the slowest rank sets a block's time.

    Args:
        ranks: what each rank measured; every rank has the same conditions and blocks, and there
            are two rounds of them at least.
    """
    first = ranks[min(ranks)]
    steps = {
        name: 1e3 * np.max([rank.step_s[name] for rank in ranks.values()], axis=0)
        for name in first.step_s
    }
    given = {
        name: 1e3 * np.mean([rank.given_s[name] for rank in ranks.values()], axis=0)
        for name in first.given_s
    }
    rounds = len(steps["bare"])
    bases = np.stack([ms for name, ms in steps.items() if name.startswith("base/")], axis=1)
    return Causal(
        schema_version=Causal.SCHEMA_VERSION,
        traceprobe_version=__version__,
        **first.run,
        ranks=len(ranks),
        rounds=rounds,
        steps_per_block=first.steps["base/1"],
        workers=first.workers,
        step_ms=round(float(np.mean(steps["bare"])), 6),
        hooks_ms=criticality.difference(steps["bare"], bases.mean(axis=1)),
        regions=[
            _region(region, resource, levels, bases)
            for region in get_args(RegionName)
            for resource in get_args(Resource)
            if (levels := _levels(f"{region}/{resource}/", given, steps))
        ],
    )


def _levels(
    prefix: str, given: Mapping[str, Floats], steps: Mapping[str, Floats]
) -> list[tuple[Floats, Floats]]:
    """Delays and steps of a region's conditions, each a value a round."""
    return [(given[name], steps[name]) for name in sorted(given) if name.startswith(prefix)]


def _region(
    region: RegionName, resource: Resource, levels: list[tuple[Floats, Floats]], bases: Floats
) -> ProbedRegion:
    delays, steps = (np.stack(column, axis=1) for column in zip(*levels, strict=True))
    if region != "collectives":  # which has a condition without delay of its own
        delays = np.concatenate([np.zeros_like(bases), delays], axis=1)
        steps = np.concatenate([bases, steps], axis=1)
    found = criticality.slope(delays, steps)
    blocks = [(0.0, float(bases.mean())), *((float(d.mean()), float(s.mean())) for d, s in levels)]
    if region == "collectives":
        blocks = blocks[1:]
    return ProbedRegion(
        region=region,
        resource=resource,
        slope=found,
        judgement=criticality.judge(found),
        blocks=[
            Delayed(delay_ms=round(delay, 6), step_ms=round(step, 6))
            for delay, step in sorted(blocks)
        ],
    )
