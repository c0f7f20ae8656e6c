"""Messages that all ranks launch together are an exchange, and those of stages are not."""

from __future__ import annotations

import pytest

import traceprobe
from tests.builders import memory
from tests.builders.scenario import COMM_STREAM, Message, Process, Script
from tests.matched_ranks import PITCH, STEPS

SEND_RECV = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"


def rank(number, counts, *, message=None, work=1_000):
    """A rank that launches so many messages in a step, after as much computation."""
    script = Script(Process(1_000 * (number + 1), rank=number), world_size=len(counts))
    for k in range(STEPS):
        at = k * PITCH
        script.range(f"step {k}", at, at + PITCH)
        script.op("kernel", at + 100, at + 100 + work, (at + 10, at + 20))
        for i in range(counts[number]):
            begin, end = at + 100 + work + 100 * i, at + 6_000 + 100 * i
            launch = (at + 30 + 10 * i, at + 35 + 10 * i)
            script.op(
                *("comm", begin, end, launch), stream=COMM_STREAM, name=SEND_RECV, message=message
            )
    return memory.trace(script.build())


def report_of(counts, **options):
    work = [1_000 + 500 * number for number in range(len(counts))]
    return traceprobe.analyze(
        [rank(n, counts, work=work[n], **options) for n in range(len(counts))]
    )


def operations(report):
    return {group.operation for each in report.ranks for group in each.summary.collectives}


@pytest.mark.parametrize(
    ("counts", "found"),
    [
        ((2, 2, 2), "all_to_all"),
        ((2, 4, 2), "send_recv"),
        ((2, 2), "send_recv"),
        ((2, 2, 1), "send_recv"),
    ],
    ids=["as many on each", "stages", "two ranks may be two stages", "one has fewer"],
)
def test_what_three_ranks_launch_equally_often_they_exchange(counts, found):
    report = report_of(counts)
    assert operations(report) == {found}
    bubble = next(each for each in report.findings if each.id == "pipeline-bubble")
    assert (bubble.status == "not-applicable") is (found == "all_to_all")


def test_waiting_in_an_exchange_is_for_the_rank_that_comes_last():
    report = report_of((2, 2, 2))
    assert report.run.straggler_rank == 2


def test_what_the_trace_calls_a_message_of_a_group_stays_one():
    told = Message("send", 4_096, 2, group="stage 1")
    assert operations(report_of((2, 2, 2), message=told)) == {"send_recv"}
