"""Where a path is drawn: work where it was recorded, waiting between it."""

from __future__ import annotations

import msgspec
import polars as pl
import pytest

from tests.builders.pictures import Canvas
from tests.report_factory import PARTITIONS, make_rank
from traceprobe.records.replay import Replay
from traceprobe.replay import path_stretches as module

KINDS = ["forward", "backward", "communication"]


def replay(rows, iterations=2):
    """Rows (iteration, kind, start, end, tail) of a rank."""
    count = len(rows)
    iteration, kind, start, end, tail = (list(column) for column in zip(*rows, strict=True))
    zeros = [0] * count
    return Replay(
        iterations=iterations,
        latency_ns=0,
        kinds=KINDS,
        iteration=iteration,
        kind=[KINDS.index(name) for name in kind],
        stream=zeros,
        first_host_ns=zeros,
        host_ns=zeros,
        duration_ns=[b - a for a, b in zip(start, end, strict=True)],
        lag_ns=zeros,
        tail_ns=tail,
        data_wait_ns=zeros,
        awaits=zeros,
        needs=zeros,
        bytes=[-1] * count,
        start_ns=start,
        end_ns=end,
    )


def rank_of(rows, *windows, number=0, clock=0):
    """A rank whose picture has windows (from, to)."""
    drawn = []
    for n, (start, end) in enumerate(windows):
        canvas = Canvas(end - start)
        drawn.append((canvas, canvas.window(iteration=n, start=start)))
    picture = drawn[0][0].picture(*(w for _, w in drawn), clock=clock) if drawn else msgspec.UNSET
    rank = make_rank(PARTITIONS["compute"], rank=number)
    return msgspec.structs.replace(rank, replay=replay(rows), picture=picture)


ROWS = [
    (0, "forward", 100, 200, 40),
    (0, "backward", 250, 400, 50),
    (1, "forward", 1_100, 1_200, 40),
    (1, "backward", 1_250, 1_400, 50),
]
PATH = [(0, task, kind, False, 1.0) for task, (_, kind, *_) in enumerate(ROWS)]


def drawn(path, *ranks):
    names = ["rank", "task", "part", "last", "ms"]
    table = pl.DataFrame(path, schema=names, orient="row")
    found = module.path_stretches(table, ranks)
    return [(s.rank, s.part, s.start_ns, s.end_ns) for s in found]


def test_work_is_drawn_where_it_was_recorded():
    expected = [(0, "forward", 100, 200), (0, "backward", 250, 400)]
    assert drawn(PATH, rank_of(ROWS, (50, 500))) == expected


def test_it_is_the_iteration_that_a_window_shows_else_the_last():
    first, last = [(100, 400), (1_100, 1_400)]
    for windows, expected in [
        ([(1_050, 1_500), (50, 500)], last),
        ([(50, 500), (1_050, 1_500)], first),
        ([(5_000, 6_000), (50, 500)], first),
        ([(5_000, 6_000)], last),
        ([], last),
    ]:
        found = drawn(PATH, rank_of(ROWS, *windows))
        assert (found[0][2], found[-1][3]) == expected


def test_a_window_with_the_smaller_part_of_an_iteration_does_not_show_it():
    rows = [*ROWS, (1, "backward", 1_400, 1_410, 1)]
    assert drawn(PATH, rank_of(rows, (1_300, 1_500), (50, 500)))[0][2] == 100


def test_what_is_waited_for_most_fills_the_time_between_work_and_to_the_ends():
    path = [
        (0, 0, "launch", False, 0.1),
        (0, 0, "host", False, 0.3),
        PATH[0],
        (0, 1, "host", False, 0.2),
        (0, 1, "delay", False, 0.3),
        (0, 1, "host", False, 0.2),
        PATH[1],
        (0, 1, "data-wait", False, 0.2),
    ]
    assert drawn(path, rank_of(ROWS, (50, 500))) == [
        (0, "host", 50, 100),
        (0, "forward", 100, 200),
        (0, "host", 200, 250),
        (0, "backward", 250, 400),
        (0, "data-wait", 400, 500),
    ]


