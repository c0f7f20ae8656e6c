"""Real DataLoaders in a recorded loop: which one feeds it, and what its batches take.

Slow parts sleep, so that a crowded machine does not change which one is the slowest.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
from dataclasses import replace

import pytest

from tests.cli_runner import environment
from tests.fake_profiler import FakeProfiler
from traceprobe.capture.loader import loader_hook, loader_tally, loader_watch, loader_worker
from traceprobe.capture.loader.batch_feed import feed
from traceprobe.capture.loader.step_waits import StepWaits
from traceprobe.capture.loop import optimizer_hook
from traceprobe.capture.loop.loop_updates import LoopUpdates
from traceprobe.capture.loop.step_recorder import Recorder
from traceprobe.capture.process.environment import program_environment
from traceprobe.capture.recording import recording_plan as plans
from traceprobe.capture.recording import recording_session as sessions
from traceprobe.records import loader as loaders

pytestmark = pytest.mark.usefixtures("pytorch")

PLAN = {"warmup": 2, "most_warmup": 2, "calibrate": 32, "settle": 1, "active": 2, "repeats": 0}
SLOW_S = 0.004
PROGRAM = """
import sys, time, torch
from torch.utils.data import DataLoader, Dataset

class Pictures(Dataset):
    def __len__(self):
        return 4000
    def __getitem__(self, n):
        return decode(n)

def decode(n):
    time.sleep(0.004)
    return torch.ones(4)

if __name__ == "__main__":
    torch.set_num_threads(1)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    persistent = sys.argv[1] == "forkserver"
    loader = DataLoader(Pictures(), 8, num_workers=2, multiprocessing_context=sys.argv[1],
                        persistent_workers=persistent)
    for x in loader:
        model(x).sum().backward()
        optimizer.step()
