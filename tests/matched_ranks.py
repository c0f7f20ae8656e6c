"""Ranks whose collectives have given times, and what they wait for each other.

A step lasts 10 000 ns; collectives are given as (arrival, end) within it. They end on all ranks at
once, but every rank has a clock of its own.
"""

from __future__ import annotations

from tests.builders import memory
from tests.builders.scenario import COMM_STREAM, Process, Script
from traceprobe.timeline import phases
from traceprobe.timeline.collective_waits import collective_waits
from traceprobe.timeline.device_timeline import device_timeline
from traceprobe.timeline.process_timeline import process_timeline
from traceprobe.timeline.rank_collectives import rank_collectives

PITCH = 10_000
STEPS = 6
"""Of which five have windows."""
EARLY = ((2_000, 5_000),)
"""The only collective of a rank that waits for the other."""
LATE = ((4_000, 5_000),)
"""The only collective of a rank that is waited for."""


def scenario_of_rank(
    number,
    *collectives,
    steps=range(STEPS),
    clock=0,
    compute=(1_000, 2_000),
    data_wait=None,
    late=False,
    without=(),
    cut=(),
    world=2,
):
    """A rank whose every step has these collectives.

    Args:
        steps: numbers in the names of the steps.
        late: collectives are launched just before they start, after any `data_wait`.
        without: steps that lack the last collective. cut: steps that lack a GPU row.
    """
    script = Script(Process(1_000 * (number + 1), rank=number), world_size=world)
    for k, name in enumerate(steps):
        at = k * PITCH
        script.range(f"step {name}", at, at + PITCH)
        script.range("forward", at + 50, at + 2_000)
        script.op("kernel", at + 600, at + 700, (at + 60, at + 70))
        script.op("kernel", at + compute[0], at + compute[1], (at + 100, at + 110))
        if data_wait:
            script.range("data_loading", at + data_wait[0], at + data_wait[1])
        if k in cut:
            script.call("cudaLaunchKernel", at + 120, at + 130)
        for i, (begin, end) in enumerate(collectives[:-1] if k in without else collectives):
            call = at + begin - 50 if late else at + 200 + 10 * i
            script.op("comm", at + begin, at + end, (call, call + 5), stream=COMM_STREAM + i)
    return script.build().shifted(clock)


def waits_between(*scenarios):
    """What ranks wait for each other in their collectives."""
    names = phases.compile_phase_names({})
    footprints = []
    for scenario in scenarios:
        trace = memory.trace(scenario)
        for found in trace.devices:
            ready = process_timeline(trace, found.pid, None, names)
            footprints.append(rank_collectives(device_timeline(ready, found.index)))
    return collective_waits(footprints)