def test_a_path_of_the_host_alone_is_the_whole_window():
    path = [(0, task, "host", False, 1.0) for task in range(4)]
    assert drawn(path, rank_of(ROWS, (50, 500))) == [(0, "host", 50, 500)]
    assert drawn(path, rank_of(ROWS)) == []


def test_of_a_row_that_only_ends_on_the_path_the_last_operation_is_drawn():
    path = [(0, 1, "backward", True, 1.0)]
    assert drawn(path, rank_of(ROWS, (50, 500))) == [(0, "backward", 350, 400)]


def test_stretches_do_not_overlap_and_neighbours_of_a_kind_are_one():
    rows = [
        (0, "forward", 100, 200, 1),
        (0, "forward", 200, 240, 1),
        (0, "backward", 220, 230, 1),
        (0, "backward", 235, 300, 1),
    ]
    path = [(0, task, kind, False, 1.0) for task, (_, kind, *_) in enumerate(rows)]
    assert drawn(path, rank_of(rows, (50, 500))) == [
        (0, "forward", 100, 240),
        (0, "backward", 240, 300),
    ]


@pytest.mark.parametrize("clock", [0, -10_000])
def test_ranks_take_turns_on_one_clock(clock):
    """The second rank's times are larger by what its clock is ahead."""
    late = [
        (iteration, "communication", start - clock + 150, end - clock + 150, tail)
        for iteration, _, start, end, tail in ROWS
    ]
    ranks = [
        rank_of(ROWS, (50, 500)),
        rank_of(late, (50 - clock, 600 - clock), number=3, clock=clock),
    ]
    path = [PATH[0], (1, 0, "host", False, 1.0), (1, 0, "communication", False, 1.0), PATH[1]]
    assert drawn(path, *ranks) == [
        (0, "forward", 100, 200),
        (3, "host", 200 - clock, 250 - clock),
        (3, "communication", 250 - clock, 350 - clock),
        (0, "backward", 350, 400),
    ]


def test_without_a_common_clock_each_rank_keeps_its_own():
    ranks = [rank_of(ROWS, (50, 500), clock=None), rank_of(ROWS, (50, 500), number=1, clock=None)]
    path = [PATH[0], (1, 0, "host", False, 1.0), (1, 0, "forward", False, 1.0), PATH[1]]
    assert drawn(path, *ranks) == [
        (0, "forward", 100, 200),
        (1, "forward", 100, 200),
        (0, "backward", 250, 400),
    ]


def test_there_are_at_most_so_many(monkeypatch):
    monkeypatch.setattr(module, "MAX_STRETCHES", 1)
    assert drawn(PATH, rank_of(ROWS, (50, 500))) == [(0, "backward", 250, 400)]


def test_of_too_many_the_shortest_are_of_the_one_before(monkeypatch):
    """All of the time is drawn: what waits between the operations of a long graph is short."""
    rows = [(0, "forward", at, at + 99, 99) for at in range(100, 600, 100)]
    path = []
    for task in range(len(rows)):
        path += [(0, task, "host", False, 1.0), (0, task, "forward", False, 1.0)]
    every = drawn(path, rank_of(rows, (50, 650)))
    assert len(every) == 10
    monkeypatch.setattr(module, "MAX_STRETCHES", 6)
    fewer = drawn(path, rank_of(rows, (50, 650)))
    assert fewer == [(0, "host", 50, 100), (0, "forward", 100, 599)]


def test_older_reports_without_times_have_none():
    rank = rank_of(ROWS, (50, 500))
    old = msgspec.structs.replace(rank.replay, start_ns=[], end_ns=[])
    assert drawn(PATH, msgspec.structs.replace(rank, replay=old)) == []
    assert drawn(PATH, msgspec.structs.replace(rank, replay=msgspec.UNSET)) == []
