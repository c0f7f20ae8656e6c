"""A short capture begins once the batches that lay ready are used up."""

from __future__ import annotations

import json

import pytest

from traceprobe.capture.recording import short_capture
from traceprobe.capture.recording.short_capture import (
    READY_S,
    ShortCapture,
    may_capture,
    ready_steps,
)

pytestmark = pytest.mark.usefixtures("pytorch")


def test_as_many_steps_as_batches_can_lie_ready_or_time_allows():
    from torch.utils.data import DataLoader

    before = ready_steps(0.0)
    batches = iter(DataLoader(range(1000), num_workers=2, prefetch_factor=before + 5))
    next(batches)
    assert ready_steps(0.0) == 2 * (before + 5)
    assert ready_steps(READY_S / 3.5) == 2
    assert ready_steps(2 * READY_S) == 0
    del batches


def test_ranks_throw_away_the_same_number_of_steps():
    from torch.utils.data import DataLoader

    batches = iter(DataLoader(range(1000), num_workers=2, prefetch_factor=32))
    next(batches)
    assert [ready_steps(step_s) for step_s in (0.4999, 0.5001)] == [32, 32]
    del batches


@pytest.mark.parametrize(("ready_s", "thrown_away"), [(0.0, 1), (60.0, 9)])
def test_steps_that_take_too_long_are_not_all_thrown_away(
    tmp_path, monkeypatch, ready_s, thrown_away
):
    import torch

    monkeypatch.setattr(short_capture, "READY_S", ready_s)
    assert may_capture(lambda: None)
    capture = ShortCapture(tmp_path, 0, 2, "named", ready=8)
    going = True
    while going:
        with torch.profiler.record_function(f"my step {capture.steps}"):
            torch.ones(8).sum()
        going = capture.step()
    names = {event["name"] for event in json.loads(capture.stop().read_text())["traceEvents"]}
    assert (capture.steps, capture.kept) == (thrown_away + 3, 3)
    kept = {f"my step {thrown_away + n}" for n in range(3)}
    assert {name for name in names if name.startswith("my step")} == kept
