"""The trials inside a training process: what each variant is fed, and when DDP synchronises."""

from __future__ import annotations

from collections import Counter, namedtuple
from itertools import pairwise

import pytest

from tests.lazy import Lazy
from traceprobe.capture import ablation_session
from traceprobe.capture.ablation_plan import AblationPlan, trial_results
from traceprobe.capture.ablation_session import AblationSession

pytestmark = pytest.mark.usefixtures("pytorch")
torch = Lazy("torch")
dist = Lazy("torch.distributed")
VARIANTS = {"io", "synthetic-host", "full", "full-no-comm", "synthetic-no-comm"}
Pair = namedtuple("Pair", "x y")


@pytest.fixture
def trials(tmp_path):
    return AblationPlan(str(tmp_path), warmup=2, count=2, seconds=1e-6, workload={"name": "test"})


@pytest.fixture
def parallel(monkeypatch):
    """A DDP model in a group of one that passes for two, and a count of its synchronisations."""
    monkeypatch.setattr(ablation_session, "world_size", lambda: 2)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
    calls = []

    def count(_, bucket):
        calls.append(bucket.index())
        future = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future

    model.register_comm_hook(None, count)
    yield model, calls
    dist.destroy_process_group()


def test_gradients_are_synchronised_in_all_steps_but_those_without_communication(
    trials, parallel, tmp_path
):
    model, calls = parallel
    seen = Counter()
    for x in AblationSession(trials).steps([torch.randn(3, 4)]):
        expected = len(calls) + model.require_backward_grad_sync
        seen[model.require_backward_grad_sync] += 1
        model(x).sum().backward()
        assert len(calls) == expected
        model.zero_grad()
    (found,) = trial_results(tmp_path).values()
    assert set(found.seconds) == VARIANTS
    lead_in, probe, steps = (
        ablation_session.LEAD_IN,
        ablation_session.PROBE,
        ablation_session.FEWEST,
    )
    assert set(found.steps.values()) == {steps}
    each = (lead_in + probe) + trials.count * (lead_in + steps)
    assert seen == {False: 2 * each, True: trials.warmup + 2 * each}
    assert model.require_backward_grad_sync
    assert model.require_forward_param_sync


def test_a_loop_that_ends_early_leaves_the_model_as_it_was(trials, parallel, tmp_path):
    model, _ = parallel
    steps = AblationSession(trials).steps([torch.randn(3, 4)])
    while model.require_backward_grad_sync:
        next(steps)
    steps.close()
    assert model.require_backward_grad_sync
    assert trial_results(tmp_path) == {}


def test_one_batch_is_repeated_where_nothing_is_loaded(trials, tmp_path):
    batches = [{"x": torch.full((2, 3), float(i)), "label": str(i)} for i in range(50)]
    fed = [int(batch["label"]) for batch in AblationSession(trials).steps(batches)]
    (found,) = trial_results(tmp_path).values()
    assert set(found.seconds) == {"io", "full", "synthetic-host"}
    assert {len(times) for times in found.seconds.values()} == {2}
    assert set(found.absent) == {"synthetic-device", "full-no-comm", "synthetic-no-comm"}
    again = sum(a == b for a, b in pairwise(fed))
    trained = (ablation_session.LEAD_IN + ablation_session.PROBE) + 2 * (
        ablation_session.LEAD_IN + ablation_session.FEWEST
    )
    # In three runs of them: the probe and both trials.
    assert trained - 3 <= again <= trained
    assert found.workload == {"name": "test", "samples_per_step": 2}
    assert found.busy_ns is None


def test_every_round_begins_with_another_variant(trials, tmp_path, monkeypatch):
    order = []
    real = AblationSession._trial

    def noted(self, variant, *arguments, **options):
        order.append(variant.name)
        return (yield from real(self, variant, *arguments, **options))

    monkeypatch.setattr(AblationSession, "_trial", noted)
    for _ in AblationSession(trials).steps([torch.zeros(2)]):
        pass
    assert order[:3] == ["io", "full", "synthetic-host"]
    assert order[3:] == ["io", "full", "synthetic-host", "full", "synthetic-host", "io"]


def test_what_the_program_says_of_its_samples_counts(trials, tmp_path):
    driver = AblationSession(trials)
    driver.describe({"samples_per_step": 99, "tokens_per_step": 5})
    for _ in driver.steps([torch.zeros(2)]):
        pass
    (found,) = trial_results(tmp_path).values()
    assert found.workload == {"name": "test", "samples_per_step": 99, "tokens_per_step": 5}


@pytest.mark.parametrize(
    "loader", [list, lambda: iter([torch.zeros(1)] * 3)], ids=["empty", "generator"]
)
def test_a_loader_that_gives_too_little_ends_the_loop_without_results(trials, tmp_path, loader):
    assert len(list(AblationSession(trials).steps(loader()))) < 4
    assert trial_results(tmp_path) == {}


def test_trials_that_load_have_whole_turns_of_the_workers(trials, tmp_path):
    class Loader(list):
        num_workers = 3
        prefetch_factor = 2

    for _ in AblationSession(trials).steps(Loader([torch.zeros(2)] * 9)):
        pass
    (found,) = trial_results(tmp_path).values()
    assert found.steps == {"io": 6, "full": 6, "synthetic-host": 4}


def test_the_tensors_of_nested_batches_are_found():
    one, two, three = torch.zeros(1), torch.zeros(2), torch.zeros(3)
    nested = {"a": [one, "text"], "b": Pair(two, {"c": three}), "d": 7}
    assert [len(t) for t in ablation_session._tensors(nested)] == [1, 2, 3]


def test_the_busy_time_is_a_union_without_collectives():
    events = [
        {"cat": "kernel", "name": "gemm", "ts": 0, "dur": 10},
        {"cat": "kernel", "name": "add", "ts": 5, "dur": 10},
        {"cat": "gpu_memcpy", "name": "Memcpy HtoD", "ts": 20, "dur": 1},
        {"cat": "kernel", "name": "ncclDevKernel_AllReduce", "ts": 30, "dur": 100},
        {"cat": "cpu_op", "name": "aten::add", "ts": 200, "dur": 100},
    ]
    assert ablation_session._union_ns(events) == 16_000
