"""What changes parameters after the optimizer is no forward pass; to prepare a batch stays one."""

from __future__ import annotations

import pytest

from tests.builders.loop import LOADER
from tests.builders.scenario import PID, Process, Script
from tests.written_traces import read_kineto
from traceprobe.model.taxonomy import Phase
from traceprobe.timeline import phases
from traceprobe.timeline.process_timeline import process_timeline

STEP_NS = 1_000_000
AVERAGE = ("aten::detach", *["aten::mul_", "aten::add_"] * 3)


def steps(*between, script, sequence=None, ranges=()):
    """Four steps whose marker is the optimizer; `between` update and forward pass these run."""
    for k in range(4):
        at = k * STEP_NS
        rows = [(name, at + 10_000 * (n + 1), sequence) for n, name in enumerate(between)]
        rows.append(("aten::linear", at + 200_000, 1))
        for name, t0, number in rows:
            forward = None if number is None else 0
            script.operator(name, t0, t0 + 5_000, sequence=number, forward_thread=forward)
        node = "autograd::engine::evaluate_function: AddmmBackward0"
        script.operator(node, at + 300_000, at + 400_000, sequence=1, forward_thread=1)
        script.range("Optimizer.step#SGD.step", at + 500_000, at + STEP_NS)
        script.operator("aten::_foreach_add_", at + 510_000, at + 520_000)
        for name, t0, t1 in ranges:
            script.range(name, at + t0, at + t1)
    return script


def phases_of(script, tmp_path):
    """Phases of the second step's work, in order."""
    trace = read_kineto(script.build(), tmp_path)
    ops = process_timeline(trace, PID, None, phases.compile_phase_names({})).ops
    number = len(ops) // 4
    return [Phase(n).name.lower() for n in ops["phase"].to_list()[number : 2 * number]]


STEP = ["forward", "backward", "optimizer"]


def on_cpu(*between, **options):
    return steps(*between, script=Script(Process(devices=())), **options)


@pytest.mark.parametrize(
    "names",
    [
        AVERAGE,
        ("aten::_foreach_mul_", "aten::_foreach_add_"),
        ("aten::_foreach_lerp_",),
        ("aten::zero_", "aten::_amp_update_scale_", *AVERAGE, "aten::copy_", *AVERAGE),
    ],
)
def test_an_average_of_the_parameters_is_no_forward_pass(tmp_path, names):
    assert phases_of(on_cpu(*names), tmp_path) == [*["unattributed"] * len(names), *STEP]


@pytest.mark.parametrize(
    "names",
    [
        ("aten::to", "aten::sub_", "aten::div_"),
        ("aten::sub_", "aten::div_"),
        ("aten::copy_", "aten::copy_", *AVERAGE),
        ("aten::randn", *AVERAGE),
        ("aten::index", "aten::stack"),
        ("aten::linear", "aten::relu_", "aten::linear"),
        ("aten::mul", "aten::add"),
    ],
)
def test_a_batch_or_an_evaluation_stays_what_it_is(tmp_path, names):
    assert phases_of(on_cpu(*names), tmp_path) == [*["forward"] * len(names), *STEP]


def test_operators_that_are_recorded_are_a_forward_pass(tmp_path):
    found = phases_of(on_cpu(*AVERAGE, sequence=3), tmp_path)
    assert found == [*["forward"] * len(AVERAGE), *STEP]


def test_what_follows_a_batch_is_of_the_batch(tmp_path):
    """The loader takes the batch after the average; what is done in place then is done to it."""
    names = [*AVERAGE, *["aten::mul_"] * 4]
    taken = (LOADER, 10_000 * len(AVERAGE) + 6_000, 10_000 * len(AVERAGE) + 8_000)
    found = phases_of(on_cpu(*names, ranges=[taken]), tmp_path)
    assert found == [*["unattributed"] * len(AVERAGE), *["forward"] * 4, *STEP]


def test_kernels_of_an_average_are_no_forward_pass_either(tmp_path):
    script = steps(*AVERAGE, script=Script())
    for k in range(4):
        for n in range(len(AVERAGE)):
            at = k * STEP_NS + 10_000 * (n + 1)
            script.op("kernel", at + 2_000, at + 4_000, (at + 1_000, at + 2_000))
        for at in (k * STEP_NS + t for t in (200_000, 510_000)):
            script.op("kernel", at + 2_000, at + 4_000, (at + 1_000, at + 2_000))
    found = phases_of(script, tmp_path)
    assert found == [*["unattributed"] * len(AVERAGE), "forward", "optimizer"]
