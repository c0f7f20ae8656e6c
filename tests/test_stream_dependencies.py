"""Which operations wait for which, from events: by hand, and against what streams may do."""

from __future__ import annotations

import polars as pl
import pytest

from traceprobe.model.codes import UNKNOWN, Kind, StreamEvent
from traceprobe.model.events import GPU_OPS, STREAM_EVENTS
from traceprobe.timeline.dependencies import dependencies

RECORD, WAIT, HOST_WAIT = StreamEvent.RECORD, StreamEvent.WAIT, StreamEvent.HOST_WAIT


def operations(*rows):
    """GPU ops of (stream, launch, start, end), all of thread 1."""
    columns = {name: [0] * len(rows) for name in GPU_OPS}
    columns |= {
        "kind": [int(Kind.KERNEL)] * len(rows),
        "thread": [1] * len(rows),
        "stream": [row[0] for row in rows],
        "launch_t0": [row[1] for row in rows],
        "launch_t1": [row[1] + 1 for row in rows],
        "t0": [1_000 * row[2] for row in rows],
        "t1": [1_000 * row[3] for row in rows],
        "pageable": [False] * len(rows),
        "graph": [False] * len(rows),
        "linked": [True] * len(rows),
    }
    return pl.DataFrame(columns, schema=GPU_OPS).sort("launch_t0")


def events(*rows):
    """Calls of (kind, time, stream, event, record, correlation), all of thread 1."""
    return pl.DataFrame(
        {
            "pid": [0] * len(rows),
            "thread": [1] * len(rows),
            "t0": [row[1] for row in rows],
            "t1": [row[1] + 1 for row in rows],
            "kind": [int(row[0]) for row in rows],
            "device": [UNKNOWN] * len(rows),
            "stream": [row[2] for row in rows],
            "event": [row[3] for row in rows],
            "record": [row[4] for row in rows],
            "correlation": [row[5] for row in rows],
        },
        schema=STREAM_EVENTS,
    )


def edges(found):
    return {
        (op, of): sure
        for op, of, sure in zip(
            found.op.tolist(), found.needs.tolist(), found.recorded.tolist(), strict=True
        )
    }


# Two kernels on stream 7, one on stream 9 that waits for the first of them, one more on each.
OPS = operations((7, 0, 0, 50), (7, 10, 50, 90), (9, 30, 60, 80), (9, 40, 80, 95), (7, 60, 95, 99))


@pytest.mark.parametrize(
    ("record", "wait", "sure"),
    [
        ((RECORD, 5, 7, 3, -1, 100), (WAIT, 20, 9, 3, 100, 101), True),  # by the record's call
        ((RECORD, 5, 7, 3, -1, 100), (WAIT, 20, 9, 3, -1, 101), True),  # by the event
        ((RECORD, 5, -1, -1, -1, 100), (WAIT, 20, 9, 3, -1, 101), False),  # by the thread
        ((RECORD, 5, -1, -1, -1, 100), (WAIT, 20, -1, -1, -1, 101), False),  # and by the launch
    ],
)
def test_a_stream_waits_for_what_was_launched_before_the_record(record, wait, sure):
    found = dependencies(OPS, events(record, wait))
    assert edges(found) == {(2, 0): sure}
    assert (found.lost, len(found.contradicted)) == (0, 0)
    assert found.all_recorded == sure


def test_an_event_that_is_recorded_again_counts_as_it_was_at_the_wait():
    again = events(
        (RECORD, 5, 7, 3, -1, 100), (WAIT, 20, 9, 3, -1, 101), (RECORD, 35, 7, 3, -1, 102)
    )
    assert edges(dependencies(OPS, again)) == {(2, 0): True}


def test_a_wait_without_a_record_and_one_that_the_times_contradict_make_no_edge():
    lonely = dependencies(OPS, events((WAIT, 20, 9, 3, -1, 101)))
    assert (len(lonely.op), lonely.lost, lonely.all_recorded) == (0, 1, False)
    # The second kernel of stream 7 ends after the one on stream 9 has started.
    wrong = dependencies(OPS, events((RECORD, 15, 7, 3, -1, 1), (WAIT, 20, 9, 3, -1, 2)))
    assert (len(wrong.op), wrong.contradicted.tolist()) == (0, [2])


def test_an_event_stands_for_what_its_stream_was_told_to_wait_for():
    """Stream 8 launches nothing: what waits for it waits for stream 7."""
    chain = events(
        (RECORD, 5, 7, 3, -1, 1),
        (WAIT, 12, 8, 3, -1, 2),
        (RECORD, 14, 8, 4, -1, 3),
        (WAIT, 20, 9, 4, -1, 4),
        (WAIT, 22, 5, 4, -1, 5),
        (HOST_WAIT, 41, 8, -1, -1, 6),
    )
    assert edges(dependencies(OPS, chain)) == {(2, 0): True}
    assert dependencies(OPS, chain).awaited.tolist() == [0]


def test_what_a_stream_has_launched_since_ends_a_wait_of_its_own():
    chain = events(
        (RECORD, 5, 7, 3, -1, 1),
        (WAIT, 20, 9, 3, -1, 2),
        (RECORD, 35, 9, 4, -1, 3),  # after the kernel of stream 9, which has waited
        (WAIT, 50, 7, 4, -1, 4),
    )
    assert edges(dependencies(OPS, chain)) == {(2, 0): True, (4, 2): True}


def test_a_stream_that_waits_for_itself_waits_for_nothing():
    found = dependencies(OPS, events((RECORD, 5, 7, 3, -1, 100), (WAIT, 8, 7, 3, -1, 101)))
    assert (len(found.op), found.lost, len(found.contradicted)) == (0, 0, 0)


def test_the_host_waits_for_the_stream_or_the_event_that_it_names():
    calls = events(
        (RECORD, 5, 7, 3, -1, 100),
        (HOST_WAIT, 45, -1, 3, -1, 101),
        (HOST_WAIT, 50, 9, -1, -1, 102),
        (HOST_WAIT, 55, -1, -1, -1, 103),  # for the whole device: not told
    )
    found = dependencies(OPS, calls)
    assert dict(zip(found.calls.tolist(), found.awaited.tolist(), strict=True)) == {45: 0, 50: 3}


def test_without_calls_nothing_is_known():
    assert dependencies(OPS, events()).lost == 0
    assert len(dependencies(OPS, events()).calls) == 0