"""


class Pictures:
    """A dataset, which PyTorch takes without its base class; `slow` is the part that takes long."""

    def __init__(self, slow="", count=10_000):
        self.slow, self.count = slow, count

    def __len__(self):
        return self.count

    def __getitem__(self, number):
        return augment(decode(number, self.slow), self.slow)


def decode(number, slow):
    if slow == "decode":
        time.sleep(SLOW_S)
    return float(number)


def augment(value, slow):
    if slow == "augment":
        time.sleep(SLOW_S)
    return value + random.random()


class Gather:
    def __init__(self, slow):
        self.slow = slow

    def __call__(self, rows):
        return gather(rows, self.slow)


def gather(rows, slow):
    if slow == "gather":
        time.sleep(8 * SLOW_S)
    return rows


def loader(slow="", data=None, **options):
    from torch.utils.data import DataLoader

    size = options.pop("batch_size", 8)
    return DataLoader(data or Pictures(slow), size, collate_fn=Gather(slow), **options)


def stream(slow):
    from torch.utils.data import IterableDataset

    class Stream(IterableDataset):
        def __iter__(self):
            return (augment(decode(n, slow), slow) for n in range(10_000))

    return Stream()


@pytest.fixture
def watched(tmp_path, monkeypatch):
    """A recorder whose loaders are watched; what was changed for that is put back."""
    from torch.utils.data import dataloader as module

    batches, fetchers = module._BaseDataLoaderIter, module._DatasetKind
    for place, name in ((batches, "__init__"), (batches, "__next__")):
        monkeypatch.setattr(place, name, vars(place)[name])
    monkeypatch.setattr(fetchers, "create_fetcher", vars(fetchers)["create_fetcher"])
    plan = plans.RecordingPlan(folder=str(tmp_path), **PLAN)
    monkeypatch.setenv(plan.VARIABLE, str(plan.save()))
    watch = loader_watch.LoaderWatch()
    monkeypatch.setattr(loader_hook, "loaders", watch)
    monkeypatch.setattr(sessions, "loaders", watch)
    loader_hook.install_loader_hook(module)
    log = FakeProfiler()
    return Recorder(sessions.RecordingSession(plan, log)), log


class SlowStart(FakeProfiler):
    """A profiler that starts as slowly as one of a GPU, and knows how long its steps waited."""

    def __init__(self):
        super().__init__()
        self.settle, self.waits = 0, []

    def start(self, active, settle):
        super().start(active, settle)
        self.settle = settle
        time.sleep(0.5)


@pytest.mark.parametrize("read", [0, 12], ids=["", "after others were read"])
def test_the_steps_that_are_kept_wait_for_batches_that_were_not_ready(watched, read):
    plan, log = watched[0]._driver.plan, SlowStart()
    plan = replace(plan, calibrate=8, active=6)
    session = sessions.RecordingSession(plan, log, updates_counted=True)
    batches = iter(loader("decode", num_workers=2, prefetch_factor=4))
    for _ in range(read):
        next(batches)
    number = 0
    while session.before_step(number):
        began = time.perf_counter()
        next(batches)
        if "start 6" in log.calls and "stop" not in log.calls:
            log.waits.append(time.perf_counter() - began)
        number += 1
    assert log.settle == 2 * 4 + plan.settle
    kept = log.waits[log.settle :]
    assert len(kept) == 7
    # Two workers take eight items' time for each batch; one may be nearly done at the first step.
    assert sum(kept) >= (len(kept) // 2 - 1) * 8 * SLOW_S
    assert log.metadata["unprofiled_data_wait_ms"] > 0
    assert feed.source is None


def test_batches_that_another_thread_asks_for_are_not_waited_for(watched):
    waits = StepWaits(marked=False)
    assert waits.step() is None
    waits.begin()
    batches = iter(loader())
    ahead = threading.Thread(target=next, args=(batches,))
    ahead.start()
    ahead.join()
    assert waits.step() is None
    next(batches)
    own, others = waits.step()
    assert own > 0
    assert others == 0
    waits.end()


def test_batches_of_an_evaluation_are_waited_for_too(watched):
    waits = StepWaits(marked=False)
    waits.begin()
    training = iter(loader())
    next(training)
    assert waits.step()[1] == 0
    began = time.perf_counter_ns()
    evaluated = [batch for _, batch in zip(range(3), loader("decode"), strict=False)]
    most = time.perf_counter_ns() - began
    next(training)
    own, others = waits.step()
    waits.end()
    assert len(evaluated) == 3
    assert own > 0
    assert 3 * 8e9 * SLOW_S <= others <= most


def recorded(watched, batches, after=lambda number: None):
    record, log = watched
    for number, _ in enumerate(record.steps(batches)):
        after(number)
    found = log.metadata.get("loader")
    assert found is None or loaders.read(found) is not None
    return found


def longest(found):
    line = found["lines"][0]
    return line["part"], line["name"].split("): ")[1]


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    ("slow", "part"), [("decode", "item"), ("augment", "item"), ("gather", "collate")]
)
def test_the_slow_part_of_a_loader_is_the_longest_line_of_its_workers(watched, slow, part, workers):
    found = recorded(watched, loader(slow, num_workers=workers, prefetch_factor=3))
    assert longest(found) == (part, slow)
    assert found["lines"][0]["name"].startswith("tests/test_loader_watch.py(")
    assert (found["collate_ms"] > 8 * found["item_ms"]) is (slow == "gather")
    assert found["item_ms"] * 8 + found["collate_ms"] >= 8e3 * SLOW_S
    assert found["samples"] > 0
    assert found["items_per_batch"] == 8
    assert found["dataset"] == "Pictures"
    settings = {"workers": workers, "batch_size": 8, "prefetch_factor": 3}
    assert settings.items() <= found.items()


@pytest.mark.parametrize("slow", ["decode", "gather"])
def test_without_workers_the_step_thread_is_timed(watched, slow):
    found = recorded(watched, loader(slow))
    assert (found["collate_ms"] > 8 * found["item_ms"]) is (slow == "gather")
    assert found["workers"] == 0
    assert found["batches"] >= PLAN["calibrate"] // 2  # those before the profiled block
    assert found["lines"] == []


@pytest.mark.parametrize("workers", [0, 2])
def test_an_iterable_dataset_is_watched_as_any_other(watched, workers):
    found = recorded(watched, loader("decode", stream("decode"), num_workers=workers))
    assert found["item_ms"] >= 1e3 * SLOW_S
    assert found["items_per_batch"] == 8
    if workers:
        assert longest(found) == ("item", "decode")


@pytest.mark.parametrize("persistent", [False, True])
def test_workers_are_watched_through_every_pass(watched, persistent):
    short = loader("decode", Pictures("decode", 32), num_workers=2, persistent_workers=persistent)
    found = recorded(watched, short)
    assert longest(found) == ("item", "decode")
    assert found["persistent_workers"] is persistent
    assert found["batches"] >= 2
    assert found["batches_per_step"] == 1


def test_a_dataset_that_gives_whole_batches_has_one_item_each(watched):
    found = recorded(watched, loader("decode", batch_size=None, num_workers=1))
    assert (found["items_per_batch"], found["batch_size"]) == (1, None)


def test_a_loader_that_is_read_now_and_then_does_not_feed_the_steps(watched):
    others = loader("decode", Pictures("decode", 200), batch_size=4)

    def evaluate(number):
        if number == 4:
            list(others)

    assert recorded(watched, loader("gather", batch_size=6), evaluate)["batch_size"] == 6


def test_batches_of_a_step_that_takes_several_are_counted(watched):
    more = iter(loader(batch_size=5))
    found = recorded(watched, [1, 2], lambda number: [next(more) for _ in range(3)])
    assert (found["batch_size"], found["batches_per_step"]) == (5, 3)


def test_a_program_without_a_loader_records_none(watched):
    loader(num_workers=2)
    assert recorded(watched, [1, 2]) is None


def test_a_loader_is_the_same_whether_it_is_watched_or_not(watched):
    import torch

    def first():
        torch.manual_seed(3)
        batches = iter(loader(num_workers=2, shuffle=True))
        return [next(batches) for _ in range(6)]

    seen = first()
    assert list(loader_worker._files(watched[0]._driver.plan.folder, os.getpid()))
    loader_worker.end_watching(watched[0]._driver.plan.folder)
    assert seen == first()


def test_more_workers_than_enough_are_not_watched(watched, monkeypatch, tmp_path):
    monkeypatch.setattr(loader_worker, "MOST_WORKERS", 1)
    found = recorded(watched, loader("decode", num_workers=2))
    assert len(list(tmp_path.glob("*.loader"))) == 1
    assert longest(found) == ("item", "decode")


def test_an_error_of_the_dataset_is_its_own(watched):
    class Broken(Pictures):
        def __getitem__(self, number):
            raise LookupError("no such picture")

    for workers in (0, 1):
        with pytest.raises(LookupError, match="no such picture"):
            next(iter(loader(data=Broken(), num_workers=workers)))


def test_what_a_killed_worker_or_another_process_left_is_no_tally(tmp_path):
    mine = os.getpid()
    tally = {"seed": 1, **loader_tally.Tally().plain()}
    (tmp_path / f"{mine}-1.loader").write_text(json.dumps(tally))
    (tmp_path / f"{mine}-2.loader").touch()
    (tmp_path / f"{mine}-3.loader").write_text('{"seed"')
    (tmp_path / f"{mine + 1}-4.loader").write_text(json.dumps(tally))
    assert list(loader_worker.left_by_workers(str(tmp_path))) == [tally]


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_workers_of_an_unchanged_program_are_watched_however_they_start(tmp_path, method):
    (tmp_path / "train.py").write_text(PROGRAM)
    folder = tmp_path / "work"
    folder.mkdir()
    plan = plans.RecordingPlan(folder=str(folder), **PLAN)
    variables = program_environment(plan.VARIABLE, plan.save())
    subprocess.run(
        [sys.executable, "train.py", method],
        cwd=tmp_path,
        env={**environment(), **variables},
        timeout=240,
        check=True,
    )
    found = json.loads((folder / "rank0.traceprobe.json").read_text())["loader"]
    line = found["lines"][0]
    assert (line["part"], line["name"]) == ("item", "train.py(12): decode")
    assert found["persistent_workers"] is (method == "forkserver")
    assert not list(folder.glob("*.tmp"))
    assert len(list(folder.glob("*.loader"))) == 2


LIBRARY = """
def outer(inner):
    return middle(inner)

