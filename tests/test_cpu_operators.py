"""Work of a run on a CPU: operators, but not what only holds them while the program's Python runs.

Times are in microseconds; `seen` gives back those of the first step.
"""

from __future__ import annotations

import pytest

from tests.builders import kineto
from tests.builders.scenario import PID, Process, Script
from tests.written_traces import read_kineto
from traceprobe.model.codes import Role
from traceprobe.model.taxonomy import Phase
from traceprobe.timeline import phases
from traceprobe.timeline.process_timeline import process_timeline

STEP_US = 1_000
ENGINE = "autograd::engine::evaluate_function: "
OPTIMIZER = "Optimizer.step#SGD.step"


class Pass:
    """Steps of a run on a CPU that are all alike."""

    def __init__(self, steps: int = 1) -> None:
        self.script = Script(Process(devices=()))
        self.starts = [k * STEP_US for k in range(steps)]
        self.range("ProfilerStep#{}", 0, STEP_US)

    def range(self, name: str, t0: int, t1: int) -> Pass:
        for k, at in enumerate(self.starts):
            self.script.range(name.format(k), (at + t0) * 1_000, (at + t1) * 1_000)
        return self

    def operator(self, name: str, t0: int, t1: int, sequence: int | None = None) -> Pass:
        """`sequence` as operators have it that are recorded for a backward pass."""
        forward = None if sequence is None else 0
        return self._row(name, t0, t1, sequence=sequence, forward_thread=forward)

    def node(self, name: str, t0: int, t1: int, sequence: int | None = 1) -> Pass:
        """A node of the backward pass in the engine's own row, which is a little longer."""
        of = {"sequence": sequence, "forward_thread": 1}
        return self._row(ENGINE + name, t0 - 1, t1 + 1, **of)._row(name, t0, t1, **of)

    def _row(self, name: str, t0: int, t1: int, **columns: int | None) -> Pass:
        for at in self.starts:
            self.script.operator(name, (at + t0) * 1_000, (at + t1) * 1_000, **columns)
        return self

    def read(self, tmp_path):
        return read_kineto(self.script.build(), tmp_path)

    def seen(self, tmp_path):
        """(start, end, role) of the work of the first step."""
        rows = self.read(tmp_path).gpu_ops.select("t0", "t1", "role").rows()
        found = [(*((t - kineto.EPOCH_NS) // 1_000 for t in row[:2]), row[2]) for row in rows]
        return [row for row in found if row[0] < STEP_US]

    def phases(self, tmp_path):
        names = phases.compile_phase_names({})
        found = process_timeline(self.read(tmp_path), PID, None, names).ops["phase"].to_list()
        return [Phase(number).name.lower() for number in found[: len(found) // len(self.starts)]]


def test_a_function_of_the_program_is_no_work_but_its_operators_are(tmp_path):
    run = Pass().operator("Scan", 10, 100, sequence=1)
    run.operator("aten::mul", 20, 30).operator("aten::add", 60, 70).operator("aten::to", 61, 69)
    run.node("ScanBackward", 200, 300).operator("aten::mul", 250, 260)
    assert run.seen(tmp_path) == [
        (20, 30, Role.FORWARD),
        (60, 70, Role.FORWARD),
        (250, 260, Role.BACKWARD),
    ]
    trace = run.read(tmp_path)
    assert {trace.names[i] for i in trace.host_operators["name"]} == {
        *("Scan", "ScanBackward", f"{ENGINE}ScanBackward")
    }


def test_what_pytorch_runs_itself_is_work_as_a_whole(tmp_path):
    run = Pass().operator("aten::linear", 10, 100, sequence=1).operator("aten::addmm", 20, 80)
    run.operator("CompiledFunction", 110, 150, sequence=2).operator("aten::mm", 120, 130)
    run.node("AddmmBackward0", 200, 300).operator("aten::mm", 210, 220)
    run.node("CompiledFunctionBackward", 400, 500).operator("aten::mm", 410, 420)
    run.node("torch::autograd::AccumulateGrad", 600, 620).operator("aten::add_", 605, 610)
    assert run.seen(tmp_path) == [
        (10, 100, Role.FORWARD),
        (110, 150, Role.FORWARD),
        (199, 301, Role.BACKWARD),
        (399, 501, Role.BACKWARD),
        (599, 621, Role.BACKWARD),
    ]


def test_a_function_without_operators_is_work(tmp_path):
    run = Pass().operator("Sparse", 10, 100, sequence=1).node("SparseBackward", 200, 300)
    assert [row[:2] for row in run.seen(tmp_path)] == [(10, 100), (199, 301)]


def test_a_function_inside_of_an_operator_is_part_of_it(tmp_path):
    run = Pass().operator("mine::scan", 5, 110).operator("Scan", 10, 100, sequence=1)
    run.operator("aten::mul", 20, 30).node("ScanBackward", 200, 300)
    assert [row[:2] for row in run.seen(tmp_path)] == [(5, 110), (199, 301)]


def checkpoint_by_hooks(run):
    """`use_reentrant=False`: the first node that asks for what was not kept runs it all again."""
    run.node("AddmmBackward0", 200, 400)
    for at in (210, 250):
        run.operator("aten::linear", at, at + 30, sequence=7).operator(
            "aten::addmm", at + 5, at + 9
        )
    return run.operator("aten::t", 300, 310).operator("aten::mm", 320, 390)


def checkpoint_by_function(run):
    """`use_reentrant=True`: forward again, then a backward pass of its own inside of the node."""
    run.operator("CheckpointFunction", 10, 90, sequence=1).operator("aten::linear", 20, 80)
    run.node("CheckpointFunctionBackward", 200, 400).operator("aten::detach", 205, 208)
    run.operator("aten::linear", 210, 240, sequence=7).operator("aten::gelu", 250, 280, sequence=8)
    return run.node("AddmmBackward0", 300, 390, sequence=7).operator("aten::mm", 310, 380)


@pytest.mark.parametrize("checkpoint", [checkpoint_by_hooks, checkpoint_by_function])
def test_what_the_backward_pass_runs_again_on_its_own_thread_is_recompute(tmp_path, checkpoint):
    run = checkpoint(Pass())
    again = [row[:2] for row in run.seen(tmp_path) if row[2] == Role.RECOMPUTE]
    assert again == [(210, 240), (250, 280)]


@pytest.mark.parametrize("checkpoint", [checkpoint_by_hooks, checkpoint_by_function])
def test_recompute_is_a_phase_of_a_cpu_too(tmp_path, checkpoint):
    run = checkpoint(Pass(4).operator("aten::embedding", 2, 8, sequence=0))
    run.range(OPTIMIZER, 500, 600).operator("aten::add_", 510, 590)
    found = run.phases(tmp_path)
    assert found.count("recompute") == 2
    assert found[0] == "forward"
    assert found[-2:] == ["backward", "optimizer"]


def test_functions_that_run_again_take_their_operators_along(tmp_path):
    run = Pass().operator("Scan", 10, 90, sequence=1).operator("aten::mul", 20, 30)
    run.node("MmBackward0", 200, 400).operator("Scan", 210, 300, sequence=7)
    run.operator("aten::mul", 220, 230).operator("aten::mm", 320, 390)
    run.node("ScanBackward", 500, 600).operator("aten::mul", 510, 520)
    assert run.seen(tmp_path) == [
        (20, 30, Role.FORWARD),
        (220, 230, Role.RECOMPUTE),
        (320, 390, Role.BACKWARD),
        (510, 520, Role.BACKWARD),
    ]


def test_a_backward_pass_that_is_recorded_runs_nothing_again(tmp_path):
    """`create_graph=True`: what the nodes themselves run has sequence numbers as well."""
    run = Pass().node("AddmmBackward0", 200, 300).operator("aten::mm", 210, 290, sequence=9)
    run.operator("Scan", 10, 90, sequence=1).operator("aten::mul", 20, 30)
    run.node("ScanBackward", 400, 500).operator("aten::mul", 410, 420, sequence=10)
    run.operator("aten::mul", 430, 440, sequence=11)
    assert run.seen(tmp_path)[1:] == [
        (199, 301, Role.BACKWARD),
        (410, 420, Role.BACKWARD),
        (430, 440, Role.BACKWARD),
    ]


def test_an_optimizer_inside_of_the_backward_pass_is_one(tmp_path):
    run = Pass(4).operator("aten::linear", 10, 100, sequence=1)
    run.node("AddmmBackward0", 200, 300).operator("aten::mm", 210, 290)
    run.node("torch::autograd::AccumulateGrad", 310, 400).operator("aten::detach", 312, 314)
    run.range(OPTIMIZER, 320, 390).operator("aten::add_", 330, 340)
    assert run.phases(tmp_path) == ["forward", "backward", "backward", "optimizer"]
