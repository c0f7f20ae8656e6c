"""What a recording read of the GPU's clock becomes the finding `clock-changed`."""

from __future__ import annotations

import json

import pytest

from tests import records
from tests.builders import kineto
from tests.builders.kernels import kernels_lasting
from tests.records import step
from traceprobe import analyze
from traceprobe.capture.machine.clock_readings import REASONS
from traceprobe.findings.recorded_clock import recorded_clock
from traceprobe.ingest.read_trace import read_trace
from traceprobe.model.sidecar import Block, BlockClock
from traceprobe.model.throttle_reasons import REASON_WORDS, advice_for, words_of
from traceprobe.verdict.correction import correct


def block(mhz=None, *, profiled=False, ms=100.0, kept=True, **clock):
    """Ten steps, and what was read of the clock meanwhile."""
    return Block(
        profiled=profiled,
        kept=kept,
        steps=10,
        step_ms=ms,
        clock=BlockClock(sm_mhz=mhz, samples=20, **clock),
    )


@pytest.mark.parametrize(
    ("without", "under", "changed"),
    [(1980, 1980, False), (1980, 1810, False), (1980, 1780, True), (990, 1980, True)],
)
def test_clocks_with_and_without_the_profiler(without, under, changed):
    blocks = [block(without), block(under, profiled=True), block(without)]
    found = recorded_clock(blocks)
    assert found.changed is changed
    if changed:
        assert found.sentences == [
            f"the GPU's clock was {without} MHz in the steps without the profiler and {under} MHz "
            "in those with it"
        ]


def test_one_block_among_many_is_seen():
    blocks = [block(1980), block(1980, profiled=True), block(1400), block(1980), block(1980)]
    found = recorded_clock(blocks)
    assert found.sentences == ["the GPU's clock was between 1400 and 1980 MHz in blocks of steps"]
    blocks[2] = block(1400, kept=False)
    assert not recorded_clock(blocks).changed


def test_short_blocks_must_differ_by_more():
    assert not recorded_clock([block(1425, ms=10), block(1605, ms=10)]).changed
    assert recorded_clock([block(990, ms=10), block(1980, ms=10)]).changed


def test_a_constant_clock_at_the_power_limit_is_no_change():
    capped = {"throttled": ["sw_power_cap"], "lowest_sm_mhz": 1215.0}
    found = recorded_clock([block(1481, **capped), block(1490, profiled=True, **capped)])
    assert (found.changed, found.shared, found.sentences) == (False, False, [])


@pytest.mark.parametrize(
    ("others", "percent"),
    [
        ([28, 28, 0], None),
        ([47, 31, 0], None),
        ([60, 65, 60], 65),
        ([60, 40, 4.8], 60),
        ([0, 43, 0], 43),
        ([0, 0, 30], 30),
        ([3, 4, 3], None),
    ],
)
def test_a_job_that_ended_before_is_no_neighbour(others, percent):
    found = recorded_clock([block(1980, others_percent=float(o)) for o in others])
    assert found.shared is (percent is not None)
    assert percent is None or found.others_percent == percent


@pytest.mark.parametrize(
    ("others", "profiled", "shared"),
    [
        ([50, 50, 0], 1, True),
        ([80, 80, 80, 80, 0], 3, True),
        ([50, 30, 0], 1, False),
        ([50, 0, 0], 1, False),
        ([50, 0], 0, False),
    ],
)
def test_a_neighbour_until_the_profiler_ended_is_one(others, profiled, shared):
    """What is left of a job that ended before can only fall."""
    found = recorded_clock(
        [
            block(1980, profiled=place == profiled, others_percent=float(percent))
            for place, percent in enumerate(others)
        ]
    )
    assert found.shared is shared


def test_reasons_are_told_in_words_and_unknown_ones_not_at_all():
    hot = {"throttled": ["hw_thermal_slowdown", "sw_thermal_slowdown", "my secret"]}
    found = recorded_clock([block(1980), block(1200, **hot)])
    assert found.sentences[-1] == "what lowered it: heat"
    assert "cooling" in advice_for(found.reasons)
    assert set(REASON_WORDS) == set(REASONS.values())
    assert words_of(["no such"]) == []
    assert advice_for([]) == ""


def test_the_kernel_of_known_cycles_stands_in_for_a_clock_that_nobody_reads():
    assert recorded_clock([block(spin_mhz=1980.0), block(spin_mhz=1300.0)]).changed


