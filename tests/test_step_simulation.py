"""Steps without data: they hold what real steps hold, to the byte, and leave no trace behind."""

from __future__ import annotations

import pytest

from tests.lazy import Lazy
from traceprobe.capture.memory.allocation_log import AllocationLog, summarize_allocations

pytestmark = pytest.mark.usefixtures("pytorch")
bert = Lazy("bert")
resnet50 = Lazy("resnet50")
torch = Lazy("torch")
nn = Lazy("torch.nn")
step_simulation = Lazy("traceprobe.capture.memory.step_simulation")
WAYS = [{"foreach": True}, {"fused": True}, {"foreach": False}]
WIDTH = 256


def train(steps, model, optimizer, phase, accumulate=1):
    """A training loop as a user writes one."""
    for inputs, targets in steps:
        for piece, wanted in zip(inputs.chunk(accumulate), targets.chunk(accumulate), strict=True):
            with phase("forward"):
                loss = nn.functional.cross_entropy(model(piece).flatten(0, -2), wanted.flatten())
            with phase("backward"):
                (loss / accumulate).backward()
        with phase("optimizer"):
            optimizer.step()
            optimizer.zero_grad()


def simulated(model, optimizer, batch, accumulate=1):
    simulation = step_simulation.StepSimulation(model, optimizer)
    train(simulation.steps(batch), model, optimizer, simulation.phase, accumulate)
    return simulation.result


def real(model, optimizer, batch, accumulate=1):
    """The same steps with data, every storage followed."""
    log = AllocationLog()
    follow = step_simulation.StorageTracker(log, torch.device("cpu"))

    def there(tensors, part):
        for tensor in tensors:
            storage = tensor.untyped_storage()
            if storage._cdata not in follow._watched:
                log.add_existing(storage._cdata, storage.nbytes(), part)
                follow._watch(storage)

    def state(*_):
        for tensor in torch.utils._pytree.tree_leaves(list(optimizer.state.values())):
            if isinstance(tensor, torch.Tensor):
                follow.set_part(tensor, "optimizer_state")

    there([*model.parameters(), *model.buffers()], "weights")
    there(batch, "input")
    optimizer.register_step_post_hook(state)
    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(lambda p: follow.set_part(p.grad, "gradients"))

    def steps():
        for _ in range(step_simulation.STEPS):
            log.start_step()
            yield batch
        # Before the loop ends, and drops its last loss.
        found.update(summarize_allocations(log), reserved_bytes=follow.allocator.reserved)

    found = {}
    with follow:
        train(steps(), model, optimizer, log.phase, accumulate)
    return found


def tokens(size, count=4):
    shape = (count, size.length)
    return torch.zeros(shape, dtype=torch.int64), torch.zeros(shape, dtype=torch.int64)


@pytest.mark.slow
@pytest.mark.parametrize("accumulate", [1, 4])
@pytest.mark.parametrize("way", WAYS, ids=["foreach", "fused", "for-loop"])
def test_a_transformer_holds_what_it_holds_with_data(way, accumulate):
    size = bert.SIZES["tiny"]
    model = bert.BERT(size)
    optimizer = torch.optim.AdamW(model.parameters(), **way)
    batch = tokens(size)
    found = simulated(model, optimizer, batch, accumulate)
    expected = real(model, optimizer, batch, accumulate)
    assert found == expected


@pytest.mark.slow
def test_recomputation_holds_what_it_holds_with_data():
    size = bert.SIZES["tiny"]
    model = bert.BERT(size, recompute=True)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    found = simulated(model, optimizer, tokens(size))
    expected = real(model, optimizer, tokens(size))
    assert found == expected


@pytest.mark.slow
def test_a_net_with_buffers_and_momentum_holds_what_it_holds_with_data():
    size = resnet50.SIZES["tiny"]
    model = resnet50.ResNet(size)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=True)
    batch = torch.zeros(2, 3, 32, 32), torch.zeros(2, dtype=torch.int64)
    found, expected = simulated(model, optimizer, batch), real(model, optimizer, batch)
    assert found == expected


@pytest.fixture
def small():
    """One matrix without bias, and Adam: everything can be counted by hand."""
    model = nn.Linear(WIDTH, WIDTH, bias=False)
    return model, torch.optim.Adam(model.parameters())


def batch():
    return torch.ones(8, WIDTH), torch.zeros(8, dtype=torch.int64)


def test_the_parts_of_one_matrix_are_those_of_a_calculation(small):
    matrix = WIDTH * WIDTH * 4
    found = simulated(*small, batch())
    assert found["most"]["weights"] == matrix
    assert found["most"]["gradients"] == matrix
    assert found["most"]["optimizer_state"] == 2 * matrix + 512  # and the count of steps
    # By lists, as on a GPU where nothing else was asked for: the root of the second moment.
    assert (found["peak_phase"], found["peak_operator"]) == ("optimizer", "_foreach_sqrt")
    assert found["peak_bytes"] >= 5 * matrix


def test_fused_needs_no_intermediate_results(small):
    model, _ = small
    found = simulated(model, torch.optim.Adam(model.parameters(), fused=True), batch())
    assert found["phases"]["optimizer"] < 4.2 * WIDTH * WIDTH * 4


def test_model_and_optimizer_are_put_back(small):
    model, optimizer = small
    weight, before = model.weight, model.weight.detach().clone()
    simulated(model, optimizer, batch())
    assert model.weight is weight is optimizer.param_groups[0]["params"][0]
    assert torch.equal(model.weight, before)
    assert optimizer.param_groups[0]["foreach"] is None
    assert not optimizer.state
    assert model.weight.grad is None
    train([batch()], model, optimizer, AllocationLog().phase)
    assert not torch.equal(model.weight, before)


def test_they_are_put_back_after_an_error_too(small):
    model, optimizer = small
    weight = model.weight
    steps = step_simulation.StepSimulation(model, optimizer).steps(batch())
    next(steps)
    assert model.weight is not weight
    steps.close()
    assert model.weight is weight
    assert optimizer.param_groups[0]["params"][0] is weight


def test_what_the_host_reads_does_not_end_the_simulation(small):
    model, optimizer = small
    scaler = torch.amp.GradScaler("cpu")
    simulation = step_simulation.StepSimulation(model, optimizer)
    for inputs, _ in simulation.steps(batch()):
        loss = model(inputs).sum()
        assert isinstance(loss.item(), float)
        scaler.scale(loss).backward()
        optimizer.step()
        optimizer.zero_grad()
    assert simulation.result["peak_bytes"] > 0


def test_results_of_the_step_before_count_where_the_program_keeps_them(small):
    model, optimizer = small
    kept = []
    simulation = step_simulation.StepSimulation(model, optimizer)
    for inputs, _ in simulation.steps(batch()):
        kept.append(model(inputs).detach())
    assert simulation.result["parts"]["held"] == 8 * WIDTH * 4


@pytest.mark.parametrize(
    ("capability", "configured", "nbytes"),
    [
        ((8, 0), "", 8_519_680),
        ((9, 0), "", 32 << 20),
        ((10, 0), "", 32 << 20),
        ((9, 0), ":4096:8", 32 << 20),
        ((9, 0), ":16:8", 128 << 10),
        ((8, 0), ":4096:2:16:8", 8_519_680),
    ],
)
def test_workspaces_of_cublas_are_those_of_its_documentation(capability, configured, nbytes):
    assert step_simulation.workspace_bytes(capability, configured) == nbytes
