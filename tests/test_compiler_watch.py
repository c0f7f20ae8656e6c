"""What a recording notes of torch.compile: ranges around compilations, and breaks of graphs."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.fake_profiler import SHORT_PLAN, FakeProfiler
from traceprobe.capture.profiler.compiler_watch import CompilerWatch
from traceprobe.capture.profiler.graph_breaks import graph_breaks
from traceprobe.capture.recording.recording_plan import RecordingPlan
from traceprobe.capture.recording.recording_session import RecordingSession

HERE = Path(__file__)
LOADED = "torch._dynamo.callback"


class Own:
    """Tells that this file is the program's own."""

    def name(self, file):
        return HERE.name if Path(file) == HERE else None


@pytest.fixture
def dynamo(pytorch):
    """Dynamo as a program begins with it."""
    import torch._dynamo
    from torch._dynamo import utils

    def begin():
        torch._dynamo.reset()
        utils.clear_compilation_metrics()

    begin()
    yield torch._dynamo
    begin()


@pytest.fixture
def ranges(dynamo, monkeypatch):
    """The ranges of NVTX in the order in which they end, those that are open, and marks."""
    import torch

    open_, closed = {}, []

    def start(name):
        open_[len(open_) + len(closed)] = name
        return len(open_) + len(closed) - 1

    monkeypatch.setattr(torch.cuda.nvtx, "range_start", start)
    monkeypatch.setattr(torch.cuda.nvtx, "range_end", lambda n: closed.append(open_.pop(n)))
    marks = []
    monkeypatch.setattr(torch.cuda.nvtx, "mark", marks.append)
    return SimpleNamespace(open=open_, closed=closed, marks=marks)


@pytest.fixture
def watch(dynamo, monkeypatch):
    made = CompilerWatch()
    monkeypatch.setattr("traceprobe.capture.owners.program_place.own_code", lambda: Own())
    yield made
    made.end()


def compiled(function):
    import torch

    return torch.compile(function, backend="eager", dynamic=False)


def line_of(text):
    """Number of the line of this file that ends with a mark."""
    lines = HERE.read_text().splitlines()
    return next(n for n, line in enumerate(lines, 1) if line.endswith(f"# {text}"))


def test_each_compilation_has_a_range_with_its_version_and_the_line_that_calls_it(ranges, watch):
    import torch

    double = compiled(lambda x, n: x * n)
    double(torch.ones(2), 1)
    watch.mark()
    watch.mark()
    for factor in (1, 2, 3):
        double(torch.ones(2), factor)  # compiles
    name = "test_each_compilation_has_a_range_with_its_version_and_the_line_that_calls_it"
    at = f"{HERE.name}({line_of('compiles')}): {name}"
    assert ranges.closed == [f"torch.compile (dynamo_timed) at {at}"] * 2
    assert ranges.marks == [f"torch.compile compile_id=0/{version}" for version in (1, 2)]
    assert not ranges.open
    watch.end()
    double(torch.ones(2), 4)
    assert len(ranges.closed) == 2


def test_the_backward_pass_that_is_compiled_has_a_range_as_well(ranges, watch):
    import torch

    watch.mark()
    cosine = torch.compile(torch.cos, backend="aot_eager")
    cosine(torch.ones(2, requires_grad=True)).sum().backward()
    assert len(ranges.closed) == 2


def test_only_the_steps_that_nsight_records_are_marked(ranges, watch, monkeypatch):
    import torch

    from traceprobe.capture.profiler.profiler_backend import NsysBackend

    monkeypatch.setattr("traceprobe.capture.profiler.profiler_backend.compiler_watch", watch)
    monkeypatch.setattr(torch.cuda.profiler, "start", lambda: None)
    monkeypatch.setattr(torch.cuda.profiler, "stop", lambda: None)
    backend, double = NsysBackend(), compiled(lambda x, n: x * n)
    seen = []
    for step, factor in ((lambda: backend.start(2, 1), 1), (backend.step, 2), (backend.stop, 3)):
        step()
        double(torch.ones(2), factor)
        seen.append(len(ranges.closed))
    assert seen == [1, 2, 2]


def test_a_program_that_resets_dynamo_is_marked_from_the_next_step_on(ranges, watch, dynamo):
    import torch

    watch.mark()
    dynamo.reset()
    watch.mark()
    compiled(torch.cos)(torch.ones(2))
    assert len(ranges.closed) == 1
    dynamo.reset()
    watch.end()  # nothing is left to take out


def test_without_nvtx_the_program_compiles_all_the_same(dynamo, watch):
    import torch

    watch.mark()
    assert compiled(torch.cos)(torch.zeros(2)).tolist() == [1, 1]


@pytest.mark.parametrize("loaded", [None, SimpleNamespace(), SimpleNamespace(callback_handler=3)])
def test_where_dynamo_is_not_loaded_or_tells_nothing_nothing_is_marked(monkeypatch, loaded):
    monkeypatch.setitem(sys.modules, LOADED, loaded)
    monkeypatch.setitem(sys.modules, "torch._dynamo.utils", loaded)
    watch = CompilerWatch()
    watch.mark()
    watch.end()
    assert watch.facts() is None


def test_older_versions_tell_nothing_of_what_they_compile(ranges, watch):
    watch._began()
    watch._ended()
    assert len(ranges.closed) == 1
    assert not ranges.marks


def says(x):
    x = x + 1
    print(end="")  # breaks
    return x * 2


def asks(x):
    x = says(x)
    if x.sum() > 0:  # decides
        x = x + 1
    return x


def repeats(x):
    for _ in range(2):
        x = x + 1
        print(end="")  # in a loop
    return x


@pytest.mark.parametrize(
    ("function", "places"),
    [
        (lambda x: x + 1, []),
        (says, [("breaks", "says")]),
        (asks, [("breaks", "says"), ("decides", "asks")]),
        (repeats, [("in a loop", "repeats")]),
    ],
)
def test_breaks_are_known_by_the_lines_where_graphs_end(dynamo, function, places):
    import torch

    double = compiled(function)
    for size in (2, 3):
        double(torch.ones(size))
    found = graph_breaks(Own())
    assert found["breaks"] == len(places)
    lines = [f"{HERE.name}({line_of(mark)}): {name}" for mark, name in places]
    assert sorted(found["lines"]) == sorted(lines)


def test_a_break_in_a_library_has_a_place_and_no_line(dynamo):
    import torch

    compiled(says)(torch.ones(2))
    found = graph_breaks(SimpleNamespace(name=lambda file: None))
    assert found == {"breaks": 1, "lines": []}


def test_a_program_that_compiles_nothing_has_no_breaks_to_know(dynamo):
    assert graph_breaks(Own()) is None


def test_a_recording_tells_where_graphs_break(watch, tmp_path, monkeypatch):
    import torch

    monkeypatch.setattr("traceprobe.capture.recording.recording_session.compiler_watch", watch)
    session = RecordingSession(RecordingPlan(folder=str(tmp_path), **SHORT_PLAN), FakeProfiler())
    double, number = compiled(says), 0
    while session.before_step(number):
        double(torch.ones(2))
        number += 1
    recorded = json.loads((tmp_path / "rank0.traceprobe.json").read_text())
    assert recorded["compiler"]["breaks"] == 1
    assert not recorded["compiler"]["marked"]
