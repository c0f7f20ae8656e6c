"""The longest ways through fewer instants are those through all of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from traceprobe.replay.graph import Shapes, graph_of
from traceprobe.replay.reduction import Reduction
from traceprobe.replay.simulate import longest, simulate_all, step_lengths
from traceprobe.replay.tasks import ALONE, RankSchedule, Task, tasks_of

KINDS = ("forward", "backward", "communication", "optimizer")


def schedule(seed: int, count: int, *, messages: int, period: float | None) -> RankSchedule:
    """Tasks of three streams and two lines, with waits, needs and messages at random."""
    random = np.random.default_rng(seed)
    rows = []
    for number in range(count):
        back = int(random.integers(0, min(number, 9) + 1))
        needs = tuple(int(n) for n in random.integers(1, 8, random.integers(0, 3)))
        rows.append(
            Task(
                kind=KINDS[int(random.integers(4))],
                stream=int(random.integers(3)),
                line=int(random.integers(2)),
                first_host=float(random.integers(0, 50)),
                host=float(random.integers(50, 100)),
                duration=float(random.integers(0, 300)),
                lag=float(random.integers(0, 20)),
                tail=float(random.integers(0, 50)),
                data_wait=float(random.integers(0, 40)) * (random.random() < 0.1),
                awaits=back if random.random() < 0.1 else 0,
                needs=needs if random.random() < 0.2 else (),
            )
        )
    for at in random.choice(count, messages, replace=False) if messages else []:
        rows[at] = replace(rows[at], group=1, kind="communication")
    return RankSchedule(tasks_of(rows), 1, latency=float(random.integers(0, 30)), period=period)


def by_all(scenario: Sequence[RankSchedule]) -> float:
    """The step, from every instant of the graph one after the other."""
    shapes: Shapes = {}
    graph = graph_of(scenario, shapes)
    graphs = [graph] if graph else [graph_of([rank], shapes) for rank in scenario]
    lengths = [step_lengths(g.shape, longest(g)).max() for g in graphs if g is not None]
    return float(max(lengths)) / scenario[0].iterations


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 1 << 20),
    count=st.integers(1, 60),
    ranks=st.integers(1, 3),
    loader=st.booleans(),
)
def test_a_step_is_as_long_as_through_all_instants(
    seed: int, count: int, ranks: int, *, loader: bool
) -> None:
    """Whatever waits for what, one scenario and several at once."""
    messages = min(count, 3) if ranks > 1 else 0
    period = 5_000.0 if loader else None
    run = [schedule(seed + n, count, messages=messages, period=period) for n in range(ranks)]
    slower = [replace(rank, tasks=rank.tasks.hosted(1.7)) for rank in run]
    faster = [replace(r, tasks=r.tasks.scaled(np.full(len(r.tasks), 0.3))) for r in run]
    scenarios = [run, slower, faster]
    assert simulate_all(scenarios) == pytest.approx([by_all(each) for each in scenarios])


def test_what_was_played_before_is_not_played_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal scenarios have one step, in one call or in several with the same shapes."""
    run = [schedule(1, 40, messages=0, period=None)]
    slower = [replace(run[0], tasks=run[0].tasks.hosted(1.7))]
    shapes: Shapes = {}
    first, second, again = simulate_all([run, slower, run], shapes)
    assert first == again != second
    monkeypatch.delattr(Reduction, "instants")
    assert simulate_all([slower, run], shapes) == [second, first]


def test_few_instants_are_left_of_a_loop_that_does_not_wait() -> None:
    """One thread, one stream: all but the first instants are running sums and maxima."""
    rows = [Task(kind="forward", host=3.0, first_host=3.0, duration=5.0, tail=5.0, group=ALONE)]
    shapes: Shapes = {}
    graph = graph_of([RankSchedule(tasks_of(rows * 500), 1, latency=1.0)], shapes)
    assert graph is not None
    assert len(graph.shape.reduction.runs) < 5
