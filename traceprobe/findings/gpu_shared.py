"""Does another process compute on the GPU?"""

from __future__ import annotations

from msgspec import UnsetType

from traceprobe.findings.evidence import Evidence
from traceprobe.findings.recorded_clock import of_rank, recorded_clock
from traceprobe.findings.rule import Answer, not_applicable, rule
from traceprobe.formatting import percent, significant
from traceprobe.model.accounting import FEWEST_STEADY
from traceprobe.model.taxonomy import SHARE_CLASSES
from traceprobe.records.rank import Rank

_ADVICE = (
    "Look for other jobs on the GPU with `nvidia-smi`, and on its host: a container or a virtual "
    "machine does not see those of others. Train where nothing else computes."
)


@rule(
    "gpu-shared",
    title="Another process computes on the GPU",
    definition="What the driver reports of other processes, where a recording asked it. And "
    "kernels of several names that take longer than the same ones (name, grid and place in the "
    "iteration) usually do, in most iterations and all by the same time: slices of the GPU that "
    "another process had, 5 % of the time of all kernels or more. These are the saving, which does "
    "not count kernels that are stopped in most iterations.",
    verify="Time the loop on another GPU, or with nothing else on the host.",
    of_gpu=True,
)
def gpu_shared(evidence: Evidence) -> Answer:
    """Slices of time, and what the driver tells."""
    clocks = {rank: recorded_clock(blocks) for rank, blocks in evidence.blocks.items()}
    read = {rank: clock.others_percent for rank, clock in clocks.items() if clock.shared}
    stopped = [rank for rank in evidence.ranks if not isinstance(rank.slices, UnsetType)]
    looked = clocks or any(r.summary.iterations_used >= FEWEST_STEADY for r in evidence.ranks)
    if not looked:
        return not_applicable("too few iterations to compare, and the driver was not asked")
    if not read and not stopped:
        return Answer("pass", ["nothing shows another process on the GPU"])
    several = len(evidence.ranks) > 1
    lost = evidence.of_steps((_lost_ns(rank), rank.summary.steps) for rank in evidence.ranks)
    return Answer(
        "warn",
        [
            *(
                f"{of_rank(rank, several)}other processes used the GPU for {percent(used / 100)} "
                "of the time"
                for rank, used in read.items()
            ),
            *(_sentence(rank, several) for rank in stopped),
        ],
        evidence.saving(lost, *SHARE_CLASSES["compute"]) if stopped else None,
        _ADVICE,
    )


def _lost_ns(rank: Rank) -> int:
    return 0 if isinstance(rank.slices, UnsetType) else rank.slices.extra_ns


def _sentence(rank: Rank, several: bool) -> str:
    slices = rank.slices
    if isinstance(slices, UnsetType):
        return ""
    lost = slices.extra_ns / rank.summary.steps / 1e6
    return (
        f"{of_rank(rank.rank, several)}{slices.count} kernels of {slices.kinds} kinds take "
        f"{significant(slices.slice_ns / 1e6)} ms longer than usual, all by the same amount: "
        f"another process had the GPU for {significant(lost)} ms per step"
    )
