"""How far blocks of steps without the profiler agree on the pace of the loop."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean

from traceprobe.formatting import percent
from traceprobe.model.sidecar import Block
from traceprobe.verdict.thresholds import FIXED


def in_doubt(blocks: Iterable[Sequence[Block]]) -> float:
    """Part of the step without the profiler that its fastest block does not have.

    What else runs on a machine makes steps longer and never shorter, so a host may be late for so
    much without any doing of the program. That is no reason to take the fastest block for the step:
    of 30 recordings whose blocks differed, against the steps of other blocks of the same process,
    the mean was 7 % off and the fastest 8 to 9 %.

    Args:
        blocks: of each rank; ranks step together, so the least counts.

    Returns:
        0 where the blocks that count have one pace, or there is but one.
    """
    return min((_in_doubt(each) for each in blocks), default=0.0)


def _in_doubt(blocks: Sequence[Block]) -> float:
    plain = [block for block in blocks if block.plain]
    own = [block.step_ms - (block.data_wait_ms or 0.0) for block in plain]
    if len(own) < 2 or max(own) <= FIXED.same_pace * min(own):
        return 0.0
    mean = fmean(block.step_ms for block in plain)
    return (fmean(own) - min(own)) / mean if mean else 0.0


def several_paces(share: float) -> str:
    """What such a share of the step means for a finding; empty for none."""
    if not share:
        return ""
    return (
        f"steps without the profiler had several paces: {percent(share)} of a step is more than "
        "the fastest of them took, and may be the machine's doing"
    )
