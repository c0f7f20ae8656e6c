"""Calls of operators, and what they launch: exact on traces made op by op."""

from __future__ import annotations

import json

import pytest

import traceprobe
from tests.builders import kineto
from tests.builders.scenario import Script

US = 1000
ZERO = 1_000 * US
STEP = 1_000 * US
STEPS = 4
USED = STEPS - 1
"""The capture ends in the last one."""


def loop():
    """Steps with an operator in another, each with kernels, and one more that launches nothing."""
    script = Script()
    for step in range(STEPS):
        start = ZERO + step * STEP
        script.range(f"ProfilerStep#{step}", start, start + STEP - 50 * US)
        script.operator("aten::linear", start + 10 * US, start + 100 * US)
        script.operator("aten::addmm", start + 20 * US, start + 80 * US)
        script.operator("aten::view", start + 200 * US, start + 203 * US)
        script.operator("aten::view", start + 210 * US, start + 213 * US)
        # Called after the range of the step and before the next one: still of this step.
        script.operator("aten::detach", start + STEP - 20 * US, start + STEP - 15 * US)
        for launch, length in ((30, 40), (60, 20), (90, 5)):
            call = start + launch * US
            t0 = call + 5 * US + (40 * US if launch > 30 else 0)
            script.op("kernel", t0, t0 + length * US, (call, call + 2 * US), name=f"k{launch}")
    return script


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    path = kineto.write(loop().build(), tmp_path_factory.mktemp("calls") / "t.json")
    (rank,) = traceprobe.analyze(traceprobe.load(path)).ranks
    assert rank.summary.iterations_used == USED
    return {
        each.name: tuple(
            n / USED for n in (each.count, each.host_ns, each.operations, each.device_ns)
        )
        for each in rank.summary.operators
    }


def test_a_call_has_all_its_time_and_only_the_kernels_that_it_launches_itself(found):
    assert found["aten::linear"] == (1, 90 * US, 1, 5 * US)
    assert found["aten::addmm"] == (1, 60 * US, 2, 60 * US)


def test_operators_that_launch_nothing_are_there_and_come_last(found):
    assert found["aten::view"] == (2, 6 * US, 0, 0)
    assert list(found) == ["aten::addmm", "aten::linear", "aten::view", "aten::detach"]


def test_what_is_called_between_two_steps_is_of_the_first(found):
    assert found["aten::detach"] == (1, 5 * US, 0, 0)


def test_a_trace_without_operators_has_no_list(tmp_path):
    path = kineto.write(loop().build(), tmp_path / "t.json")
    content = json.loads(path.read_text())
    content["traceEvents"] = [e for e in content["traceEvents"] if e.get("cat") != "cpu_op"]
    path.write_text(json.dumps(content))
    (rank,) = traceprobe.analyze(traceprobe.load(path)).ranks
    assert not rank.summary.operators
