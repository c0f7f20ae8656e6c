"""The phase of a kernel by its launch site: ranges, threads, operators, and what the step had done.

Kernels run one after the other on the GPU, in the order of their launches in the test.
"""

from __future__ import annotations

import polars as pl
import pytest
from msgspec.structs import replace

from tests.builders import memory
from tests.builders.loop import LOADER
from tests.builders.program import UPDATE, Program
from tests.builders.scenario import AUTOGRAD, PID, Process, Script, merge
from traceprobe.errors import UsageError
from traceprobe.model.taxonomy import Phase
from traceprobe.timeline import phases
from traceprobe.timeline.process_timeline import process_timeline

WORKER = 1099
ADAM_STEP = "Optimizer.step#AdamW.step"
ZERO_GRAD = "Optimizer.zero_grad#AdamW.zero_grad"


def steps(*ends):
    """A script with step ranges that end at these times."""
    script, begin = Script(), 0
    for k, end in enumerate(ends):
        script.range(f"step {k}", begin, end)
        begin = end
    return script


def launch(script, *times, thread=PID, **columns):
    """A kernel for each launch time."""
    for t in times:
        at = 100_000 + len(script.ops) * 10
        script.op(
            "kernel", at, at + 10, None if t is None else (t, t + 2), thread=thread, **columns
        )
    return script


def prepare(script, **overrides):
    names = phases.compile_phase_names(overrides)
    return process_timeline(memory.trace(script.build()), PID, None, names)


def phases_of(script, **overrides):
    found = prepare(script, **overrides).ops["phase"].to_list()
    return [Phase(number).name.lower() for number in found]


NAMES = {
    "data_loading": "data",
    "dataload": "data",
    "data wait": None,
    "data_wait": "data",
    "next_batch": "data",
    LOADER: "data",
    "enumerate(DataPipe)#Mapper": "data",
    "[pl][profile]_TrainingEpochLoop.train_dataloader_next": "data",
    "H2D copy": "h2d",
    "host to device": "h2d",
    "data copy in": "h2d",
    "to_device": "h2d",
    "Forward": "forward",
    "DistributedDataParallel.forward": None,
    "FSDP::all_gather_copy_in": None,
    "FSDP::backward_prefetch for layers.3": None,
    "autograd::engine::evaluate_function: MmBackward0": None,
    "Torch-Compiled Region: 0/0 forward": None,
    "## Call CompiledFxGraph forward ##": None,
    "fwd_pass": "forward",
    "my_fwd": None,
    "forward_backward": None,
    "feedforward": None,
    "backward pass": "backward",
    "bwd": "backward",
    "optimizer": "optimizer",
    "Optimiser step": "optimizer",
    ADAM_STEP: "optimizer",
    "allreduce": "communication",
    "nccl:all_reduce": None,
    "my nccl all_reduce": "communication",
    "gradient_sync": "communication",
    "step 3": None,
}


def meaning(name, **overrides):
    trace = memory.trace(Script().range(name, 0, 10).op("kernel", 0, 1).build())
    table = phases.compile_phase_names(overrides)
    return next(iter(phases.phase_ranges(trace.host_ranges, trace.names, table).phase), None)


@pytest.mark.parametrize(("name", "phase"), NAMES.items())
def test_what_a_range_means_is_told_by_its_name(name, phase):
    assert meaning(name) == phase


def test_the_users_expression_replaces_the_one_of_the_table():
    assert meaning("net", forward="^net$") == "forward"
    assert meaning("forward", forward="^net$") is None
    assert meaning("optimizer", forward="^net$") == "optimizer"


def test_the_users_expression_goes_before_those_of_the_table():
    assert meaning("forward update") == "forward"
    assert meaning("forward update", optimizer="UPDATE") == "optimizer"


@pytest.mark.parametrize(
    ("overrides", "problem"),
    [({"warmup": "x"}, "no such phase"), ({"forward": "("}, "not a regular expression")],
)
def test_an_unknown_phase_and_a_broken_expression_are_errors(overrides, problem):
    with pytest.raises(UsageError, match=problem):
        phases.compile_phase_names(overrides)


