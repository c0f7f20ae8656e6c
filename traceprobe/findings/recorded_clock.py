"""What a recording read of a device's clock in its blocks of steps: whether it was one clock."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

import msgspec
from msgspec import UNSET

from traceprobe.model.sidecar import Block, BlockClock
from traceprobe.model.throttle_reasons import POWER_LIMIT, words_of
from traceprobe.verdict.thresholds import FIXED


class RecordedClock(msgspec.Struct, frozen=True):
    """The clock in the blocks of a rank.

    Args:
        sentences: what of it is worth saying. changed: whether steps are of different clocks.
        others_percent: of the time for which other processes computed on the device, by the driver.
        alone: whether the driver tells of other processes, and that there were none.
        limits: what kept the clock low in any block, by NVML's names.
    """

    sentences: list[str]
    changed: bool = False
    others_percent: float = 0.0
    alone: bool = False
    limits: tuple[str, ...] = ()

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why steps are of different clocks."""
        return self.limits if self.changed else ()

    @property
    def at_its_own_limit(self) -> bool:
        """Whether it is the power of this program's own work that keeps the clock low."""
        return self.alone and self.limits == (POWER_LIMIT,)

    @property
    def shared(self) -> bool:
        """Whether other processes computed on the device."""
        return self.others_percent >= FIXED.clock_others_percent


def of_rank(rank: int, several: bool) -> str:
    """What a sentence about a rank begins with; nothing where it is the only one."""
    return f"rank {rank}: " if several else ""


class _Timed(msgspec.Struct, frozen=True):
    """A clock and how long it is the mean of."""

    mhz: float
    ms: float


def recorded_clock(blocks: Sequence[Block]) -> RecordedClock:
    """What the blocks that count say of the device.

    The lowest reading of a block says nothing: at its power limit the clock moves all the time.
    """
    counted = [b for b in blocks if b.kept and b.clock is not UNSET]
    plain = _mean(_timed(b) for b in counted if not b.profiled)
    profiled = _mean(_timed(b) for b in counted if b.profiled)
    each = [timed for b in counted if (timed := _timed(b)) is not None]
    low, high = (f(each, key=lambda t: t.mhz, default=None) for f in (min, max))
    sentences = []
    if plain and profiled and _differ(plain, profiled):
        sentences.append(
            f"the GPU's clock was {plain.mhz:.0f} MHz in the steps without the profiler and "
            f"{profiled.mhz:.0f} MHz in those with it"
        )
    elif low and high and _differ(low, high):
        sentences.append(
            f"the GPU's clock was between {low.mhz:.0f} and {high.mhz:.0f} MHz in blocks of steps"
        )
    changed = bool(sentences)
    clocks = [b.clock for b in counted if isinstance(b.clock, BlockClock)]
    reasons = tuple(dict.fromkeys(name for clock in clocks for name in clock.throttled))
    if changed and (words := words_of(reasons)):
        sentences.append(f"what lowered it: {', '.join(words)}")
    others = min(_others_percent(counted), 100.0)
    told = all(clock.others_percent is not None for clock in clocks)
    alone = bool(clocks) and told and others < FIXED.clock_others_percent
    return RecordedClock(sentences, changed, others, alone, reasons)


def _others_percent(blocks: Sequence[Block]) -> float:
    """The most that other processes used in a block, if they did beside this program.

    The driver tells means of a time that may begin before a block. So what falls from block to
    block to nothing is what was left of a job that ended, as the one of a queue does before the
    next begins; a neighbour is there in the last block too, or comes when there was none. Nor is a
    share left over that has not fallen when the profiler runs: the first blocks are long over.

    Args:
        blocks: in order.

    Returns:
        % of the time.
    """
    clocks = ((b.profiled, b.clock) for b in blocks if isinstance(b.clock, BlockClock))
    each = [(profiled, c.others_percent) for profiled, c in clocks if c.others_percent is not None]
    least = FIXED.clock_others_percent
    stayed = any(
        after >= least and (before < least or (profiled and after >= before))
        for (_, before), (profiled, after) in pairwise(each)
    )
    return max(p for _, p in each) if stayed or (each and each[-1][1] > 0) else 0.0


def _timed(block: Block) -> _Timed | None:
    """The clock of a block; by the kernel of known cycles where nobody could read it."""
    if not isinstance(block.clock, BlockClock):
        return None
    mhz = block.clock.sm_mhz or block.clock.spin_mhz
    return _Timed(mhz, block.steps * block.step_ms) if mhz else None


def _mean(blocks: Iterable[_Timed | None]) -> _Timed | None:
    """All of them together."""
    known = [block for block in blocks if block is not None]
    ms = sum(block.ms for block in known)
    return _Timed(sum(block.mhz * block.ms for block in known) / ms, ms) if ms else None


def _differ(one: _Timed, other: _Timed) -> bool:
    """Whether two clocks differ by more than the reading of times so short does."""
    brief = min(one.ms, other.ms) < FIXED.clock_brief_ms
    least = FIXED.clock_brief_changed if brief else FIXED.clock_changed
    return max(one.mhz, other.mhz) >= least * min(one.mhz, other.mhz)
