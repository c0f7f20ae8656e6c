"""Updates that hooks of the parameters make inside the backward pass: a step ends after it."""

from __future__ import annotations

import pytest

from tests.lazy import Lazy
from traceprobe.capture.loop import optimizer_hook
from traceprobe.capture.loop.backward_pass import in_backward_pass
from traceprobe.capture.loop.loop_updates import LoopUpdates

pytestmark = pytest.mark.usefixtures("pytorch")
torch = Lazy("torch")


class Session:
    """Notes where its steps end, and ends the program after so many."""

    def __init__(self, seen, last):
        self._seen, self._last = seen, last
        self.inside = []

    def before_step(self, number):
        self.inside.append(in_backward_pass())
        self._seen.append(f"end {number}")
        return number < self._last


class Loop:
    """A program whose parameters are updated as soon as they have their gradients."""

    def __init__(self, last):
        self.seen = []
        self.session = Session(self.seen, last)
        self.model = torch.nn.Sequential(*(torch.nn.Linear(3, 3) for _ in range(2)))
        self._optimizers = {p: torch.optim.SGD([p], lr=0.1) for p in self.model.parameters()}
        for parameter in self._optimizers:
            parameter.register_post_accumulate_grad_hook(self.update)

    def update(self, parameter):
        self._optimizers[parameter].step()
        self._optimizers[parameter].zero_grad()

    def forward(self):
        self.seen.append("forward")
        return self.model(torch.ones(2, 3, requires_grad=True)).sum()

    def train(self, steps):
        for _ in range(steps):
            self.forward().backward()
            self.seen.append("updated")


@pytest.fixture
def loop(monkeypatch):
    """A loop whose steps are counted, as in a program that is recorded."""
    from torch.optim.optimizer import register_optimizer_step_post_hook

    monkeypatch.setattr(optimizer_hook, "_adopted", False)
    monkeypatch.setattr(optimizer_hook, "updates", LoopUpdates())
    monkeypatch.setattr(torch.autograd, "backward", torch.autograd.backward)
    loop = Loop(last=3)
    steps = optimizer_hook._Steps(lambda: loop.session, marked=False)
    hook = register_optimizer_step_post_hook(steps)
    yield loop
    hook.remove()


def test_a_step_ends_when_its_backward_pass_is_over(loop):
    loop.train(3)
    assert loop.session.inside == [False] * 3
    # The first pass is not known to update when it begins, so its step ends before the next one.
    first, second = ["forward", "updated"], ["forward", "end 0", "end 1", "updated"]
    assert loop.seen == [*first, *second, "forward", "end 2", "updated"]


def test_a_program_that_has_done_its_part_ends_outside_of_the_pass(loop):
    before = [p.detach().clone() for p in loop.model.parameters()]
    with pytest.raises(SystemExit):
        loop.train(9)
    assert loop.seen[-2:] == ["forward", "end 3"]
    assert not any(loop.session.inside)
    pairs = zip(before, loop.model.parameters(), strict=True)
    assert all((old != new).any() for old, new in pairs)  # the last step was made to its end
    assert not in_backward_pass()


def test_passes_inside_of_a_pass_are_a_part_of_it(loop):
    """As where a checkpoint computes again."""
    from torch.utils.checkpoint import checkpoint

    for _ in range(3):
        hidden = torch.ones(2, 3, requires_grad=True)
        for layer in loop.model:
            hidden = checkpoint(layer, hidden, use_reentrant=True)
        hidden.sum().backward()
    assert loop.seen == ["end 0", "end 1", "end 2"]
    assert loop.session.inside == [False] * 3


def test_a_pass_that_fails_ends_no_step(loop):
    loop.train(2)

    def fail(gradient):
        raise ValueError("no such gradient")

    hidden = loop.model[0](torch.ones(2, 3, requires_grad=True))
    hidden.register_hook(fail)  # the last layer has been updated by then
    with pytest.raises(ValueError, match="no such gradient"):
        loop.model[1](hidden).sum().backward()
    assert loop.seen[-1] == "updated"


def test_a_pytorch_that_cannot_tell_is_in_no_pass(monkeypatch):
    monkeypatch.delattr("torch._C._current_graph_task_id")
    assert not in_backward_pass()


def test_a_program_that_adopts_the_recorder_meanwhile_is_left_to_it(loop, monkeypatch):
    loop.train(1)
    monkeypatch.setattr(optimizer_hook, "_adopted", True)
    loop.train(2)
    assert loop.seen == ["forward", "updated"] * 3


def test_who_updates_after_the_pass_has_the_backward_pass_of_pytorch(loop):
    backward = torch.autograd.backward
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
    assert loop.seen == ["end 0", "end 1", "end 2"]
    assert torch.autograd.backward is backward
