"""What a rank that computes for longer has more of than the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean

import msgspec
from msgspec import UNSET, UnsetType

from traceprobe.formatting import significant
from traceprobe.model.taxonomy import COMPUTE_PHASES
from traceprobe.records.rank import Rank
from traceprobe.verdict.pipeline import is_pipeline
from traceprobe.verdict.thresholds import FIXED

_STAGE = "move layers from its stage of the pipeline to the others."
_MORE_KERNELS = (
    "leave out, or share out, what it alone does. That may be metrics, samples that are generated, "
    "or a second pass."
)
_MORE_DATA = (
    "give it batches of the size and the length that the others get. Sort or bucket samples by "
    "length, and deal them out by tokens."
)
_SLOWER = (
    "its GPU is slower. Check its clock, its temperature and whether other processes use it "
    "(`nvidia-smi -q -d PERFORMANCE`)."
)


class More(msgspec.Struct, frozen=True):
    """What a rank has more of, as evidence, and what to do about it, to follow a colon."""

    told: str
    advice: str


def more_computing(late: Rank, others: Sequence[Rank]) -> More | None:
    """What a rank computes more of than the mean of the others; None where nothing tells.

    Kernels of one program are the same on all ranks that do the same: one that is given more data
    launches as many, with more thread blocks. With as many of both it is the GPU that is slower.
    In a pipeline, ranks do different work by design.
    """
    ranks = [late, *others]
    if not others or late.device.kind == "cpu":
        return None

    def both(of: Callable[[Rank], float]) -> tuple[float, float]:
        return of(late), fmean(map(of, others))

    computing, usual = both(_computing_ms)
    if is_pipeline(ranks):
        told = (
            f"its stage of the pipeline computes {significant(computing)} ms a step, the others "
            f"{significant(usual)} ms"
        )
        return More(told, _STAGE) if computing > FIXED.more_work * usual else None
    kernels, fewer = both(lambda rank: rank.summary.host.kernels_per_step)
    if kernels > FIXED.more_work * fewer:
        told = f"it computes with {kernels:,.0f} kernels a step, the others with {fewer:,.0f}"
        return More(told, _MORE_KERNELS)
    if any(rank.summary.host.blocks_per_step is UNSET for rank in ranks) or not usual:
        return None
    blocks, least = both(_blocks)
    if blocks > FIXED.more_work * least:
        told = (
            f"its kernels have {blocks / least:.2f} times as many thread blocks as those of the "
            "others: it computes on more data"
        )
        return More(told, _MORE_DATA)
    told = (
        "it computes with as many kernels and thread blocks as the others, "
        f"{computing / usual:.2f} times as long"
    )
    alike = kernels * FIXED.more_work > fewer and blocks * FIXED.more_work > least
    slower = alike and computing > FIXED.more_work * usual
    return More(told, _SLOWER) if slower else None


def _computing_ms(rank: Rank) -> float:
    busy = rank.summary.busy_ns
    return sum(busy[phase] or 0 for phase in COMPUTE_PHASES) / rank.summary.steps / 1e6


def _blocks(rank: Rank) -> float:
    blocks = rank.summary.host.blocks_per_step
    return 0.0 if isinstance(blocks, UnsetType) else blocks
