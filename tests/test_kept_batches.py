"""Batches of the program's DataLoaders, kept and given again."""

from __future__ import annotations

import time
from collections import UserDict, namedtuple

import pytest

from tests.lazy import Lazy
from traceprobe.capture.loader import loader_hook
from traceprobe.capture.loader.batch_feed import feed
from traceprobe.capture.loader.batch_source import READY_S, wait_for_workers
from traceprobe.capture.oracle import kept_batches, kept_loader
from traceprobe.capture.oracle.blocks import Unavailable
from traceprobe.capture.oracle.kept_batches import KEPT, KeptBatches
from traceprobe.capture.oracle.kept_loader import KeptLoader
from traceprobe.capture.oracle.nested import rebuilt, tensors

pytestmark = pytest.mark.usefixtures("pytorch")
torch = Lazy("torch")
data = Lazy("torch.utils.data")
Pair = namedtuple("Pair", "x y")


@pytest.fixture
def kept(monkeypatch):
    """The source of the loaders of this process, which are watched until the test ends."""
    kind = data.dataloader._BaseDataLoaderIter
    monkeypatch.setattr(kind, "__init__", kind.__init__)
    monkeypatch.setattr(kind, "__next__", kind.__next__)
    loader_hook._watch_batches(kind)
    batches = KeptBatches()
    monkeypatch.setattr(feed, "source", batches)
    return batches


class Numbers:
    """Counts what is loaded."""

    def __init__(self, length):
        self.length, self.loaded = length, 0

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        self.loaded += 1
        return torch.tensor([index])


def epochs(loader, batches, count):
    """Lengths of so many epochs."""
    lengths = []
    for _ in range(count):
        lengths.append(0)
        for _ in loader:
            lengths[-1] += 1
            batches.step()
    return lengths


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("persistent", [False, True])
def test_epochs_keep_their_length_whatever_is_loaded(kept, workers, persistent):
    options = {"persistent_workers": True} if persistent and workers else {}
    loader = data.DataLoader(Numbers(12), 2, num_workers=workers, **options)
    assert epochs(loader, kept, 2) == [6, 6]
    kept.kept()
    passing = iter(loader)
    for _ in range(3):
        next(passing)
    with kept.again():
        assert len([1 for _ in passing]) == 3
        assert epochs(loader, kept, 2) == [6, 6]
        passing = iter(loader)
        next(passing)
    assert len([1 for _ in passing]) == 5
    with kept.alone():
        for _ in range(20):
            kept.pull()
    assert epochs(loader, kept, 1) == [6]


def test_nothing_is_loaded_while_batches_are_given_again(kept):
    dataset = Numbers(2 * KEPT + 4)
    loader = data.DataLoader(dataset, 1)
    epochs(loader, kept, 1)
    kept.kept()
    before = dataset.loaded
    with kept.again():
        seen = [int(batch) for batch in loader]
    assert dataset.loaded == before
    assert len(seen) == len(loader)
    assert set(seen) == set(range(KEPT))


class Late(Numbers):
    """Takes its time for all samples from one on."""

    def __init__(self, count, seconds, first=0):
        super().__init__(count)
        self.seconds, self.first = seconds, first

    def __getitem__(self, index):
        if index >= self.first:
            time.sleep(self.seconds)
        return super().__getitem__(index)


@pytest.mark.slow
def test_what_lay_ready_is_used_up_before_a_batch_is_waited_for(kept, monkeypatch):
    # So long that no busy machine takes what lies ready for late.
    monkeypatch.setattr(kept_loader, "READY_S", 0.5)
    loader = data.DataLoader(Late(64, seconds=2, first=8), num_workers=2)
    batches = iter(loader)
    for _ in range(4):
        next(batches)
        kept.step()
    kept.kept()
    wait_for_workers()
    with kept.loading():
        for ready in range(kept.steps_ahead):
            assert not kept.waited, ready
            next(batches)
        for _ in range(2):
            next(batches)
        assert kept.waited


def test_another_loader_that_is_late_is_not_waited_for(kept):
    epochs(data.DataLoader(Numbers(4)), kept, 2)
    kept.kept()
    kept.waited = False
    next(iter(data.DataLoader(Late(4, seconds=4 * READY_S))))
    assert not kept.waited