@pytest.mark.parametrize(
    ("name", "phase"),
    [
        ("forward", "forward"),
        ("backward", "backward"),
        ("optimizer", "optimizer"),
        ("h2d", "input"),
        ("data_loading", "input"),
    ],
)
@pytest.mark.parametrize("thread", [PID, WORKER])
def test_a_range_names_the_phase_of_launches_on_any_thread(name, phase, thread):
    script = steps(200, 300).range(name, 0, 100)
    assert phases_of(launch(script, 0, 50, 99, thread=thread)) == [phase] * 3


def test_the_innermost_range_that_names_a_phase_decides():
    script = Script().range("forward", 0, 100).range("block 3", 10, 40)
    script.range("optim.step", 20, 30)
    assert phases_of(launch(script, 5, 15, 25, 35)) == [
        *["forward", "forward", "optimizer", "forward"]
    ]


def test_a_communication_range_says_nothing_about_ordinary_kernels():
    script = Script().range("backward", 0, 100).range("gradient_sync", 20, 80)
    assert phases_of(launch(script, 50)) == ["backward"]


def test_backward_operators_tell_the_autograd_thread():
    script = Script().operator("MulBackward0", 0, 20, thread=AUTOGRAD, forward_thread=1)
    launch(script, 10, 50, thread=AUTOGRAD)
    assert phases_of(launch(script, 12, 14, 60)) == ["backward"] * 2 + ["unattributed"] * 3


def test_backward_operators_on_the_step_thread_itself_are_backward():
    script = steps(100, 200).operator("MulBackward0", 10, 20, forward_thread=1)
    assert phases_of(launch(script, 5, 15, 25)) == ["forward", "backward", "forward"]


def test_its_name_tells_the_autograd_thread():
    script = Script().thread(AUTOGRAD, "pt_autograd_0").thread(WORKER, "pt_nccl_heartbt")
    launch(launch(script, 10, thread=AUTOGRAD), 20, thread=WORKER)
    assert phases_of(launch(script, 30, 31)) == ["backward"] + ["unattributed"] * 3


def one_step(script=None):
    """forward 10 to 20, optimizer 60 to 70, in a step from 0 to 100."""
    script = script or steps(100, 200)
    return script.range("forward", 10, 20).range("optimizer", 60, 70)


def test_another_thread_between_forward_and_optimizer_is_autograd():
    script = launch(one_step(), 5, 15, 30, 59, 65, 80, thread=WORKER)
    assert phases_of(script) == [
        *["unattributed", "forward", "backward", "backward", "optimizer", "unattributed"]
    ]


def test_the_step_thread_between_forward_and_optimizer_is_backward():
    script = launch(one_step(), 15, 20, 59, 60, 70, 99)
    assert phases_of(script) == [
        *["forward", "backward", "backward", "optimizer", "unattributed", "unattributed"]
    ]


def test_the_step_thread_before_an_annotated_forward_is_not_forward():
    assert phases_of(launch(one_step(), 5)) == ["backward"]


def test_zeroing_gradients_is_the_optimizers_and_does_not_end_the_step():
    script = steps(100, 200).range(ZERO_GRAD, 2, 8)
    script = launch(one_step(script), 5, 15, 30, 65)
    assert phases_of(script) == ["optimizer", "forward", "backward", "optimizer"]
    without_forward = steps(100, 200).range(ZERO_GRAD, 2, 8).range(ADAM_STEP, 60, 70)
    launch(without_forward, 5, 15, 30)
    launch(without_forward, 40, 50, thread=AUTOGRAD)
    assert phases_of(launch(without_forward, 65)) == [
        *["optimizer", "forward", "forward", "backward", "backward", "optimizer"]
    ]


def test_a_new_step_begins_before_forward_again():
    script = steps(100, 200)
    script.range("forward", 10, 20).range("forward", 110, 120)
    script.range("optimizer", 60, 70).range("optimizer", 160, 170)
    launch(script, 130, thread=WORKER)
    launch(script, 105, thread=WORKER)
    assert phases_of(script) == ["backward", "unattributed"]


def test_without_forward_ranges_the_step_thread_is_forward_until_another_thread_launches():
    script = steps(100, 200).range("optimizer", 60, 70).range("optimizer", 160, 170)
    launch(script, 5, 15)
    launch(script, 30, 40, thread=AUTOGRAD)
    launch(script, 50, 65, 80, 105)
    launch(script, 130, thread=AUTOGRAD)
    assert phases_of(script) == [
        *["forward", "forward", "backward", "backward"],
        *["backward", "optimizer", "unattributed", "forward"],
        "backward",
    ]


