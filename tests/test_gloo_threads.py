"""A profile does not end under a collective: two ranks of gloo in one process."""

from __future__ import annotations

import sys
import threading
import time

import pytest

from tests.lazy import Lazy
from traceprobe.capture.profiler.gloo_threads import _threads as gloo_threads
from traceprobe.capture.profiler.gloo_threads import wait_for_gloo

pytestmark = [
    pytest.mark.usefixtures("pytorch"),
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what threads wait for"),
]
torch = Lazy("torch")


@pytest.fixture
def ranks():
    """Two process groups of two ranks."""
    distributed = torch.distributed
    if not (distributed.is_available() and distributed.is_gloo_available()):
        pytest.skip("this PyTorch has no gloo")
    store, groups = distributed.HashStore(), {}

    def join(rank):
        groups[rank] = distributed.ProcessGroupGloo(store, rank, 2)

    threads = [threading.Thread(target=join, args=(rank,)) for rank in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # They name themselves, once they run: two threads for each rank.
    until = time.monotonic() + 60
    while len(gloo_threads()) < 4 and time.monotonic() < until:
        time.sleep(0.001)
    return groups


def begin(groups, rank):
    return groups[rank].allreduce([torch.ones(8)])


def test_a_collective_that_waits_for_another_rank_is_waited_for(ranks):
    first = begin(ranks, 0)
    assert not wait_for_gloo(0.05)
    late = threading.Timer(0.2, begin, (ranks, 1))
    late.start()
    assert wait_for_gloo(60)
    assert first.is_completed()
    late.join()


def test_nothing_is_waited_for_where_nothing_is_under_way(ranks):
    works = [begin(ranks, rank) for rank in (0, 1)]
    for work in works:
        work.wait()
    assert wait_for_gloo(60)


@pytest.mark.slow
def test_profiles_end_while_collectives_are_under_way(ranks):
    for _ in range(50):
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
            works = [begin(ranks, rank) for rank in (0, 1) for _ in range(4)]
            assert wait_for_gloo(60)
        assert all(work.is_completed() for work in works)
        time.sleep(0.001)
