"""Collections of garbage have a range while a profiler runs, and cost the program nothing else."""

from __future__ import annotations

import gc
import json
from contextlib import contextmanager

import pytest

from tests.lazy import Lazy
from traceprobe.capture.profiler.garbage_ranges import GarbageRanges
from traceprobe.model.garbage import collection_name, is_collecting

pytestmark = pytest.mark.usefixtures("pytorch")
torch = Lazy("torch")


@contextmanager
def ranges():
    found = GarbageRanges()
    found.begin()
    try:
        yield found
    finally:
        found.end()


def recorded(folder, work):
    """Names of ranges about collections in a profile of some work."""
    profiler = torch.profiler
    with profiler.profile(activities=[profiler.ProfilerActivity.CPU]) as profile, ranges():
        work()
    profile.export_chrome_trace(str(folder / "trace.json"))
    events = json.loads((folder / "trace.json").read_text())["traceEvents"]
    return [e["name"] for e in events if e.get("ph") == "X" and is_collecting(e["name"])]


def test_each_collection_but_of_the_youngest_has_a_range(tmp_path):
    def collect():
        for generation in (0, 1, 2):
            gc.collect(generation)

    gc.disable()
    try:
        found = recorded(tmp_path, collect)
    finally:
        gc.enable()
    assert sorted(found) == [collection_name(1), collection_name(2)]


def test_a_mode_that_looks_at_operators_sees_none_of_ours(tmp_path):
    seen = []

    class Looks(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            seen.append(str(function))
            return function(*args, **(kwargs or {}))

    def collect():
        with Looks():
            gc.collect()

    assert recorded(tmp_path, collect) == []
    assert seen == []


@pytest.mark.filterwarnings("ignore:`torch.jit.trace` is deprecated:DeprecationWarning")
def test_a_mode_that_looks_at_functions_and_a_tracer_see_none_of_ours(tmp_path):
    seen = []

    class Looks(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            seen.append(str(function))
            return function(*args, **(kwargs or {}))

    def doubled(x):
        gc.collect()
        return x * 2

    def collect():
        with Looks():
            gc.collect()
        traced.append(str(torch.jit.trace(doubled, torch.ones(2)).graph))

    traced = []
    assert collection_name(2) in recorded(tmp_path, collect)
    assert seen == []
    assert "record_function" not in traced[0]


def test_a_forked_process_has_no_ranges(monkeypatch):
    with ranges() as found:
        monkeypatch.setattr("traceprobe.capture.profiler.garbage_ranges.os.getpid", lambda: -1)
        found._collected("start", {"generation": 2})
        assert found._open is None


def test_nothing_is_left_behind():
    before = list(gc.callbacks)
    with ranges() as found:
        found.begin()
        assert len(gc.callbacks) == len(before) + 1
    assert gc.callbacks == before


@pytest.mark.parametrize(
    ("name", "collects"),
    [
        (collection_name(2), True),
        ("gc.collect", True),
        ("garbage_collection", True),
        ("all_gather", False),
        ("collect metrics", False),
    ],
)
def test_names_tell_collections(name, collects):
    assert is_collecting(name) is collects