@pytest.mark.parametrize(
    ("product", "phase"),
    [("ampere_sgemm_128x64_tn", "forward"), ("aten::addmm", "forward"), ("add", "unattributed")],
)
@pytest.mark.parametrize("forward", [True, False], ids=["forward is named", "nothing is"])
def test_what_multiplies_matrices_after_the_optimizer_is_another_forward_pass(
    product, phase, forward
):
    script = steps(100, 200).range("optimizer", 60, 70).range("optimizer", 160, 170)
    if forward:
        script.range("forward", 10, 20).range("forward", 110, 120)
    launch(script, 15)
    launch(script, 30, 40, thread=AUTOGRAD)
    launch(script, 65, 75)
    launch(script, 80, name=product)
    launch(script, 90)
    launch(script, 115)
    launch(script, 130, thread=AUTOGRAD)
    launch(script, 165, 180)
    assert phases_of(script) == [
        *["forward", "backward", "backward", "optimizer", phase, phase, phase],
        *["forward", "backward", "optimizer", "unattributed"],
    ]


def test_copies_from_another_thread_are_no_backward_pass():
    script = launch(steps(100, 200), 5)
    script.op("h2d", 100_020, 100_030, (10, 12), thread=WORKER)
    assert phases_of(launch(script, 20))[::2] == ["forward", "forward"]


def test_kernels_of_a_loader_thread_are_no_backward_pass():
    script = launch(steps(100, 200), 5).range("[DALI] op", 8, 20, thread=WORKER)
    launch(script, 10, thread=WORKER)
    assert phases_of(launch(script, 20)) == ["forward", "input", "forward"]


def test_without_optimizer_ranges_nothing_tells_what_follows_backward():
    script = steps(100, 200)
    launch(script, 5)
    launch(script, 30, 40, thread=AUTOGRAD)
    assert phases_of(launch(script, 50)) == [*["forward", "backward", "backward"], "unattributed"]


@pytest.mark.parametrize("optimizer", [True, False])
def test_gradient_accumulation_alternates_without_forward_ranges(optimizer):
    script = steps(100, 200)
    if optimizer:
        script.range("optimizer", 60, 70)
    launch(script, 5)
    launch(script, 10, 12, thread=AUTOGRAD)
    launch(script, 20, 22)
    launch(script, 30, thread=AUTOGRAD)
    assert phases_of(script) == [
        *["forward", "backward", "backward", "forward", "forward", "backward"]
    ]


def test_gradient_accumulation_alternates_with_forward_ranges():
    script = one_step().range("forward", 30, 40)
    launch(script, 15, 25, 35, 45)
    assert phases_of(script) == ["forward", "backward", "forward", "backward"]


def test_forward_operators_that_autograd_runs_again_are_recompute():
    script = one_step().operator("CheckpointBackward", 25, 50, thread=AUTOGRAD, forward_thread=1)
    script.operator("aten::mm", 30, 40, thread=AUTOGRAD, sequence=9, forward_thread=0)
    script.operator("aten::mm", 11, 24, sequence=5, forward_thread=0)
    launch(launch(script, 12, 22), 27, 35, 45, thread=AUTOGRAD)
    assert phases_of(script) == ["forward", "backward", "backward", "recompute", "backward"]


def test_attention_of_the_forward_pass_that_autograd_launches_is_recompute_without_operators():
    fused = "pytorch_flash::flash_fwd_kernel<traits>", "pytorch_flash::flash_bwd_kernel<traits>"
    script = launch(one_step(), 15, name=fused[0])
    launch(script, 30, name=fused[0], thread=AUTOGRAD)
    launch(script, 40, name=fused[1], thread=AUTOGRAD)
    assert phases_of(script) == ["forward", "recompute", "backward"]


LIGHTNING = "Optimizer.step#SGD.step"


