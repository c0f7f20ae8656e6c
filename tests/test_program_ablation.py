"""The trials inside a training process: what each variant is fed, and what it leaves behind."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from tests.lazy import Lazy
from traceprobe.capture.loader.batch_feed import feed
from traceprobe.capture.loader.batch_source import BatchSource
from traceprobe.capture.oracle import blocks, communication, program_ablation, ranks, trial_session
from traceprobe.capture.oracle.ablation_plan import AblationPlan, RankTrials
from traceprobe.capture.oracle.busy_time import union_ns
from traceprobe.capture.oracle.program_ablation import ProgramAblation
from traceprobe.capture.process.progress import steps_missing
from traceprobe.capture.profiler.gloo_threads import wait_for_gloo

pytestmark = pytest.mark.usefixtures("pytorch", "quick")
torch = Lazy("torch")
dist = Lazy("torch.distributed")
PLAIN = {"io", "synthetic-host", "full"}


@pytest.fixture
def trials(tmp_path):
    return AblationPlan(str(tmp_path), warmup=2, count=2, seconds=1e-6, workload={"name": "test"})


@pytest.fixture
def quick(monkeypatch):
    """Nobody waits for a pace that is steady."""
    monkeypatch.setattr(blocks, "MOST_WARMUP", 4)


@pytest.fixture
def parallel(monkeypatch):
    """A DDP model in a group of one that passes for two, and a count of its synchronisations."""
    for module in (communication, program_ablation, ranks):
        monkeypatch.setattr(module, "world_size", lambda: 2)
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
    # A thread of gloo's that lets a collective go wants the interpreter, which whoever lets the
    # group go keeps while it waits for that thread (PyTorch 2.13).
    assert wait_for_gloo()
    dist.destroy_process_group()


def fed(plan, loader, session=None):
    """The batches that a loop with a recorder gets."""
    session = session or ProgramAblation(plan)
    batches = BatchSource(loader)
    number = 0
    try:
        while session.before_step(number):
            yield feed.next(batches, BatchSource.next)
            number += 1
    finally:
        session.close()


def test_gradients_are_synchronised_in_all_steps_but_those_without_communication(
    trials, parallel, tmp_path
):
    model, calls = parallel
    seen = Counter()
    for x in fed(trials, [torch.randn(3, 4)]):
        expected = len(calls) + model.require_backward_grad_sync
        seen[model.require_backward_grad_sync] += 1
        model(x).sum().backward()
        assert len(calls) == expected
        model.zero_grad()
    (found,) = RankTrials.of_ranks(tmp_path).values()
    assert PLAIN | {"full-no-comm", "synthetic-no-comm"} <= set(found.seconds)
    each = blocks.LEAD_IN + blocks.PROBE + trials.count * (blocks.LEAD_IN + blocks.FEWEST)
    assert seen[False] == 2 * each
    assert model.require_backward_grad_sync
    assert model.require_forward_param_sync


def test_a_loop_that_ends_early_leaves_the_model_as_it_was_and_says_how_far_it_came(
    trials, parallel, tmp_path
):
    model, _ = parallel
    steps = fed(trials, [torch.randn(3, 4)])
    made = 0
    while model.require_backward_grad_sync:
        next(steps)
        made += 1
    steps.close()
    assert model.require_backward_grad_sync
    assert feed.source is None
    assert RankTrials.of_ranks(tmp_path) == {}
    seen, needed = steps_missing(tmp_path)
    assert seen == made
    assert needed > made


def test_a_loop_that_ends_in_its_trials_says_what_they_need(trials, tmp_path):
    in_full = sum(1 for _ in fed(trials, [torch.zeros(2)]))
    steps = fed(trials, [torch.zeros(2)])
    for _ in range(in_full - 3):
        next(steps)
    steps.close()
    seen, needed = steps_missing(tmp_path)
    assert seen == in_full - 3
    assert in_full <= needed <= in_full + 9


@pytest.mark.parametrize("steps", [1, 3, 20])
def test_a_loop_that_ends_before_its_trials_says_what_they_will_need(trials, tmp_path, steps):
    """Of the steps in full, as far as they can be foreseen without the variants it lacks."""
    in_full = sum(1 for _ in fed(trials, [torch.zeros(2)]))
    loop = fed(trials, [torch.zeros(2)])
    for _ in range(steps):
        next(loop)
    loop.close()
    seen, needed = steps_missing(tmp_path)
    assert seen == steps
    assert in_full <= needed <= 2 * in_full


def test_batches_are_repeated_where_nothing_is_loaded(trials, tmp_path):
    batches = [{"x": torch.full((2, 3), float(i)), "label": str(i)} for i in range(500)]
    labels = [int(batch["label"]) for batch in fed(trials, batches)]
    (found,) = RankTrials.of_ranks(tmp_path).values()
    assert set(found.seconds) >= PLAIN
    assert {len(times) for times in found.seconds.values()} == {2}
    assert {"synthetic-device", "full-no-comm", "synthetic-no-comm"} <= set(found.absent)
    again = sum(b <= a for a, b in pairwise(labels))
    fresh = len(set(labels))
    trained = blocks.LEAD_IN + blocks.PROBE + 2 * (blocks.LEAD_IN + blocks.FEWEST)
    assert fresh == len(labels) - trained  # what is given again was given before
    assert again
    assert found.workload == {"name": "test", "samples_per_step": 2}
    assert found.busy_ns is None


def test_entries_that_the_program_takes_out_of_a_batch_are_there_again(trials, tmp_path):
    class Loader:
        def __iter__(self):
            return ({"x": torch.zeros(2), "y": [torch.zeros(1)]} for _ in range(9))

    for batch in fed(trials, Loader()):
        batch.pop("x")
        batch["y"].pop()
    (found,) = RankTrials.of_ranks(tmp_path).values()
    assert set(found.seconds) >= PLAIN


def test_batches_that_are_changed_in_place_are_not_given_again(trials, tmp_path):
    for batch in fed(trials, [torch.zeros(2) for _ in range(9)]):
        batch.add_(1)
    (found,) = RankTrials.of_ranks(tmp_path).values()
    assert "in place" in found.absent["synthetic-host"]
    assert "full" in found.seconds


def test_what_the_program_says_of_its_samples_counts(trials, tmp_path):
    session = ProgramAblation(trials)
    session.describe({"samples_per_step": 99, "tokens_per_step": 5})
    for _ in fed(trials, [torch.zeros(2)], session):
        pass
    (found,) = RankTrials.of_ranks(tmp_path).values()
    assert found.workload == {"name": "test", "samples_per_step": 99, "tokens_per_step": 5}


def test_trials_that_load_have_whole_turns_of_the_workers(trials, tmp_path):
    class Loader(list):
        num_workers = 3
        prefetch_factor = 2

    for _ in fed(trials, Loader([torch.zeros(2)] * 9)):
        pass
    (found,) = RankTrials.of_ranks(tmp_path).values()
    assert (found.steps["io"], found.steps["full"], found.steps["synthetic-host"]) == (6, 6, 4)


def test_a_program_without_a_loader_has_its_whole_loop_measured(trials, tmp_path):
    session = ProgramAblation(trials)
    for number in range(1000):
        if not session.before_step(number):
            break
    (found,) = RankTrials.of_ranks(tmp_path).values()
    assert "full" in found.seconds
    assert "no DataLoader" in found.absent["io"]
    assert feed.source is None
    assert not session.before_step(number + 1)


def test_a_process_that_the_program_forked_is_left_alone(trials, tmp_path, monkeypatch):
    session = ProgramAblation(trials)
    monkeypatch.setattr(trial_session.os, "getpid", lambda: -1)
    assert all(session.before_step(number) for number in range(1000))
    monkeypatch.undo()
    session.close()


def test_what_fails_inside_ends_the_program_with_the_reason(trials, tmp_path, monkeypatch):
    session = ProgramAblation(trials)
    assert session.before_step(0)
    monkeypatch.setattr(session._batches, "kept", lambda: 1 / 0)
    with pytest.raises(SystemExit, match="ZeroDivisionError"):
        all(session.before_step(number) for number in range(1, 1000))
    assert feed.source is None


def test_the_busy_time_is_a_union_without_collectives():
    events = [
        {"cat": "kernel", "name": "gemm", "ts": 0, "dur": 10},
        {"cat": "kernel", "name": "add", "ts": 5, "dur": 10},
        {"cat": "gpu_memcpy", "name": "Memcpy HtoD", "ts": 20, "dur": 1},
        {"cat": "kernel", "name": "ncclDevKernel_AllReduce", "ts": 30, "dur": 100},
        {"cat": "cpu_op", "name": "aten::add", "ts": 200, "dur": 100},
    ]
    assert union_ns(events) == 16_000
