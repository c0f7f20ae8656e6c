"""Parts of a program that the oracle takes out or puts in, and what it leaves as it was."""

from __future__ import annotations

import copy

import pytest

from tests.lazy import Lazy
from traceprobe.capture.oracle.blocks import Unavailable
from traceprobe.capture.oracle.fused_optimizer import fused
from traceprobe.capture.oracle.rare_steps import regular_means
from traceprobe.capture.oracle.resident import ResidentBatches

pytestmark = pytest.mark.usefixtures("pytorch")
torch = Lazy("torch")


def trained(model, optimizer, steps):
    for number in range(steps):
        x = torch.linspace(-1, 1, 8).mul(number + 1).reshape(2, 4)
        model(x).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def settings(optimizer):
    groups = [{k: v for k, v in g.items() if k != "params"} for g in optimizer.param_groups]
    return copy.deepcopy((groups, vars(optimizer).get("_step_supports_amp_scaling")))


@pytest.mark.parametrize("kind", ["AdamW", "SGD", "Adagrad"])
def test_a_fused_optimizer_updates_as_before_and_is_left_as_it_was(kind):
    torch.manual_seed(0)
    plain = torch.nn.Linear(4, 4)
    other = copy.deepcopy(plain)
    make = getattr(torch.optim, kind)
    options = {"momentum": 0.9} if kind == "SGD" else {}
    one, two = (make(model.parameters(), lr=1e-3, **options) for model in (plain, other))
    trained(plain, one, 8)
    trained(other, two, 3)
    before = settings(two)
    with fused([two]):
        assert all(group["fused"] for group in two.param_groups)
        trained(other, two, 0)
    assert settings(two) == before
    with fused([two]):
        for number in range(3, 6):
            x = torch.linspace(-1, 1, 8).mul(number + 1).reshape(2, 4)
            other(x).square().sum().backward()
            two.step()
            two.zero_grad()
    for number in range(6, 8):
        x = torch.linspace(-1, 1, 8).mul(number + 1).reshape(2, 4)
        other(x).square().sum().backward()
        two.step()
        two.zero_grad()
    assert settings(two) == before
    for a, b in zip(plain.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(a, b)
    for a, b in zip(one.state.values(), two.state.values(), strict=True):
        assert {k: (v.dtype, v.device) for k, v in a.items() if v is not None} == {
            k: (v.dtype, v.device) for k, v in b.items() if v is not None
        }


def test_optimizers_that_cannot_be_fused_say_so():
    weights = [torch.nn.Parameter(torch.zeros(2))]
    with pytest.raises(Unavailable, match="no fused form"), fused([torch.optim.RMSprop(weights)]):
        pass
    with (
        pytest.raises(Unavailable, match="already"),
        fused([torch.optim.Adam(weights, fused=True)]),
    ):
        pass
    with pytest.raises(Unavailable), fused([]):
        pass


def blocks_of(steps, size):
    return [(first, steps[first : first + size]) for first in range(0, len(steps), 2 * size)]


def test_iterations_that_are_long_in_a_rhythm_are_left_out():
    steps = [9.0 if n % 10 == 7 else 1.0 for n in range(120)]
    assert regular_means(blocks_of(steps, 15)) == [1.0] * 4


def test_a_rhythm_is_found_where_blocks_have_one_such_iteration_each():
    def block(first):
        return first, [9.0 if n % 5 == 4 else 1.0 for n in range(first, first + 5)]

    assert regular_means([block(first) for first in (0, 14, 28)]) == [1.0] * 3


@pytest.mark.parametrize(
    "long",
    [{3, 20, 44, 45, 91}, set(), set(range(0, 120, 2)), {5}],
    ids=["at random", "none", "every other", "one"],
)
def test_others_are_not(long):
    steps = [9.0 if n in long else 1.0 for n in range(120)]
    assert regular_means([(0, steps)]) is None


def test_without_a_gpu_no_copy_can_be_taken_out():
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    before = dict(vars(torch.Tensor))
    resident = ResidentBatches(lambda: iter([torch.zeros(2)]))
    with pytest.raises(Unavailable, match="no GPU"), resident.hold():
        pass
    assert dict(vars(torch.Tensor)) == before


def test_copies_of_kept_batches_find_them_on_the_device():
    if not torch.cuda.is_available():
        pytest.skip("there is no GPU")
    gpu = torch.zeros(1).cuda().device
    tokens, pictures = torch.arange(64).reshape(4, 16), torch.randn(5, 3).pin_memory()
    resident = ResidentBatches(lambda: iter([{"t": tokens, "p": [pictures]}]))
    before, static = dict(vars(torch.Tensor)), torch.empty(5, 3, device=gpu)
    with resident.hold():
        whole, again = tokens.to(gpu), tokens.to("cuda")
        view = tokens[:, :-1].to(gpu, non_blocking=True)
        static.copy_(pictures.cuda())
        other = tokens.float().to(gpu)
    assert whole.data_ptr() == again.data_ptr() == view.data_ptr() != other.data_ptr()
    assert torch.equal(view.cpu(), tokens[:, :-1])
    assert torch.equal(static.cpu(), pictures)
    assert dict(vars(torch.Tensor)) == before
    whole.add_(1)
    with pytest.raises(Unavailable, match="in place"), resident.hold():
        pass
