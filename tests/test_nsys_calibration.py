"""The calibration of an Nsight recording travels inside its export."""

from __future__ import annotations

import json

import pytest

import traceprobe
from tests.builders import nsight
from tests.builders.loop import Loop
from traceprobe.capture.process import nsys_tool
from traceprobe.errors import UsageError

LOOP = Loop(steps=6, forward_ns=400_000, backward_ns=600_000, launch_gap_ns=200_000)
CALIBRATION = {"unprofiled_step_ms": 1.1, "unprofiled_data_wait_ms": 0.0, "workload": {"name": "x"}}


def test_an_export_with_the_sidecar_inside_is_corrected_for_the_profiler(tmp_path):
    nsight.write(LOOP.scenario(), tmp_path / "run.sqlite")
    plain = traceprobe.analyze(traceprobe.load(tmp_path / "run.sqlite"))
    (tmp_path / "rank0.traceprobe.json").write_text(json.dumps(CALIBRATION))
    nsys_tool.embed_sidecars(tmp_path / "run.sqlite", nsys_tool.read_sidecars(tmp_path))
    report = traceprobe.analyze(traceprobe.load(tmp_path / "run.sqlite"))
    assert plain.quality.observer_effect is None
    assert report.quality.observer_effect.unprofiled_step_ms == 1.1
    assert report.workload == {"name": "x"}
    assert report.verdict.shares["overhead"] < plain.verdict.shares["overhead"]
    assert report.ranks[0].summary == plain.ranks[0].summary


def test_sidecars_are_found_by_rank(tmp_path):
    for rank in (0, 1, 11):
        (tmp_path / f"rank{rank}.traceprobe.json").write_text(json.dumps({"rank": rank}))
    assert nsys_tool.read_sidecars(tmp_path) == {r: {"rank": r} for r in (0, 1, 11)}


def fake_nsys(folder, refused):
    """A tool that writes its options to its output, and fails with those it is too old for."""
    tool = folder / "nsys"
    tool.write_text(
        "#!/bin/sh\n"
        f"case \"$*\" in {refused}) echo 'unrecognised option' >&2; exit 1;; esac\n"
        'for o in "$@"; do case "$o" in --output=*) echo "$*" > "${o#--output=}";; esac; done\n'
    )
    tool.chmod(0o755)
    return str(tool)


@pytest.mark.parametrize(
    ("refused", "blobs", "tables"),
    [
        ("never", True, True),
        ("*--include-blobs*", False, True),
        ("*--tables*|*--include-blobs*", False, False),
    ],
)
def test_an_export_has_what_the_installed_tool_can_write(tmp_path, refused, blobs, tables):
    done = nsys_tool.export_sqlite(
        tmp_path / "r.nsys-rep", tmp_path / "r.sqlite", fake_nsys(tmp_path, refused)
    )
    options = done.read_text()
    assert ("--include-blobs=true" in options, "--tables=" in options) == (blobs, tables)
    assert options.rstrip().endswith("r.nsys-rep")


def test_an_export_that_fails_says_what_the_tool_said(tmp_path):
    with pytest.raises(UsageError, match=r"r\.nsys-rep: nsys export failed: unrecognised option"):
        nsys_tool.export_sqlite(
            tmp_path / "r.nsys-rep", tmp_path / "r.sqlite", fake_nsys(tmp_path, "*")
        )