def closure(script, begin, *, passes=1):
    """`Optimizer.step` with so many evaluations of a closure inside, and the update after them."""
    at = begin
    for _ in range(passes):
        launch(script, at + 10, at + 20)
        script.operator("MulBackward0", at + 30, at + 50, thread=AUTOGRAD, forward_thread=1)
        launch(script, at + 35, at + 45, thread=AUTOGRAD)
        at += 50
    launch(script, at + 10)
    script.range(LIGHTNING, begin, at + 20)
    return script


def test_a_closure_inside_the_optimizer_runs_forward_and_backward():
    assert phases_of(closure(steps(200, 400), 20)) == [
        *["forward", "forward", "backward", "backward", "optimizer"]
    ]


def test_a_closure_may_run_several_times():
    """L-BFGS evaluates its function again and again; between the passes it is forward's turn."""
    found = phases_of(closure(steps(300, 600), 20, passes=3))
    assert found[2:4] + found[6:8] + found[10:12] == ["backward"] * 6
    assert (found[:2], found[-1]) == (["forward"] * 2, "optimizer")
    assert "unattributed" not in found


def test_a_closure_in_the_next_step_begins_with_forward_again():
    script = closure(closure(steps(200, 400), 20), 220)
    assert phases_of(script) == [*["forward", "forward", "backward", "backward", "optimizer"] * 2]


def test_ranges_of_fsdp_name_no_phase():
    script = steps(200, 400)
    script.range("FSDP::all_gather_copy_in", 8, 30).range("FSDP::post_forward", 30, 35)
    script.range("FSDP::backward_prefetch for layers.1", 40, 60, thread=AUTOGRAD)
    script.operator("MulBackward0", 40, 90, thread=AUTOGRAD, forward_thread=1)
    script.range(ADAM_STEP, 100, 130)
    launch(script, 10, 20)
    launch(script, 50, 70, thread=AUTOGRAD)
    assert phases_of(launch(script, 110)) == [
        *["forward", "forward", "backward", "backward", "optimizer"]
    ]


def test_without_ranges_two_threads_and_a_named_update_tell_the_phases():
    """As Nsight records a program without NVTX: launches of two threads, and nothing else."""
    program = Program()
    for _ in range(6):
        program.sleep(60_000).kernels([f"forward_{k}" for k in range(8)])
        program.kernels([f"backward_{k}" for k in range(8)], backward=True)
        program.kernel("clip").kernels([UPDATE] * 2)
    ready = process_timeline(program.trace(), PID, None, phases.compile_phase_names({}))
    found = [Phase(number).name.lower() for number in ready.ops["phase"].to_list()]
    assert ready.marker.kind == "kernels"
    step = [*["forward"] * 8, *["backward"] * 8, "backward", *["optimizer"] * 2]
    assert found == step * 6


def test_an_optimizer_that_goes_from_tensor_to_tensor_is_told_by_its_last_kernels():
    """Gradients are clipped by a kernel that is named like an update, and is not all of it."""
    program = Program()
    for _ in range(6):
        program.sleep(60_000).kernels([f"forward_{k}" for k in range(8)])
        program.kernels([f"backward_{k}" for k in range(8)], backward=True)
        program.kernel("multi_tensor_apply_kernel<BinaryOpScalarTensorFunctor<float>>")
        for _ in range(4):
            program.kernels(["mul", "lerp", "addcmul_cuda_kernel", "sqrt", "addcdiv_cuda_kernel"])
        program.kernel("average")
    ready = process_timeline(program.trace(), PID, None, phases.compile_phase_names({}))
    found = [Phase(number).name.lower() for number in ready.ops["phase"].to_list()]
    assert found[16:37] == ["optimizer"] * 21
    assert found[37] != "optimizer"


def test_where_one_thread_launches_everything_only_the_update_is_told():
    program = Program()
    for _ in range(6):
        program.sleep(60_000).kernels([f"layer_{k}" for k in range(8)]).kernels([UPDATE] * 2)
    ready = process_timeline(program.trace(), PID, None, phases.compile_phase_names({}))
    found = [Phase(number).name.lower() for number in ready.ops["phase"].to_list()]
    assert found[8:10] == ["optimizer"] * 2
    assert found.count("optimizer") == 12