def test_a_recording_without_clocks_says_nothing():
    silent = Block(profiled=False, steps=10, step_ms=100.0)
    assert recorded_clock([silent, block(), silent]).sentences == []
    assert recorded_clock([]).sentences == []


@pytest.mark.parametrize(
    ("blocks", "id", "said"),
    [
        ([(False, 1980.0, 0.0), (True, 1980.0, 0.0)], None, ""),
        ([(False, 1980.0, 0.0), (True, 1410.0, 0.0)], "clock-changed", "1410 MHz in those with it"),
        ([(False, 1980.0, 0.0), (True, 1980.0, 43.2)], "gpu-shared", "for 43.2 % of the time"),
    ],
)
def test_the_finding_of_a_recording(tmp_path, blocks, id, said):
    path = kineto.write(kernels_lasting([100] * 9), tmp_path / "trace.json")
    document = json.loads(path.read_text())
    document["traceprobe"] = {
        "unprofiled_step_ms": 1.2,
        "blocks": [
            {
                "profiled": profiled,
                "steps": 800,
                "step_ms": 1.2,
                "clock": {"sm_mhz": mhz, "others_percent": others, "samples": 19},
            }
            for profiled, mhz, others in blocks
        ],
    }
    path.write_text(json.dumps(document))
    report = analyze(read_trace(path))
    found = {f.id: f for f in report.findings if f.id in ("clock-changed", "gpu-shared")}
    codes = [warning.code for warning in report.quality.warnings]
    assert ("calibration-clock" in codes) is (blocks[1][1] != blocks[0][1])
    assert {f.id for f in found.values() if f.status != "pass"} == ({id} if id else set())
    assert id is None or said in " ".join(found[id].evidence)


@pytest.mark.parametrize(
    ("others", "reasons", "own"),
    [
        (0.0, ["sw_power_cap"], True),
        (40.0, ["sw_power_cap"], False),
        (None, ["sw_power_cap"], False),
        (0.0, ["sw_power_cap", "sw_thermal_slowdown"], False),
        (0.0, [], False),
    ],
)
def test_a_program_that_alone_takes_a_gpu_to_its_power_limit_has_nothing_to_mend(
    tmp_path, others, reasons, own
):
    path = kineto.write(kernels_lasting([100] * 9), tmp_path / "trace.json")
    document = json.loads(path.read_text())
    clock = {"others_percent": others, "samples": 19, "throttled": reasons}
    document["traceprobe"] = {
        "unprofiled_step_ms": 1.2,
        "blocks": [
            {"profiled": p, "steps": 800, "step_ms": 1.2, "clock": {**clock, "sm_mhz": mhz}}
            for p, mhz in ((False, 1400.0), (True, 1650.0))
        ],
    }
    path.write_text(json.dumps(document))
    found = next(f for f in analyze(read_trace(path)).findings if f.id == "clock-changed")
    assert found.status == "warn"
    assert ("Nothing needs fixing" in found.advice) is own
    assert ("Look for a limit" in found.advice) is not own


@pytest.mark.parametrize(("others", "own"), [(0.0, True), (30.0, False)])
def test_kernels_that_are_slower_at_the_power_limit_of_the_program_itself(tmp_path, others, own):
    path = kineto.write(kernels_lasting([115] + [100] * 8), tmp_path / "trace.json")
    document = json.loads(path.read_text())
    clock = {"others_percent": others, "throttled": ["sw_power_cap"], "sm_mhz": 1650.0}
    document["traceprobe"] = {
        "unprofiled_step_ms": 1.2,
        "blocks": [
            {"profiled": p, "steps": 800, "step_ms": 1.2, "clock": clock | {"samples": 19}}
            for p in (False, True, False)
        ],
    }
    path.write_text(json.dumps(document))
    found = next(f for f in analyze(read_trace(path)).findings if f.id == "clock-changed")
    assert (found.status, "1.15 times" in found.evidence[0]) == ("warn", True)
    assert ("Nothing needs fixing" in found.advice) is own


def test_steps_of_another_clock_do_not_rule_the_host_out():
    rank = records.rank(step(idle_host=500))
    ns, heavy = rank.summary.step_ms.mean * 1e6, frozenset({"operators"})
    assert correct([rank], None, ns, heavy).overhead_ruled_out
    other = correct([rank], None, ns, heavy, doubt="another clock")
    assert (other.overhead_ruled_out, other.calibration_doubt) == (False, "another clock")
