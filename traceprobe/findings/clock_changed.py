"""Was the GPU equally fast throughout the capture?"""

from __future__ import annotations

from msgspec import UnsetType

from traceprobe.findings.evidence import Evidence
from traceprobe.findings.recorded_clock import of_rank, recorded_clock
from traceprobe.findings.rule import Answer, rule
from traceprobe.model.throttle_reasons import advice_for
from traceprobe.records.rank import Rank, SpeedChange

_LOOK = (
    "Look for a limit on power or heat (`nvidia-smi -q -d PERFORMANCE`) and for other jobs on the "
    "host; capture again when the GPU is warm and alone, or lock its clocks (`nvidia-smi -lgc`)."
)
_OWN = (
    "Nobody else was seen on the GPU, so this program's own load causes it. Nothing needs fixing; "
    "step times reflect the clock at that moment."
)


@rule(
    "clock-changed",
    title="The GPU's speed changed during the capture",
    definition="How much longer the same kernels (name, grid and place in the iteration) take in "
    "some iterations than in others: the median over their time, communication left out, and what "
    "runs beside it in some of them only. From a ratio of 1.1 on, the smaller part of the "
    "iterations is left out where at least three remain. Where the recording read the clock: its "
    "mean in steps without the profiler against those with it, and in blocks of steps against each "
    "other.",
    verify="`nvidia-smi dmon -s pc` shows power and clocks during the run; a capture at a constant "
    "clock has no such finding.",
    of_capture=True,
    of_gpu=True,
)
def clock_changed(evidence: Evidence) -> Answer:
    """The same kernels take longer in a part of the capture, or the clock was read to change."""
    several = len(evidence.ranks) > 1
    changed = [(r, r.speed) for r in evidence.ranks if not isinstance(r.speed, UnsetType)]
    clocks = {rank: recorded_clock(blocks) for rank, blocks in evidence.blocks.items()}
    read = [(rank, clock) for rank, clock in clocks.items() if clock.changed]
    if not changed and not read:
        return Answer("pass", ["the same kernels take equally long in all iterations"])
    kept = any(not speed.left_out for _, speed in changed)
    reasons = {name for _, clock in read for name in clock.reasons}
    ranks = {rank for rank, _ in read} | {r.rank for r, _ in changed}
    own = all(rank in clocks and clocks[rank].at_its_own_limit for rank in ranks)
    return Answer(
        "fail" if kept else "warn",
        [
            *(_sentence(rank, speed, several) for rank, speed in changed),
            *(f"{of_rank(rank, several)}{said}" for rank, c in read for said in c.sentences),
        ],
        advice=" ".join(filter(None, (advice_for(reasons), _OWN if own else _LOOK))),
    )


def _sentence(rank: Rank, speed: SpeedChange, several: bool) -> str:
    where = of_rank(rank.rank, several)
    counted = f"{len(speed.left_out)} of them do not count" if speed.left_out else "all count"
    slow = ", ".join(map(str, speed.slow))
    return (
        f"{where}the same {speed.kernels} kernels take {speed.ratio:.2f} times as long in "
        f"iterations {slow}; {counted}"
    )
