"""The calibration of an Nsight recording travels inside its export."""

from __future__ import annotations

import json

import traceprobe
from tests.builders import nsight
from tests.builders.loop import Loop
from traceprobe.capture import nsys_backend

LOOP = Loop(steps=6, forward_ns=400_000, backward_ns=600_000, launch_gap_ns=200_000)
CALIBRATION = {"unprofiled_step_ms": 1.1, "unprofiled_data_wait_ms": 0.0, "workload": {"name": "x"}}


def test_an_export_with_the_sidecar_inside_is_corrected_for_the_profiler(tmp_path):
    nsight.write(LOOP.scenario(), tmp_path / "run.sqlite")
    plain = traceprobe.analyze(traceprobe.load(tmp_path / "run.sqlite"))
    (tmp_path / "rank0.traceprobe.json").write_text(json.dumps(CALIBRATION))
    nsys_backend.embed(tmp_path / "run.sqlite", nsys_backend.sidecars(tmp_path))
    report = traceprobe.analyze(traceprobe.load(tmp_path / "run.sqlite"))
    assert plain.quality.observer_effect is None
    assert report.quality.observer_effect.unprofiled_step_ms == 1.1
    assert report.workload == {"name": "x"}
    assert report.verdict.shares["overhead"] < plain.verdict.shares["overhead"]
    assert report.ranks[0].summary == plain.ranks[0].summary


def test_sidecars_are_found_by_rank(tmp_path):
    for rank in (0, 1, 11):
        (tmp_path / f"rank{rank}.traceprobe.json").write_text(json.dumps({"rank": rank}))
    assert nsys_backend.sidecars(tmp_path) == {r: {"rank": r} for r in (0, 1, 11)}
