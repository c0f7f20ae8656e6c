"""Batches without end, and what a loader has ready."""

from __future__ import annotations

import itertools

import pytest

from traceprobe.capture.loader import batch_source
from traceprobe.capture.loader.batch_source import BatchSource, NoBatchesError


class Loader:
    """Like a DataLoader with workers, whose batches come when a clock says so."""

    def __init__(self, num_workers=2, prefetch_factor=3, ready=0):
        self.num_workers = num_workers
        self.prefetch_factor = prefetch_factor
        self.ready = ready
        self.clock = 0.0

    def __iter__(self):
        for number in itertools.count():
            self.clock += 0.0 if number < self.ready else 1.0
            yield number


@pytest.fixture
def clocked(monkeypatch):
    def start(loader):
        monkeypatch.setattr(batch_source.time, "perf_counter", lambda: loader.clock)
        return BatchSource(loader)

    return start


def taken(source, count):
    return [source.next() for _ in range(count)]


def test_it_starts_anew_where_the_loader_ends():
    assert taken(BatchSource([1, 2, 3]), 8) == [1, 2, 3, 1, 2, 3, 1, 2]


def test_every_pass_asks_the_loader_anew():
    passes = []

    class Shuffled:
        def __iter__(self):
            passes.append(len(passes))
            return iter([passes[-1]] * 2)

    assert taken(BatchSource(Shuffled()), 5) == [0, 0, 1, 1, 2]


def test_an_empty_loader_is_an_error():
    with pytest.raises(NoBatchesError):
        BatchSource([]).next()


def test_a_loader_that_is_empty_the_second_time_is_an_error_too():
    once = BatchSource(iter([1]))
    assert once.next() == 1
    with pytest.raises(NoBatchesError):
        once.next()


def test_a_drain_stops_at_the_first_batch_that_it_must_wait_for(clocked):
    loader = Loader(ready=4)
    source = clocked(loader)
    source.drain()
    assert loader.clock == 1.0
    assert source.next() == 5


def test_a_drain_takes_no_more_than_workers_hold(clocked):
    source = clocked(Loader(num_workers=2, prefetch_factor=3, ready=100))
    source.drain()
    assert source.next() == 6


def test_without_workers_nothing_is_thrown_away(clocked):
    for loader in (Loader(num_workers=0, prefetch_factor=None, ready=9), Loader(0, 2)):
        source = clocked(loader)
        source.drain()
        assert source.next() == 0
    plain = BatchSource([7, 8])
    plain.drain()
    assert (plain.workers, plain.next()) == (0, 7)


def test_rest_returns_at_once_where_nobody_works(monkeypatch):
    monkeypatch.setattr(batch_source.time, "sleep", lambda _: pytest.fail("waited"))
    monkeypatch.setattr(batch_source.multiprocessing, "active_children", list)
    batch_source.wait_for_workers()


def test_rest_waits_until_the_workers_use_no_more_cpu(monkeypatch):
    ticks = iter([0, 15, 30, 31, 99])
    waited = []
    monkeypatch.setattr(batch_source, "_cpu_ticks", lambda: next(ticks))
    monkeypatch.setattr(batch_source.time, "sleep", waited.append)
    batch_source.wait_for_workers()
    assert waited == [batch_source.REST_S] * 3


def test_rest_ends_where_the_workers_never_do(monkeypatch):
    busy = itertools.count(step=15)
    clock = itertools.count(step=batch_source.PATIENCE_S / 4)
    monkeypatch.setattr(batch_source, "_cpu_ticks", lambda: next(busy))
    monkeypatch.setattr(batch_source.time, "sleep", lambda _: None)
    monkeypatch.setattr(batch_source.time, "monotonic", lambda: next(clock))
    batch_source.wait_for_workers()
