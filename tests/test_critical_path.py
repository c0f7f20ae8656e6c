"""The critical path: by hand, and as a number that lengthening something must bear out."""

from __future__ import annotations

import random

import numpy as np
import polars as pl
import pytest
from msgspec.structs import replace

from tests.schedules import schedule, task
from traceprobe.replay.critical_path import critical_path
from traceprobe.replay.simulate import graphs_of, simulate, simulate_all
from traceprobe.replay.tasks import RankSchedule, Task, tasks_of


def path_of(*schedules):
    (graph,) = graphs_of(schedules, {})
    return critical_path(graph, schedules)


def parts(path):
    """Time of a cycle by part and rank, ns."""
    table = path.table.with_columns(ns=path.table["t1"] - path.table["t0"])
    summed = table.group_by("part", "rank").agg(pl.col("ns").sum())
    return {(part, rank): ns for part, rank, ns in summed.iter_rows()}


def test_of_two_streams_the_longer_is_on_the_path():
    long = task("backward", duration=30, tail=30)
    short = task("communication", duration=20, stream=1, needs=(1,))
    joins = task("optimizer", duration=5, needs=(1,))
    found = path_of(schedule(long, short, joins))
    assert found.cycle == 55
    assert parts(found) == {("backward", 0): 30, ("communication", 0): 20, ("optimizer", 0): 5}


def test_what_is_hidden_is_not_on_the_path():
    rows = (
        task("forward", duration=10),
        task("h2d", duration=4, stream=1, needs=(1,)),
        task("backward", duration=30),
        task("optimizer", duration=5, needs=(2,)),
    )
    found = path_of(schedule(*rows))
    assert found.cycle == 45
    assert ("h2d", 0) not in parts(found)


def test_a_host_that_never_waits_is_the_path_where_it_is_slow():
    rows = (task(host=30, duration=10), task("backward", host=40, duration=20))
    found = path_of(schedule(*rows))
    assert parts(found) == {("host", 0): 70}


def test_the_path_changes_to_the_rank_that_others_wait_for():
    def rank(work):
        reduced = task("communication", duration=5, stream=1, needs=(1,), collective=True)
        return schedule(
            task("backward", duration=work), reduced, task("optimizer", duration=1, needs=(1,))
        )

    found = path_of(rank(10), rank(50))
    assert found.cycle == 56
    assert parts(found)["backward", 1] == 50
    assert ("backward", 0) not in parts(found)


def program(seed):
    """Two ranks with streams, needs, hosts that wait and collectives, all at random."""
    draw = random.Random(seed)
    count = draw.randint(6, 30)
    shapes = [(draw.randrange(3), draw.random() < 0.15) for _ in range(count)]
    ranks = []
    for _ in range(2):
        rows = []
        for number, (stream, together) in enumerate(shapes):
            duration = float(draw.randint(5, 60))
            rows.append(
                Task(
                    kind="communication" if together else draw.choice(["forward", "backward"]),
                    stream=3 if together else stream,
                    host=(host := float(draw.choice([1, 2, 30]))),
                    first_host=host,
                    duration=duration,
                    tail=duration,
                    awaits=draw.randint(1, count) if draw.random() < 0.1 else 0,
                    needs=(draw.randint(1, 5),) if draw.random() < 0.5 and number else (),
                    group=0 if together else -1,
                )
            )
        ranks.append(RankSchedule(tasks_of(rows), 1, 1.0))
    return ranks


@pytest.mark.parametrize("seed", range(40))
def test_the_path_is_as_long_as_a_cycle_and_what_is_off_it_may_go(seed):
    ranks = program(seed)
    graphs = graphs_of(ranks, {})
    if len(graphs) != 1:
        pytest.skip("these collectives are in no common order")
    found = critical_path(graphs[0], ranks)
    assert float((found.table["t1"] - found.table["t0"]).sum()) == pytest.approx(found.cycle)
    before = simulate(ranks)
    if found.cycle != pytest.approx(before):
        pytest.skip("three cycles do not make these ranks steady")
    on_it = set(found.table.select("rank", "task").iter_rows())
    off = [
        (rank, place)
        for rank, schedule in enumerate(ranks)
        for place in range(len(schedule.tasks))
        if (rank, place) not in on_it
    ]
    for rank, place in off:
        assert path_of(*changed(ranks, rank, place, 0.0)).cycle == pytest.approx(before)
    # Each longer task on the path makes the way longer that was the longest.
    way = found.table.filter(pl.col("part").is_in(["forward", "backward", "communication"]))
    grown = [(r, p) for r, p in way.select("rank", "task").unique().iter_rows()]
    steps = simulate_all([changed(ranks, rank, place, 2.0) for rank, place in grown])
    assert all(step > before for step in steps)


def changed(ranks, rank, place, factor):
    """The ranks with one task of another length."""
    tasks = ranks[rank].tasks
    one = np.arange(len(tasks)) == place
    mine = replace(ranks[rank], tasks=tasks.scaled(np.where(one, factor, 1.0)))
    return [mine if number == rank else other for number, other in enumerate(ranks)]
