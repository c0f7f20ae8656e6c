"""Places in the steps of a loop: when they are passed, and that nothing of the hooks stays."""

from __future__ import annotations

import sys
import threading
from contextlib import suppress

import pytest

from tests.lazy import Lazy
from traceprobe.capture.loader.batch_feed import feed
from traceprobe.capture.oracle.blocks import Unavailable
from traceprobe.capture.oracle.delays import HostSpin
from traceprobe.capture.oracle.late_collectives import held_groups
from traceprobe.capture.oracle.places import PLACES, Places
from traceprobe.capture.oracle.worker_delay import DelayFile, WorkerDelay

torch = Lazy("torch")


@pytest.fixture
def model():
    return torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())


class Iterator:
    """As one of a DataLoader."""

    _num_workers, _prefetch_factor = 2, 3


def awaited_modules():
    return torch.nn.modules.module._global_forward_pre_hooks


def train(places, model, steps=3):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        places.step()
        batch = feed.next(Iterator(), lambda _: torch.nn.Identity()(torch.randn(4, 2)))
        for _ in range(2):  # gradients accumulate
            model(batch).sum().backward()
        optimizer.step()


def test_a_step_passes_each_place_once_and_in_order(model):
    places = Places()
    order = []
    places.actions = {place: lambda place=place: order.append(place) for place in PLACES}
    with places.installed():
        train(places, model)
    assert order == [*PLACES] * 3
    assert places.passed == dict.fromkeys(PLACES, 3)
    assert places.asked == {(2, 6): 3}


def test_nothing_of_the_hooks_stays(model):
    before = torch.autograd.backward, feed.source
    places = Places()
    with suppress(RuntimeError), places.installed():
        places.step()
        assert torch.autograd.backward is not before[0]
        assert awaited_modules()
        raise RuntimeError("of the program")
    assert (torch.autograd.backward, feed.source) == before
    assert not awaited_modules()
    assert not sys.modules["torch.optim.optimizer"]._global_optimizer_pre_hooks
    places.passed.clear()
    train(places, model)
    assert not places.passed


def test_other_threads_pass_nothing(model):
    places = Places()
    with places.installed():
        thread = threading.Thread(target=lambda: model(torch.randn(4, 2)).sum().backward())
        thread.start()
        thread.join()
    assert not places.passed


def test_a_module_that_a_loader_calls_is_no_forward(model):
    places = Places()
    with places.installed():
        places.step()
        feed.next(Iterator(), lambda _: model(torch.randn(4, 2)))
        assert "forward" not in places.passed
        model(torch.randn(4, 2))
        assert places.passed["forward"] == 1


def test_a_banned_place_has_no_hook(model):
    places = Places()
    places.banned.add("forward")
    with places.installed():
        places.step()
        assert not awaited_modules()


def test_a_spin_says_how_long_it_took():
    spin = HostSpin(1e-3)
    with spin.ready():
        spin()
        spin()
    assert spin.given_s >= 2e-3


def test_workers_are_held_back_by_their_turn(tmp_path):
    file, worker = (DelayFile(str(tmp_path), 1) for _ in range(2))
    asked = [0]
    delay = WorkerDelay(file, 0.01, workers=2, batches_per_step=1.0, asked=lambda: asked[0])
    fetch = worker.slow(lambda indices: indices, 1)
    assert fetch("before") == "before"
    with delay.ready():
        assert [fetch(n) for n in range(4)] == [*range(4)]
        asked[0] += 4
    # Each of the two took 20 ms a batch longer, so that four batches were 40 ms later.
    assert 0.04 <= delay.given_s < 0.2
    given, made = file.given()
    assert made == 5
    fetch("after")
    assert file.given() == (given, 6)


def test_one_rank_has_no_collectives_to_hold_back():
    with pytest.raises(Unavailable, match="one rank"):
        held_groups()
