"""Steps of a recording are what its capture counted; iterations are what the trace marks."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec.structs import replace as changed

import traceprobe
from tests.builders import kineto
from tests.builders.loop import Loop

MS = 1_000_000
LOOP = Loop(
    steps=8, data_wait_ns=6 * MS, wait="loader", forward_ns=2 * MS, backward_ns=4 * MS, h2d_ns=MS
)


@pytest.fixture
def recorded(tmp_path):
    """Analyses a loop whose recording counted steps of so many of its iterations."""

    def analysed(name, iterations, unprofiled=0.9):
        path = kineto.write(replace(LOOP, step_name=name).scenario(), tmp_path / "trace.json")
        trace = traceprobe.load(path)
        step_ms = iterations * traceprobe.analyze(trace).ranks[0].summary.step_ms.mean
        blocks = [
            {"profiled": False, "steps": 4, "step_ms": unprofiled * step_ms},
            {"profiled": True, "steps": 9, "step_ms": 1.04 * step_ms},  # it begins slowly
        ]
        sidecar = {"unprofiled_step_ms": unprofiled * step_ms, "blocks": blocks}
        return traceprobe.analyze(changed(trace, metadata={"traceprobe": sidecar}))

    return analysed


@pytest.mark.parametrize("iterations", [4, 1, 1 / 4])
def test_a_step_without_the_profiler_is_that_of_an_iteration(recorded, iterations):
    """As where the loop accumulates: its batches are marked, and updates were counted."""
    report = recorded("batch {}", iterations)
    assert report.quality.observer_effect.ratio == pytest.approx(1 / 0.9, rel=1e-3)


def test_nothing_saves_more_than_the_step_it_stands_beside(recorded):
    report = recorded("batch {}", 4)
    step = report.quality.observer_effect.unprofiled_step_ms
    savings = [f.saving_ms_per_step for f in report.findings if f.saving_ms_per_step]
    assert savings
    assert max(savings) <= step < 14


def test_marks_of_the_recording_itself_need_no_times(recorded):
    report = recorded("ProfilerStep#{}", 4)
    assert report.quality.observer_effect.ratio == pytest.approx(1 / 3.6, rel=1e-3)


def test_times_that_tell_no_whole_number_tell_nothing(recorded):
    assert recorded("batch {}", 2.5).quality.observer_effect.ratio == pytest.approx(
        1 / 2.25, rel=0.01
    )
