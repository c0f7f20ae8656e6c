"""What a step of a loop is: one rule for all that count steps, on loops that really train."""

from __future__ import annotations

import gc
import itertools

import pytest

from tests.lazy import Lazy
from traceprobe.capture.loop import step_recorder
from traceprobe.capture.loop.loop_updates import MOST_APART, LoopUpdates, StepBatches
from traceprobe.capture.oracle.ablation_plan import AblationPlan
from traceprobe.capture.oracle.program_ablation import ProgramAblation
from traceprobe.capture.process.progress import steps_missing
from traceprobe.capture.recording.recording_plan import RecordingPlan
from traceprobe.capture.recording.recording_session import RecordingSession

pytestmark = pytest.mark.usefixtures("pytorch")
torch = Lazy("torch")


@pytest.fixture
def updates():
    """Counts the updates of every optimizer that this process makes."""
    from torch.optim.optimizer import register_optimizer_step_post_hook

    counted = LoopUpdates()
    counted.watched = True
    hook = register_optimizer_step_post_hook(lambda optimizer, *_: counted.ends_step(optimizer))
    yield counted
    hook.remove()


class Net:
    """A model and its optimizer."""

    def __init__(self) -> None:
        self.model = torch.nn.Linear(2, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def backward(self):
        loss = self.model(torch.ones(1, 2)).sum()
        loss.backward()
        return loss

    def update(self):
        self.optimizer.step()
        self.optimizer.zero_grad()

    def train(self):
        self.backward()
        self.update()


def accumulating(net, other):
    for _ in range(4):
        net.backward()
    net.update()


def gan(net, other):
    net.train()
    other.train()


def several(net, other):
    net.backward()
    other.backward()
    net.update()
    other.update()


def closure(net, other):
    """As Lightning does, and LBFGS."""
    net.optimizer.step(net.backward)


def critics(net, other):
    for _ in range(5):
        other.train()
    net.train()


@pytest.mark.parametrize("loop", [accumulating, gan, several, closure])
def test_an_iteration_is_a_step(updates, loop):
    net, other = Net(), Net()
    for _ in range(12):
        loop(net, other)
    assert updates.count == 12


def test_the_optimizer_that_steps_first_counts_however_often_another_does(updates):
    net, other = Net(), Net()
    net.train()
    for _ in range(11):
        critics(net, other)
    assert updates.count == 12


def test_folds_go_on_counting(updates):
    for _ in range(3):
        net = Net()
        for _ in range(4):
            net.train()
    gc.collect()
    assert updates.count == 12


def test_an_optimizer_that_steps_no_more_makes_room_for_another(updates):
    first, second = Net(), Net()
    first.train()
    for _ in range(MOST_APART + 9):
        second.train()
    assert updates.count == 1 + 1 + 9
    assert second.optimizer is not first.optimizer  # both are kept by the program


def steps_of(updates, train, batches):
    """How many batches each step of a loop has that takes them one by one."""
    step, sizes, size = StepBatches(updates), [], 0
    step.begin()
    for number in range(batches):
        train(number)
        size += 1
        if step.ended():
            sizes.append(size)
            size = 0
            step.begin()
    return sizes


def test_a_step_has_all_batches_of_an_update(updates):
    net = Net()

    def train(number):
        net.backward()
        if number % 4 == 3:
            net.update()

    assert steps_of(updates, train, 20) == [4] * 5


def test_a_batch_without_an_update_now_and_then_belongs_to_the_next(updates):
    """As where a gradient is not finite."""
    net = Net()
    sizes = steps_of(updates, lambda number: net.train() if number % 5 else None, 10)
    assert sizes == [2, 1, 1, 1, 2, 1, 1, 1]


def test_batches_are_steps_where_nothing_updates(updates):
    kept = Net()  # a model that is evaluated still has its optimizer
    sizes = steps_of(updates, lambda _: kept.model(torch.ones(1, 2)), MOST_APART + 3)
    assert sizes == [MOST_APART, 1, 1, 1]
    assert steps_of(LoopUpdates(), lambda _: None, 3) == [1, 1, 1]  # nor sees anybody updates


@pytest.mark.parametrize("session", ["recorded", "ablated"])
def test_all_batches_of_an_update_are_a_step_of_the_recorder(
    updates, session, tmp_path, monkeypatch
):
    monkeypatch.setattr(step_recorder, "updates", updates)
    made = []
    driver = (
        RecordingSession(RecordingPlan(folder=str(tmp_path), warmup=3))
        if session == "recorded"
        else ProgramAblation(AblationPlan(folder=str(tmp_path), warmup=3))
    )
    begin = driver.before_step
    monkeypatch.setattr(driver, "before_step", lambda number: made.append(number) or begin(number))
    net = Net()
    for number, _ in enumerate(step_recorder.Recorder(driver).steps([torch.ones(1)] * 4)):
        net.backward()
        if number % 4 == 3:
            net.update()
        if number == 11:
            break
    assert made == [0, 1, 2]
    assert updates.count == 3
    assert steps_missing(tmp_path)[0] == 3  # what all sessions say of a program that ends then


def test_an_update_of_very_many_batches_is_learnt(updates):
    net, many = Net(), 3 * MOST_APART // 2
    sizes = steps_of(
        updates, lambda number: net.train() if number % many == many - 1 else None, 4 * many
    )
    first = list(itertools.takewhile(lambda total: total <= many, itertools.accumulate(sizes)))
    assert sizes[len(first) :] == [many] * 3
