"""Delays put into a running program that knows nothing of us, and the steps timed with them.

Conditions that take turns, a block of steps each:

    bare                   the program without our hooks
    base/N                 with the hooks, and no delay
    REGION/RESOURCE/LEVEL  with a delay, once a step; level 2 is twice level 1, and 0 none
"""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

from traceprobe.capture.machine.device import computes
from traceprobe.capture.machine.hardware import collect_environment
from traceprobe.capture.oracle.blocks import (
    LEAD_IN,
    Blocks,
    Condition,
    Unavailable,
    foreseen_steps,
    interleaved,
    warm_up,
)
from traceprobe.capture.oracle.delays import Delay, DeviceSpin, HostSpin
from traceprobe.capture.oracle.late_collectives import LateCollectives, held_groups
from traceprobe.capture.oracle.places import PLACES, Places
from traceprobe.capture.oracle.probe_plan import ProbePlan, RankProbes
from traceprobe.capture.oracle.ranks import agreed
from traceprobe.capture.oracle.trial_session import TrialSession
from traceprobe.capture.oracle.worker_delay import DelayFile, WorkerDelay
from traceprobe.capture.process.progress import DONE

SHARE = 0.05
"""Of a step: the smaller delay. Larger ones change what they are to measure."""
LEAST_S = 20e-6
"""A delay that a clock, and a launch, are small beside."""
LEVELS = (1, 2)
BASES_EVERY = 4
"""Conditions with a delay to one without: all are compared with these."""
MOST_LEAD_IN = 32
"""Steps for the queues of a loader to get used to a delay."""
_DEVICE_PLACES = ("forward", "backward", "optimizer")


