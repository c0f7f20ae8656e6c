"""Updates inside of backward passes end no step: the passes do, in both formats and on a CPU."""

from __future__ import annotations

import numpy as np
import pytest

from tests.builders import kineto, nsight
from tests.builders.scenario import AUTOGRAD, PID, Process, Script
from traceprobe.ingest.read_trace import read_trace
from traceprobe.timeline.iteration_groups import find_iterations

STEP = 1_000_000
LAYERS = 4
NODE = "autograd::engine::evaluate_function: "
SUMS = f"{NODE}torch::autograd::AccumulateGrad"
UPDATE = "Optimizer.step#SGD.step"
FORMATS = {
    "kineto": lambda script, path, **options: kineto.write(
        script.build(), path / "trace.json", **options
    ),
    "nsys": lambda script, path: nsight.write(
        script.build(), path / "trace.sqlite", emit_nvtx=True
    ),
}


class Training:
    """Steps of a forward pass, and of a backward pass whose nodes update what they sum.

    Args:
        gpu: whether nodes launch kernels, on a thread of autograd.
    """

    def __init__(self, *, gpu=True):
        self.script = Script() if gpu else Script(Process(devices=()))
        self.gpu, self.now = gpu, STEP
        self.backward_thread = AUTOGRAD if gpu else PID
        self.passes = []
        """When each backward pass ends."""

    def operator(self, name, thread, length=20_000, update=False, **columns):
        begin, end = self.now, self.now + length
        self.script.operator(name, begin, end, thread=thread, **columns)
        if update:
            self.script.range(UPDATE, begin + 5_000, end - 5_000, thread=thread)
            self.script.operator("aten::mul_", begin + 6_000, end - 6_000, thread=thread)
        if self.gpu:
            launch = (begin + 8_000, begin + 9_000)
            self.script.op("kernel", begin + 10_000, end, launch, thread=thread, name=name)
        self.now = end + 1_000

    def step(self, layers=LAYERS, *, update=True):
        for k in range(layers):
            self.operator("aten::addmm", PID, sequence=k, forward_thread=0)
        for k in reversed(range(layers)):
            node = f"{NODE}AddmmBackward0"
            self.operator(node, self.backward_thread, sequence=k, forward_thread=1)
            self.operator(SUMS, self.backward_thread, update=update)
        if update:
            self.passes.append(self.now - 1_000)
        self.now += 50_000
        return self

    def marker(self, folder, writer, **options):
        trace = read_trace(FORMATS[writer](self.script, folder, **options))
        frames = trace.host_ranges, trace.host_operators, trace.gpu_ops, trace.host_calls
        return find_iterations(*frames, trace.names, None)


def training(count=6, **options):
    made = Training(**options)
    for _ in range(count):
        made.step()
    return made


def check_passes(marker, made):
    """Iterations begin where the passes end; the clock of a file has a zero of its own."""
    assert marker.kind == "optimizer"
    assert marker.per_iteration == 1
    assert np.diff(marker.starts).tolist() == np.diff(made.passes).tolist()
    assert marker.thread == PID


@pytest.mark.parametrize("writer", FORMATS)
def test_the_end_of_the_pass_ends_the_step(tmp_path, writer):
    made = training()
    check_passes(made.marker(tmp_path, writer), made)


@pytest.mark.parametrize("shapes", [True, False])
def test_on_a_cpu_the_passes_are_on_the_thread_of_the_step(tmp_path, shapes):
    made = training(gpu=False)
    check_passes(made.marker(tmp_path, "kineto", shapes=shapes), made)


@pytest.mark.parametrize("gpu", [True, False])
def test_a_pass_that_updates_nothing_belongs_to_the_step_of_the_next_one(tmp_path, gpu):
    made = Training(gpu=gpu)
    for _ in range(6):
        made.step(update=False).step()
    check_passes(made.marker(tmp_path, "kineto"), made)


def test_updates_of_some_layers_are_no_steps_beside_that_of_the_rest(tmp_path):
    made, ends = Training(), []
    for _ in range(5):
        made.step()
        made.script.range(UPDATE, made.now, made.now + 9_000)
        ends.append(made.now + 9_000)
        made.now += 20_000
    marker = made.marker(tmp_path, "kineto")
    assert np.diff(marker.starts).tolist() == np.diff(ends).tolist()
    assert marker.thread == PID


def test_a_closure_is_not_inside_the_pass_that_it_makes(tmp_path):
    made, ends = Training(gpu=False), []
    for _ in range(5):
        begin = made.now
        made.step(update=False)
        made.script.range(UPDATE, begin - 500, made.now)
        ends.append(made.now)
        made.now += 20_000
    marker = made.marker(tmp_path, "kineto")
    assert np.diff(marker.starts).tolist() == np.diff(ends).tolist()


def test_updates_without_a_forward_pass_on_record_end_no_steps(tmp_path):
    made = Training(gpu=False)
    for _ in range(12):
        made.operator(SUMS, PID, update=True)
    assert made.marker(tmp_path, "kineto").kind == "kernels"
