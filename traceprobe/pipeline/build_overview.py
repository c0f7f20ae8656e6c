"""Many ranks at a glance: groups of similar ones, the worst, the median, and every step of each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from msgspec import UNSET
from msgspec.structs import replace

from traceprobe.model import taxonomy
from traceprobe.model.codes import Int64s
from traceprobe.records.rank import Rank
from traceprobe.records.run import Overview, RankGroup, StepMatrix

FEWEST = 3
"""Ranks from which on there is something to survey."""
TOLERANCE = 0.05
"""By how much the members of a group may differ in a share, and in step time as a fraction of the
median step."""
MAX_BINS = 64
ALL_DETAILED = 16
"""Ranks up to which all keep their details."""
MAX_DETAILED = 8
"""Ranks that keep them where there are more."""
Floats = npt.NDArray[np.float64]


def survey(ranks: Sequence[Rank], straggler: int | None) -> tuple[Overview, list[Rank]]:
    """The overview, and the ranks without the details of those that stand for no others.

    Args:
        ranks: at least one.
        straggler: rank that the others wait for, if there is one.
    """
    step = np.array([r.summary.window_ns / r.summary.steps for r in ranks])
    own = step - np.array([_waited(r) for r in ranks])
    share = np.array([[r.summary.share[name] for name in taxonomy.SHARES] for r in ranks])
    groups = similar(step, share)
    worst, median = int(np.argmax(own)), _median(own, np.arange(len(ranks)))
    medians = [_median(step, group) for group in groups]
    stragglers = [n for n, r in enumerate(ranks) if r.rank == straggler][:1]
    detailed = set(range(len(ranks)))
    if len(ranks) > ALL_DETAILED:
        detailed = set(list(dict.fromkeys([worst, median, *stragglers, *medians]))[:MAX_DETAILED])
    overview = Overview(
        groups=[
            RankGroup(
                members=[ranks[n].rank for n in group.tolist()], median_rank=ranks[middle].rank
            )
            for group, middle in zip(groups, medians, strict=True)
        ],
        worst_rank=ranks[worst].rank,
        median_rank=ranks[median].rank,
        detailed_ranks=[rank.rank for n, rank in enumerate(ranks) if n in detailed],
        steps=_steps(ranks),
    )
    kept = [rank if n in detailed else _brief(rank) for n, rank in enumerate(ranks)]
    return overview, kept


def similar(step: Floats, share: Floats) -> list[Int64s]:
    """Groups of ranks any two of which agree within `TOLERANCE`; the largest first.

    Ranks are taken by step time, and each joins the first group that it fits all members of.

    Args:
        step: per rank; share: (rank, share).

    Returns:
        Positions of the members of each group, ascending.
    """
    middle = float(np.median(step))
    features = np.column_stack([step / middle if middle else step, share])
    low, high = np.empty_like(features), np.empty_like(features)
    groups: list[list[int]] = []
    for n in np.argsort(step, kind="stable").tolist():
        below = np.minimum(low[: len(groups)], features[n])
        above = np.maximum(high[: len(groups)], features[n])
        fits = np.flatnonzero((above - below <= TOLERANCE).all(axis=1))
        if len(fits):
            g = int(fits[0])
            low[g], high[g] = below[g], above[g]
            groups[g].append(n)
        else:
            low[len(groups)] = high[len(groups)] = features[n]
            groups.append([n])
    ordered = [np.sort(np.array(group, np.int64)) for group in groups]
    return sorted(ordered, key=lambda group: (-len(group), int(group[0])))


def _waited(rank: Rank) -> float:
    """Exposed waiting for other ranks, ns per step; 0 where it is not known."""
    communication = rank.summary.communication
    waited = 0 if communication is None else communication.skew_exposed_ns or 0
    return waited / rank.summary.steps


def _median(values: Floats, members: Int64s) -> int:
    """The member with the median value, the lower of two, then the first."""
    order = members[np.argsort(values[members], kind="stable")]
    return int(order[(len(order) - 1) // 2])


def _brief(rank: Rank) -> Rank:
    """A rank without what only a detailed look at it needs."""
    metrics = rank.summary.gpu_metrics
    summary = replace(
        rank.summary,
        gpu_metrics=UNSET if metrics is UNSET else replace(metrics, iterations=[]),
        kernel_counters=UNSET,
        top_kernels=[],
        operators=UNSET,
        sequences=UNSET,
        collectives=[],
        collectives_left_out=rank.summary.collectives_left_out + len(rank.summary.collectives),
    )
    return replace(
        rank,
        iterations=[],
        gaps=[],
        picture=UNSET,
        summary=summary,
        replay=UNSET,
        tree=UNSET,
    )


def _steps(ranks: Sequence[Rank]) -> StepMatrix:
    columns = _columns(ranks)
    count = max((int(c.max()) + 1 for c in columns if len(c)), default=0)
    together = max(-(-count // MAX_BINS), 1)
    bins = -(-count // together)
    total, used = np.zeros((len(ranks), bins)), np.zeros((len(ranks), bins), np.int64)
    labels = [""] * bins
    for n, (rank, at) in enumerate(zip(ranks, columns, strict=True)):
        for iteration, column in zip(rank.iterations, at.tolist(), strict=True):
            place, first = divmod(column, together)
            if first == 0 and not labels[place]:
                labels[place] = iteration.label
            if iteration.used and iteration.start_ns is not None and iteration.end_ns is not None:
                total[n, place] += iteration.end_ns - iteration.start_ns
                used[n, place] += 1
    mean = np.round(total / np.maximum(used, 1) / 1e6, 3)
    return StepMatrix(
        ranks=[rank.rank for rank in ranks],
        labels=labels,
        iterations_per_bin=together,
        step_ms=[
            [ms if n else None for ms, n in zip(row, counted, strict=True)]
            for row, counted in zip(mean.tolist(), used.tolist(), strict=True)
        ],
    )


def _columns(ranks: Sequence[Rank]) -> list[Int64s]:
    """Per rank, the column of each of its iterations: the same for the same step of all ranks.

    Captures may begin at different steps, so a rank is moved until a step has the column that
    another rank gave it. Ranks that share no step stay where they are.
    """
    known: dict[str, int] = {}
    found = []
    for rank in ranks:
        shift = next((known[i.label] - i.index for i in rank.iterations if i.label in known), 0)
        for i in rank.iterations:
            known.setdefault(i.label, i.index + shift)
        found.append(np.array([i.index + shift for i in rank.iterations], np.int64))
    first = min((int(c.min()) for c in found if len(c)), default=0)
    return [c - first for c in found]
