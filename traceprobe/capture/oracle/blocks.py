"""Blocks of iterations under conditions that take turns, in a loop that stays the program's own.

Each generator here yields where the program is to make one iteration, and goes on when that has
ended. The device is waited for at the two ends of a block only, so that iterations overlap as in
training; conditions take turns, so that a machine that warms up or slows down does so for all.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field

from traceprobe.capture.oracle.ranks import agreed, synchronize
from traceprobe.capture.oracle.step_clock import StepClock
from traceprobe.capture.recording.steadiness import WINDOW, Steadiness

LEAD_IN = 2
"""Steps before each block: the allocator, the queues and DDP get used to the condition."""
PROBE = 3
"""Steps whose duration decides how many a block has, or as many more as make whole turns."""
FEWEST, MOST = 4, 2000
CHECK = 4
"""Warm-up steps between two questions whether the pace is steady: the ranks answer together."""
LEAST_WARM_UP = 2 * WINDOW
"""Steps that tell that the pace is steady, after those that are made in any case."""
MOST_CATCHING_UP = 100
"""Steps more than its lead-in after which a block begins in any case."""
MOST_WARMUP = 200
WARMUP_S = 60.0
"""A loop that is not steady by then is measured as it is."""

Steps = Generator[None, None, None]


class Unavailable(Exception):
    """A condition that this program cannot be put under; its text says why."""


@dataclass(frozen=True)
class Condition:
    """What a block of steps is made under.

    Args:
        name: of the condition, unique among those that take turns.
        hold: what is entered at a block's begin and left at its end, however that comes about. It
            may raise `Unavailable`, or anything else, on entering: then the condition is absent.
        turn: blocks have a multiple of so many steps, besides the period of the loop.
        lead_in: steps before each block that do not count.
        pace: makes a step where the loop does not make it; the program waits meanwhile.
        caught_up: whether the block may begin; until then its lead-in goes on.
    """

    name: str
    hold: Callable[[], AbstractContextManager[object]]
    turn: int = 1
    lead_in: int = LEAD_IN
    pace: Callable[[], object] | None = None
    caught_up: Callable[[], bool] = lambda: True


@dataclass(frozen=True)
class StepBlock:
    """Steps in a row under one condition.

    Args:
        condition: its name. number: of the round of blocks, from 0.
        first: iterations of the program before it, since the first block began.
        seconds: from the synchronised begin to the synchronised end.
        step_s: of each step, by the device's clock where there is a GPU.
    """

    condition: str
    number: int
    first: int
    seconds: float
    step_s: list[float]


@dataclass
class Blocks:
    """All blocks in order of time, and the conditions that could not be had with the reasons."""

    steps: dict[str, int] = field(default_factory=dict)
    """In each block of a condition."""
    blocks: list[StepBlock] = field(default_factory=list)
    absent: dict[str, str] = field(default_factory=dict)
    paces: dict[str, float] = field(default_factory=dict)
    """Seconds of a step in the last block of a condition, that of the trial included."""
    iterations: int = 0
    """Of the program so far."""
    wanted: int | None = None
    """Iterations of the program that all blocks take; None until that is known."""

    def of(self, condition: str) -> list[StepBlock]:
        """The blocks of a condition."""
        return [block for block in self.blocks if block.condition == condition]


def warm_up(least: int) -> Generator[None, None, Steadiness]:
    """Steps until the pace is steady on all ranks, within bounds.

    Args:
        least: steps that are made in any case.
    """
    pace = Steadiness()
    for _ in range(least):
        yield
    began = before = time.perf_counter()
    while True:
        for _ in range(CHECK):
            yield
            now = time.perf_counter()
            pace.add(now - before)
            before = now
        impatient = pace.steps >= MOST_WARMUP or now - began > WARMUP_S
        if not agreed(int(not (pace.steady or impatient))):
            return pace


def foreseen_steps(conditions: int, rounds: int, seconds: float, step_s: float | None) -> int:
    """Iterations of the program that `interleaved` takes, as far as its pace tells.

    Args:
        conditions: in which the program makes the steps.
        step_s: a typical step; None where nothing is known of it.
    """
    steps = FEWEST if not step_s else min(max(math.ceil(seconds / step_s), FEWEST), MOST)
    return conditions * (LEAD_IN + PROBE + rounds * (LEAD_IN + steps))


def interleaved(
    conditions: Sequence[Condition],
    rounds: int,
    seconds: float,
    period: int = 1,
    report: Callable[[str], None] = lambda _: None,
    made: Blocks | None = None,
) -> Generator[None, None, Blocks]:
    """`rounds` blocks of each condition; every round begins with another one.

    Args:
        seconds: how long a block should take; decides its steps, the same on all ranks.
        period: steps after which the loop repeats itself; blocks are whole periods.
        report: told what is being done.
        made: where the blocks go as they are made; for who wants to see them before the end.
    """
    made = made or Blocks()
    period = agreed(period)
    for condition in conditions:
        report(f"trying {condition.name}")
        turn = agreed(math.lcm(period, condition.turn))
        # Within a turn most batches are there at once, and one is waited for.
        tried = yield from _block(condition, PROBE + -PROBE % turn, 0, made)
        if tried is not None:
            wanted = seconds * len(tried.step_s) / tried.seconds
            steps = agreed(min(max(math.ceil(wanted), FEWEST), MOST))
            made.steps[condition.name] = steps + -steps % turn
    trained = [c for c in conditions if c.pace is None and c.name in made.steps]
    made.wanted = made.iterations + rounds * sum(c.lead_in + made.steps[c.name] for c in trained)
    for number in range(rounds):
        report(f"round {number + 1} of {rounds}")
        first = number % len(conditions)  # no condition always follows the same other
        for condition in (*conditions[first:], *conditions[:first]):
            if condition.name not in made.absent:
                steps = made.steps[condition.name]
                block = yield from _block(condition, steps, number, made)
                if block is not None:
                    made.blocks.append(block)
    made.blocks = [block for block in made.blocks if block.condition not in made.absent]
    return made


def _block(
    condition: Condition, steps: int, number: int, made: Blocks
) -> Generator[None, None, StepBlock | None]:
    """One block; None, and the reason among those absent, where some rank cannot make it."""
    with ExitStack() as held:
        why = ""
        try:
            held.enter_context(condition.hold())
        except Unavailable as reason:
            why = str(reason)
        except Exception as error:  # the program must go on, and the other conditions with it
            why = f"{type(error).__name__}: {error}"
        if agreed(int(bool(why))):
            made.absent[condition.name] = why or "another rank of the program cannot do without it"
            made.steps.pop(condition.name, None)
            return None
        if condition.pace is None:
            yield from _lead_in(condition, made)
        synchronize()
        first = made.iterations
        clock = StepClock()
        clock.mark()
        for _ in range(steps):
            yield from _steps(condition, 1, made)
            clock.mark()
        synchronize(together=False)
        seconds, step_s = clock.end()
    made.paces[condition.name] = seconds / steps
    return StepBlock(condition.name, number, first, seconds, step_s)


def _lead_in(condition: Condition, made: Blocks) -> Steps:
    yield from _steps(condition, agreed(condition.lead_in), made)
    for _ in range(MOST_CATCHING_UP // CHECK):
        if not agreed(int(not condition.caught_up())):
            return
        yield from _steps(condition, CHECK, made)
        if made.wanted is not None:
            made.wanted += CHECK


def _steps(condition: Condition, count: int, made: Blocks) -> Steps:
    for _ in range(count):
        if condition.pace is None:
            yield
            made.iterations += 1
        else:
            condition.pace()