def test_nothing_lies_ready_where_the_program_loads_itself(kept):
    epochs(data.DataLoader(Numbers(4)), kept, 2)
    kept.kept()
    with kept.loading():
        assert kept.waited


def test_the_loader_alone_makes_what_a_step_takes(kept):
    dataset = Numbers(40)
    loader = data.DataLoader(dataset, 1)
    kept.step()
    for number, _ in enumerate(loader):
        if number % 2:  # two batches a step
            kept.step()
    kept.kept()
    drawn = torch.get_rng_state()
    before = dataset.loaded
    with kept.alone():
        for _ in range(10):
            kept.pull()
    assert dataset.loaded == before + 20
    assert torch.equal(drawn, torch.get_rng_state())


HAND_OVER_S = 20 * READY_S


class Heavy:
    """What takes a while to hand over, however ready it is."""

    def __init__(self, index):
        self.index = index

    def __setstate__(self, state):
        time.sleep(HAND_OVER_S)
        self.__dict__ = state


class Heavies(Numbers):
    def __getitem__(self, index):
        return Heavy(index)


@pytest.mark.slow
def test_all_that_may_lie_ready_is_gone_when_a_loader_is_timed_alone(kept):
    loader = data.DataLoader(Heavies(20), None, num_workers=2)
    epochs(loader, kept, 1)
    kept.kept()
    received = 0
    for _ in range(3):
        with kept.alone():
            (found,) = kept.feeding
            received += found.ahead
            assert found.second._rcvd_idx == received
            kept.pull()
            received += 1


def test_a_large_batch_takes_long_and_yet_lay_ready():
    loader = KeptLoader(())
    assert [loader.waited(seconds) for seconds in (0.03, 0.02, 0.03)] == [False] * 3
    assert loader.waited(0.06)
    assert not loader.waited(READY_S / 4)
    assert loader.waited(2 * READY_S)


def test_a_loader_is_timed_alone_between_two_rests_of_the_workers(kept, monkeypatch):
    dataset = Numbers(40)
    epochs(data.DataLoader(dataset, 1), kept, 1)
    kept.kept()
    rests = []
    monkeypatch.setattr(kept_batches, "wait_for_workers", lambda: rests.append(dataset.loaded))
    with kept.alone():
        kept.pull()
    assert rests == [40, 41]


def test_a_loader_that_is_used_now_and_then_does_not_feed_the_training(kept):
    training, other = data.DataLoader(Numbers(10), 1), data.DataLoader(Numbers(4), 1)
    epochs(training, kept, 1)
    for _ in other:
        pass
    kept.kept()
    assert [len(loader.owners[0]) for loader in kept.feeding] == [10]
    with kept.again():
        assert len(list(other)) == 4


def test_without_a_loader_nothing_can_be_given_again(kept):
    kept.step()
    kept.kept()
    for condition in (kept.again, kept.alone):
        with pytest.raises(Unavailable, match="no DataLoader"), condition():
            pass


def test_a_stream_of_unknown_length_ends_where_it_ends(kept):
    class Stream(data.IterableDataset):
        def __iter__(self):
            return iter(range(7))

    loader = data.DataLoader(Stream(), None)
    assert epochs(loader, kept, 1) == [7]
    kept.kept()
    with kept.again():
        passing = iter(loader)
        assert len([next(passing) for _ in range(30)]) == 30
    assert len(list(passing)) == 7


def test_the_tensors_of_batches_of_any_make_are_found_and_their_containers_are_new():
    class Thing:
        def __init__(self, x):
            self.x = x

    one, two, three, four = (torch.zeros(n) for n in range(1, 5))
    nested = {"a": [one, "text"], "b": Pair(two, UserDict(c=three)), "d": 7, "e": Thing(four)}
    assert [len(t) for t in tensors(nested)] == [1, 2, 3, 4]
    copied = rebuilt(nested)
    assert all(a is b for a, b in zip(tensors(nested), tensors(copied), strict=True))
    copied["a"].clear()
    del copied["b"].y["c"], copied["e"].x
    assert [len(t) for t in tensors(nested)] == [1, 2, 3, 4]
