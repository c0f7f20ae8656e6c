"""Runs drawn by hypothesis: a few crowded steps in which rows overlap, touch and are missing."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from tests.builders.scenario import AUTOGRAD, COMM_STREAM, PID, STREAM, Process, Scenario, Script

PITCH = 300
BEGIN = 1_000
"""Kineto has no row at time 0."""
LOADER_THREAD = 1099
THREADS = (PID, AUTOGRAD, LOADER_THREAD)
KINDS = ("kernel", "kernel", "kernel", "comm", "h2d", "d2h", "d2d", "memset")
RANGES = ("forward", "optimizer", "data_loading", "h2d", "block")
TWO_DEVICES = Process(devices=("NVIDIA H200",) * 2)


@st.composite
def _op(draw, steps):
    at = draw(st.integers(0, steps * PITCH - 1))
    start = at + draw(st.integers(0, 2 * PITCH))
    return {
        "kind": draw(st.sampled_from(KINDS)),
        "t0": start,
        "t1": start + draw(st.integers(0, 120)),
        "launch": (at, at + draw(st.integers(1, 6))) if draw(st.integers(0, 9)) else None,
        "thread": draw(st.sampled_from(THREADS)),
        "stream": draw(st.sampled_from((STREAM, COMM_STREAM))),
        "device": draw(st.integers(0, 1)),
    }


@st.composite
def _span(draw, steps, longest=80):
    at = draw(st.integers(0, steps * PITCH - 1))
    return at, at + draw(st.integers(1, longest))


@st.composite
def runs(draw, *, ties: bool = True) -> Scenario:
    """A run of one process on two devices, with step ranges.

    Args:
        ties: whether GPU ops may start at the same time on one device. Which of them ended the gap
            before is then a matter of taste.
    """
    steps = draw(st.integers(4, 5))
    script = Script(TWO_DEVICES).thread(AUTOGRAD, "pt_autograd_0")
    for k in range(steps):
        inside = draw(st.integers(PITCH // 2, PITCH))
        script.range(f"step {k}", k * PITCH, k * PITCH + inside)
    span = _span(steps)
    script.range("[DALI] pipeline", *draw(span), thread=LOADER_THREAD)
    for name, thread, (t0, t1) in draw(
        st.lists(st.tuples(st.sampled_from(RANGES), st.sampled_from(THREADS), span), max_size=8)
    ):
        script.range(name, t0, t1, thread=thread)
    apis = st.sampled_from(("cudaStreamSynchronize", "cudaEventRecord", "cudaLaunchKernel"))
    for api, thread, (t0, t1) in draw(
        st.lists(st.tuples(apis, st.sampled_from(THREADS), span), max_size=5)
    ):
        script.call(api, t0, t1, thread=thread)
    for t0, t1 in draw(st.lists(span, max_size=2)):
        script.overhead("Buffer Flush", t0, t1)
    taken, long = set(), set()
    for op in draw(st.lists(_op(steps), min_size=1, max_size=24)):
        place = op["device"], op["t0"]
        if op["t1"] == op["t0"] and op["device"] not in long:
            op["t1"] += 1  # nothing can be said of a device that never works
        if ties or place not in taken:
            script.op(**op)
            long.add(op["device"])
        taken.add(place)
    return script.build().shifted(BEGIN)


@st.composite
def shuffled(draw, scenario: Scenario) -> Scenario:
    """The same rows in another order."""
    columns = ("ops", "calls", "ranges", "operators", "overheads")
    return replace(
        scenario, **{c: tuple(draw(st.permutations(getattr(scenario, c)))) for c in columns}
    )