def middle(inner):
    return inner()
"""


def test_time_in_a_library_is_that_of_what_called_it():
    def made(source, file):
        scope = {"place": loader_tally.place, "sys": sys}
        exec(compile(source, f"/env/site-packages/{file}", "exec"), scope)
        return scope

    leaf = made("def leaf(): return place(sys._getframe())", "pil/image.py")["leaf"]
    vision = made(LIBRARY, "vision/flip.py")["outer"]
    fetch = made("def fetch(inner): return call(inner)", "torch/utils/data/_utils/fetch.py")
    fetch["call"] = vision

    class Fetcher:
        auto_collation = False
        collate_fn = None

    fetcher = Fetcher()
    fetcher.fetch = fetch["fetch"]
    loader_tally.time_fetches(fetcher, loader_tally.Tally())
    assert fetcher.fetch(leaf) == ("/env/site-packages/vision/flip.py", 3, "outer")
    own = fetcher.fetch(lambda: vision(leaf))
    assert (own[0], own[2]) == (__file__, "<lambda>")
    fetch["call"] = made("def run(inner): return inner()", "torch/utils/data/dataset.py")["run"]
    here = made("def leaf(): return place(sys._getframe())", "torch/utils/data/sampler.py")["leaf"]
    assert fetcher.fetch(here)[2] == "fetch"


def test_lines_are_called_as_kineto_calls_them():
    name = loader_tally.line_name
    assert name(__file__, 7, "decode") == "tests/test_loader_watch.py(7): decode"
    assert name("/env/site-packages/vision/flip.py", 3, "flip") == "vision/flip.py(3): flip"
    assert name(json.__file__, 1, "load") == "json/__init__.py(1): load"
    assert len(name(__file__, 1, "f" * 5_000)) <= 200


def test_only_the_first_batch_of_a_worker_is_left_out_and_only_where_there_are_more():
    tally = loader_tally.Tally()
    tally.begin()
    tally.end(4, 1000, 100)
    assert loader_tally.means([tally.plain()])["batches"] == 1
    for _ in range(2):
        tally.begin()
        tally.end(4, 8, 4)
    found = loader_tally.means([tally.plain(), loader_tally.Tally().plain()])
    assert (found["batches"], found["items_per_batch"]) == (2, 4)
    assert (found["item_ms"], found["collate_ms"]) == (1e-6, 4e-6)
    assert loader_tally.means([]) == {}


def test_steps_that_use_up_what_was_ready_are_in_no_range(watched, monkeypatch):
    import torch

    begun, log = [], FakeProfiler()
    plan = replace(watched[0]._driver.plan, backend="nsys", calibrate=4)
    session = sessions.RecordingSession(plan, log, updates_counted=True)

    def begin(name):
        if "start 2" in log.calls and "stop" not in log.calls:
            begun.append(name)

    monkeypatch.setattr(torch.cuda.nvtx, "range_start", begin)
    monkeypatch.setattr(torch.cuda.nvtx, "range_end", lambda handle: None)
    monkeypatch.setattr(optimizer_hook, "_adopted", False)
    monkeypatch.setattr(optimizer_hook, "updates", LoopUpdates())
    optimizer = torch.optim.SGD([torch.zeros(1)])
    ended = optimizer_hook._Steps(lambda: session, marked=True)
    batches = loader(num_workers=2, prefetch_factor=2)
    with pytest.raises(SystemExit):
        any(ended(optimizer) for _ in batches)
    # 4 steps for 2 batches of 2 workers, 1 to settle, 2 and one more, which has no step after it
    assert log.calls.count("step") == 4 + 1 + 2
    # and the one that begins when the profiler is stopped
    assert len(begun) == 1 + 2 + 1 + 1