def test_an_update_in_the_replay_of_a_whole_step_makes_no_optimizer_of_all_of_it():
    program = Program()
    for _ in range(6):
        program.sleep(60_000).kernels([f"layer_{k}" for k in range(8)]).kernels([UPDATE] * 2)
    trace = program.trace()
    replayed = replace(trace, gpu_ops=trace.gpu_ops.with_columns(graph=pl.lit(value=True)))
    ready = process_timeline(replayed, PID, None, phases.compile_phase_names({}))
    assert set(ready.ops["phase"].to_list()) == {int(Phase.GRAPH)}


def test_a_graph_replay_is_a_phase_of_its_own_unless_a_range_names_one():
    script = one_step()
    launch(script, 5, 15, 30, graph=True)
    assert phases_of(script) == ["graph", "forward", "graph"]


@pytest.mark.parametrize(
    "name", ["[DALI] reader", "DataLoader worker", "enumerate(DataPipe)", "Prefetch", "data_load"]
)
def test_what_a_loader_thread_launches_is_input_even_during_forward(name):
    script = one_step().range(name, 0, 3, thread=WORKER)
    launch(script, 1, 15, 30, 65, 80, thread=WORKER)
    assert phases_of(script) == ["input"] * 5


def test_a_loader_thread_says_nothing_about_other_threads():
    script = one_step().range("[DALI] data_load", 0, 200, thread=WORKER)
    launch(launch(script, 15, 30), 40, thread=AUTOGRAD)
    assert phases_of(script) == ["forward", "backward", "backward"]


def test_the_step_thread_is_no_loader_although_it_asks_the_loader():
    script = one_step().range(LOADER, 0, 4)
    assert phases_of(launch(script, 2, 15)) == ["input", "forward"]


def test_a_kernel_without_a_launch_site_is_unattributed():
    script = one_step().range("forward", -10, 1_000_000)
    assert phases_of(launch(script, None)) == ["unattributed"]


def test_without_evidence_kernels_are_unattributed():
    script = launch(Script(), 10, 20)
    assert phases_of(launch(script, 30, thread=WORKER)) == ["unattributed"] * 3


def test_ranges_and_threads_of_another_process_do_not_matter():
    other = Script(Process(2000)).range("forward", 0, 100).thread(AUTOGRAD, "pt_autograd_0")
    mine = launch(launch(Script(), 10, 20), 30, thread=AUTOGRAD)
    both = memory.trace(merge(mine.build(), other.build()))
    ops = process_timeline(both, PID, None, phases.compile_phase_names({})).ops
    assert set(ops["phase"]) == {int(Phase.UNATTRIBUTED)}


def test_the_step_thread_is_the_markers():
    script = steps(100, 200)
    assert prepare(launch(script, 1, 2, 3, thread=WORKER)).host.step_thread == PID


def test_without_a_marker_the_step_thread_has_the_forward_and_optimizer_ranges():
    script = Script().range("forward", 0, 10, thread=WORKER).range("data_load", 0, 10)
    assert prepare(launch(script, 1, 2)).host.step_thread == WORKER


def test_without_ranges_the_step_thread_launches_most_and_is_not_autograd():
    script = launch(Script(), 10)
    for k in range(3):
        script.operator("MulBackward0", 30 + k, 31 + k, thread=AUTOGRAD, forward_thread=1)
        launch(script, 30 + k, thread=AUTOGRAD)
    assert prepare(script).host.step_thread == PID
    assert prepare(launch(script, 50, 51, thread=WORKER)).host.step_thread == WORKER


@pytest.mark.parametrize(
    ("phase", "means", "resembles"),
    [
        (
            "data",
            ["data_load", "my_data_wait", "dataloading", "data loading: data_fetch", "dataloader"],
            ["metadata_load", "update_metadata_fetch"],
        ),
        (
            "h2d",
            [
                "h2d",
                "copy_in",
                "CopyIn",
                "batch: copy in",
                "copy_inputs",
                "to_device",
                "x.to_device",
            ],
            ["auto_device_map", "deepcopy_inputs", "copy_index", "copying", "deep_copy_initial"],
        ),
    ],
)
def test_a_name_means_a_phase_by_its_words_not_by_parts_of_them(phase, means, resembles):
    pattern = phases.compile_phase_names({})[phase]
    assert pattern.find(means).tolist() == [True] * len(means)
    assert pattern.find(resembles).tolist() == [False] * len(resembles)