class ProgramProbes(TrialSession):
    """Takes a loop through its blocks, each with a delay somewhere."""

    def __init__(self, plan: ProbePlan, *, updates_counted: bool = False) -> None:
        super().__init__(plan, updates_counted=updates_counted)
        self._plan = plan
        self._places = Places()
        self._file = DelayFile.of_this_process(plan.folder)
        self._given: dict[str, list[float]] = {}
        self._absent: dict[str, str] = {}

    def _step_begins(self) -> None:
        self._places.step()

    def _trials_take(self, step_s: float | None) -> int:
        if self._made.wanted is not None:
            return self._made.wanted
        plan = self._plan
        probed = len(LEVELS) * (len(PLACES) + len(_DEVICE_PLACES) * int(computes()))
        bases = math.ceil(probed / BASES_EVERY)
        looks = foreseen_steps(1, 1, plan.seconds, step_s) + foreseen_steps(1, 1, 0.0, None)
        return looks + foreseen_steps(1 + bases + probed, plan.rounds, plan.seconds, step_s)

    def _run(self) -> Generator[None, None, None]:
        plan = self._plan
        self._report("warming up")
        pace = yield from warm_up(plan.warmup)
        period = pace.period
        tried = yield from interleaved([Condition("bare", nullcontext)], 1, plan.seconds, period)
        step_s = statistics.fmean(_steps_s(tried, "bare", period))
        graphs = _compiled_graphs()
        tried = yield from self._look(period)
        if agreed(int(_compiled_graphs() != graphs)):
            self._places.banned.add("forward")
            self._absent["forward"] = "the hook for it would have the program compiled again"
            yield from self._look(period)
        conditions = self._conditions(agreed(round(max(SHARE * step_s, LEAST_S) * 1e9)) / 1e9)
        made = yield from interleaved(
            conditions, plan.rounds, plan.seconds, period, self._report, self._made
        )
        self._finish(made, math.lcm(period, *(condition.turn for condition in conditions)))

    def _look(self, period: int) -> Generator[None, None, Blocks]:
        """See which places the steps pass."""
        self._places.passed.clear()
        self._places.asked.clear()
        self._places.steps = 0
        base = Condition("base", self._places.installed)
        return (yield from interleaved([base], 1, 0.0, period))

    def _conditions(self, least_s: float) -> list[Condition]:
        """What can be measured of this program; the reasons for the rest go into the results."""
        workers, _, _ = self._loader()
        probed: list[Condition] = []
        for place in PLACES:
            if not self._reached(place):
                continue
            # With workers a delay there is one between the steps.
            if place != "batch":
                probed += self._levels(place, "host", place, HostSpin, least_s)
            elif not workers:
                probed += self._levels("loader", "host", place, HostSpin, least_s)
            if place in _DEVICE_PLACES and computes():
                probed += self._levels(place, "device", place, DeviceSpin, least_s)
        probed += self._workers(least_s)
        probed += self._collectives(least_s)
        if not computes():
            self._absent["device"] = "there is no GPU"
        found = [Condition("bare", nullcontext)]
        for number in range(0, len(probed), BASES_EVERY):
            found.append(Condition(f"base/{number // BASES_EVERY + 1}", self._places.installed))
            found += probed[number : number + BASES_EVERY]
        # Workers deliver in turn: only whole turns have the mean pace.
        return [replace(condition, turn=max(workers, 1)) for condition in found]

    def _reached(self, place: str) -> bool:
        """Whether the steps of all ranks pass a place, or nearly: an epoch may end between."""
        name = {"batch": "loader"}.get(place, place)
        missed = 2 * self._places.passed[place] < self._places.steps
        if agreed(int(missed)) and name not in self._absent:
            self._absent[name] = {
                "batch": "no DataLoader of PyTorch gives the steps their batches",
                "forward": "no module is called from Python on the thread that trains",
                "backward": "gradients are not asked for on the thread that trains",
                "optimizer": "the optimizer does not update on the thread that trains",
            }.get(place, "the steps do not pass it")
        return name not in self._absent

    def _loader(self) -> tuple[int, int, float]:
        """Workers of the loader that feeds the steps, batches in its queues, batches a step."""
        most = self._places.asked.most_common(1) or [((0, 0), 0)]
        (workers, queued), count = most[0]
        return agreed(workers), queued, count / max(self._places.steps, 1)

    def _levels(
        self, region: str, resource: str, place: str, kind: Callable[[float], Delay], least_s: float
    ) -> list[Condition]:
        return [
            Condition(name, partial(self._delayed, name, place, kind(level * least_s)))
            for level in LEVELS
            for name in [f"{region}/{resource}/{level}"]
        ]

    def _workers(self, least_s: float) -> list[Condition]:
        workers, queued, batches_per_step = self._loader()
        if not workers or "loader" in self._absent:
            return []
        kind = partial(
            WorkerDelay,
            self._file,
            workers=workers,
            batches_per_step=batches_per_step,
            asked=lambda: sum(self._places.asked.values()),
        )
        lead_in = min(LEAD_IN + round(queued / batches_per_step), MOST_LEAD_IN)
        return [
            Condition(c.name, c.hold, lead_in=lead_in)
            for c in self._levels("loader", "workers", "", lambda s: kind(seconds=s), least_s)
        ]

    def _collectives(self, least_s: float) -> list[Condition]:
        try:
            groups = held_groups()
        except Unavailable as reason:
            self._absent["collectives"] = str(reason)
            groups = []
        if agreed(int(not groups)):
            return []
        found = []
        for level in (0, *LEVELS):
            name = f"collectives/network/{level}"
            late = LateCollectives(level * least_s, groups)
            found.append(Condition(name, partial(self._delayed, name, "backward", late)))
        return found

    @contextmanager
    def _delayed(self, name: str, place: str, delay: Delay) -> Iterator[None]:
        given, steps = delay.given_s, self._places.steps
        with self._places.installed():
            try:
                with delay.ready():
                    self._places.actions[place] = delay
                    yield
            finally:
                self._places.actions.pop(place, None)
        count = max(self._places.steps - steps, 1)
        self._given.setdefault(name, []).append((delay.given_s - given) / count)

    def _finish(self, made: Blocks, turn: int) -> None:
        RankProbes(
            step_s={name: _steps_s(made, name, turn) for name in made.steps},
            # The first block of each only found out how many steps the others have.
            given_s={name: given[1:] for name, given in self._given.items() if name in made.steps},
            steps=made.steps,
            absent={**self._absent, **made.absent},
            workers=self._loader()[0],
            workload={**self._workload, **self._described},
            **collect_environment(),
        ).save(self._folder)
        self._report(DONE)


def _steps_s(made: Blocks, name: str, turn: int) -> list[float]:
    """A step of each block: the median over turns of so many steps.

    The first step after a wait for the device shows what the host does, which others may hide.
    """
    return [statistics.median(_means(block.step_s, turn)) for block in made.of(name)]


def _means(steps: list[float], turn: int) -> list[float]:
    whole = max(len(steps) // turn, 1) * turn
    return [statistics.fmean(steps[first : first + turn]) for first in range(0, whole, turn)]


def _compiled_graphs() -> int:
    """Graphs that torch.compile has made in this process."""
    dynamo: Any = sys.modules.get("torch._dynamo.utils")
    return int(dynamo.counters["stats"]["unique_graphs"]) if dynamo is not None else 0
