"""The period of the kernels, of programs drawn at random and of a few that are hard."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders.program import UPDATE, Program
from tests.builders.scenario import AUTOGRAD, Process
from traceprobe.model.events import rows_of
from traceprobe.timeline import kernel_period as module

some = settings(max_examples=12, deadline=None)


@dataclass(frozen=True)
class Net:
    """Layers, each of a few kernels; equal layers have equal names."""

    layers: int = 4
    kernels: int = 4
    equal: bool = True
    backward_elsewhere: bool = True

    def names(self, prefix):
        """Names of the kernels of one pass, in order."""
        return [
            f"{prefix}_{k}" if self.equal else f"{prefix}_{layer}_{k}"
            for layer in range(self.layers)
            for k in range(self.kernels)
        ]

    def forward(self, program, prefix=""):
        """The forward pass and the loss."""
        program.kernels([*self.names(f"{prefix}forward"), f"{prefix}loss"])

    def passes(self, program, prefix=""):
        """Forward and backward pass."""
        self.forward(program, prefix)
        program.kernels(self.names(f"{prefix}backward"), backward=self.backward_elsewhere)


def plain(net, program, update):
    """One batch, one update."""
    net.passes(program)
    program.kernels(update)


def accumulation(net, program, update):
    """Three micro-batches, one update."""
    for _ in range(3):
        net.passes(program)
    program.kernels(update)


ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int)"


def micro_batches(count, updates_after, update):
    """Micro-batches, all but the first after an update adding to the gradients of those before."""
    net, program, spans, first = Net(layers=6), Program(), [], True
    for k in range(count):
        begin = program.sleep(60_000).now
        net.forward(program)
        for name in net.names("backward"):
            program.kernels([name] if first else [name, ADD], backward=True)
        first = k in updates_after
        if first:
            program.kernels(update)
        spans.append((begin, program.now))
    return program, np.array(spans)


def gan(net, program, update):
    """Two updates of the discriminator, one of the generator."""
    for prefix in ("critic_", "critic_", "generator_"):
        net.passes(program, prefix)
        program.kernels(update)


nets = st.builds(
    Net, st.integers(3, 6), st.integers(3, 5), equal=st.booleans(), backward_elsewhere=st.booleans()
)
foreach = st.integers(1, 4).map(lambda count: [UPDATE] * count)
"""Kernels that are named like an update."""
unknown = st.integers(1, 4).map(lambda count: [f"triton_poi_fused_{k}" for k in range(count)])
"""Those of an optimizer that was compiled."""


def run(net, step, update, *, steps=8, before=0, after=0, evaluate=(), log=(), program=None):
    """A program with its steps' (begin, end).

    Args:
        before, after: kernels of set-up and tear-down.
        evaluate, log: numbers of the steps after which an evaluation, or a line of the log, comes.
    """
    program, spans = program or Program(), []
    program.kernels([f"fill_{k % 5}" for k in range(before)])
    for k in range(steps):
        begin = program.sleep(60_000).now
        step(net, program, update)
        spans.append((begin, program.now))
        if k in evaluate:
            for _ in range(3):
                net.forward(program)
        if k in log:
            program.kernel("norm").copy_out(4)
    program.kernels([f"save_{k % 3}" for k in range(after)])
    return program, np.array(spans)


def period_of(program):
    trace = program.trace()
    return module.kernel_period(trace.gpu_ops, trace.host_calls, trace.names)


def assert_steps(found, spans):
    """Every step is one repetition: all that it launches, and nothing of another step."""
    assert found is not None
    edges = np.append(found.starts, found.end)
    for inside in (spans[:, 0], spans[:, 1] - 1):
        assert (np.searchsorted(edges, inside, "right") - 1).tolist() == list(range(len(spans)))
    assert len(found.starts) == len(spans)


sizes = st.integers(6, 12)
ends = st.integers(0, 40)


@some
@given(nets, st.sampled_from([plain, accumulation, gan]), foreach, sizes, ends, ends)
def test_the_steps_of_any_program_whose_update_is_named_are_found(
    net, step, update, steps, before, after
):
    program, spans = run(net, step, update, steps=steps, before=before, after=after)
    found = period_of(program)
    assert_steps(found, spans)
    assert (found.anchor, found.thread) == (UPDATE, program.main)


TILES = ["128x192_64x5_2x1_v", "256x128_64x4_1x2_h", "192x128_64x5_1x2_h", "128x80_64x8_1x2_h"]


@pytest.mark.parametrize("passes", [1, 3])
@pytest.mark.parametrize("steps", [6, 9])
def test_batches_of_other_sizes_have_other_products_and_are_steps_too(steps, passes):
    """Each batch is padded to its longest sentence, and cuBLAS chooses by its size."""
    program, spans = Program(), []
    for k in range(steps):
        begin = program.sleep(60_000).now
        for micro in range(passes):
            tile = TILES[(3 * k + micro) % 4]
            program.kernels([f"nvjet_sm90_tst_{tile}_bz_coopA_TNT", "gelu<int>(int)"] * 6)
            program.kernels([f"nvjet_sm90_tst_{tile}_bz_NNT", "sum<4>()"] * 6, backward=True)
        program.kernels([UPDATE] * 3)
        spans.append((begin, program.now))
    found = period_of(program)
    assert_steps(found, np.array(spans))
    assert found.anchor == UPDATE


def test_the_main_thread_makes_the_steps_where_hooks_update_in_the_backward_pass():
    program = Program()
    for _ in range(6):
        program.sleep(60_000).kernels([f"layer_{k}" for k in range(4)])
        for k in range(4):
            program.kernels([f"gradient_{k}", UPDATE], backward=True)
    found = period_of(program)
    assert found is not None
    assert found.thread == program.main


def critics_and_actor(net, program, update):
    """An act in the environment, then many updates of the critics and one of the actor."""
    program.kernels([f"environment_{k}" for k in range(9)])
    for _ in range(20):
        net.passes(program, "critic_")
        program.kernels(update)
    Net(net.layers + 2, net.kernels, net.equal, net.backward_elsewhere).passes(program, "actor_")
    program.kernels([*update, UPDATE])  # of more parameters


@some
@given(nets, foreach, st.integers(4, 6))
def test_the_one_update_of_an_actor_ends_a_step_however_many_of_the_critic_come_before(
    net, update, steps
):
    program, spans = run(net, critics_and_actor, update, steps=steps)
    assert_steps(period_of(program), spans)


@some
@given(nets, st.sampled_from([plain, accumulation, gan]), foreach, sizes, st.integers(2, 5), ends)
def test_an_evaluation_every_few_steps_is_no_step(net, step, update, steps, every, before):
    program, spans = run(
        net, step, update, steps=steps, before=before, evaluate=range(every - 1, steps, every)
    )
    assert_steps(period_of(program), spans)


@pytest.mark.parametrize("steps", range(6, 13))
def test_an_evaluation_after_every_third_step_of_a_gan_is_no_step(steps):
    program, spans = run(Net(), gan, [UPDATE], steps=steps, evaluate=range(2, steps, 3))
    assert_steps(period_of(program), spans)


@some
@given(nets, st.sampled_from([plain, accumulation, gan]), foreach, st.data())
def test_what_happens_once_is_no_step(net, step, update, data):
    once = data.draw(st.integers(1, 5))
    program, spans = run(net, step, update, evaluate=[once], log=[once])
    assert_steps(period_of(program), spans)


@some
@given(nets, st.sampled_from([plain, gan]), foreach, st.integers(3, 4))
def test_a_line_of_the_log_is_no_step(net, step, update, every):
    program, spans = run(net, step, update, steps=12, log=range(every - 1, 12, every))
    assert_steps(period_of(program), spans)


@some
@given(nets, unknown, sizes, ends)
def test_steps_are_found_without_the_name_of_an_update(net, update, steps, before):
    # One thread alone may be running layers, so there nothing but steps is in the capture.
    before = before if net.backward_elsewhere else 0
    program, spans = run(net, plain, update, steps=steps, before=before)
    assert_steps(period_of(program), spans)


@some
@given(nets.filter(lambda net: not net.backward_elsewhere), unknown, sizes)
@pytest.mark.parametrize("step", [accumulation, gan])
def test_one_thread_alone_shows_its_longest_repetition(step, net, update, steps):
    program, spans = run(net, step, update, steps=steps)
    assert_steps(period_of(program), spans)


@pytest.mark.parametrize("updates_after", [(3,), (0,), (1, 5), ()])
def test_micro_batches_of_which_few_update_are_steps(updates_after):
    clip_and_update = [f"clip_{k}" for k in range(9)] + [UPDATE] * 9
    program, spans = micro_batches(8, updates_after, clip_and_update)
    assert_steps(period_of(program), spans)


def test_ranks_of_one_file_are_told_apart():
    processes = [Process(1000, rank=0), Process(2000, rank=1)]
    runs = [
        run(Net(), plain, [UPDATE] * 2, steps=steps, program=Program(process))
        for process, steps in zip(processes, (6, 9), strict=True)
    ]
    for program, spans in runs:
        trace = program.trace()
        ops, calls = (rows_of(f, "pid", program.main) for f in (trace.gpu_ops, trace.host_calls))
        assert_steps(module.kernel_period(ops, calls, trace.names), spans)


def test_set_up_and_tear_down_belong_to_no_step():
    program, spans = run(Net(), plain, [UPDATE], before=30, after=10)
    found = period_of(program)
    assert found.starts[0] >= spans[0][0]
    assert found.end <= spans[-1][1]


@pytest.mark.parametrize("count", [1, 2])
def test_fewer_than_three_repetitions_are_no_period(count):
    assert period_of(run(Net(), plain, [UPDATE], steps=count)[0]) is None


def test_kernels_that_never_recur_have_no_period():
    assert period_of(Program().kernels([f"kernel_{k}" for k in range(200)])) is None


def test_the_layers_of_one_forward_pass_are_no_steps():
    program = Program().kernels(["embed", "position", "norm"])
    for _ in range(12):
        program.kernels(["norm", "attention", "linear", "gelu"])
    assert period_of(program.kernels(["norm", "head", "softmax"])) is None


@pytest.mark.parametrize(
    ("begin", "end", "steps"),
    [
        (["embed"], ["linear"], False),
        (["draw"], [], True),
        ([], ["norm", "attention"], True),
        (["embed"], ["norm"], False),
        (["draw"] * 6, ["norm"], True),
    ],
    ids=[
        "a model has both",
        "set-up",
        "the capture is cut",
        "a model ends with a norm too",
        "room for the rest of an iteration",
    ],
)
def test_a_model_of_many_layers_still_has_a_beginning_and_an_end(begin, end, steps):
    program = Program().kernels(begin)
    for _ in range(24):
        program.kernels(["norm", "attention", "project", "norm", "linear", "gelu", "linear"])
    assert (period_of(program.kernels(end)) is not None) is steps


def test_a_kernel_that_follows_itself_is_no_layer():
    program = Program().kernels(["embed", "position", "norm"])
    for _ in range(12):
        program.kernels(["norm", *["copy"] * 6, "attention", "copy", "linear", "copy", "gelu"])
    assert period_of(program.kernels(["norm", "head", "softmax"])) is None


@pytest.mark.parametrize("others", [16, 0])
def test_blocks_of_one_stage_among_others_are_no_steps(others):
    block = [
        *["conv_1", "conv_2", "norm", "relu"] * 3,
        *["conv_1", "conv_2", "norm", "add", "relu"],
    ]
    program = Program().kernels([f"begin_{k}" for k in range(10)])
    for _ in range(5):
        program.kernels(block)
    for stage in range(others):  # their convolutions are of other sizes
        program.kernels([f"{n}_{stage}" if n.startswith("conv") else n for n in block])
    found = period_of(program.kernels([f"end_{k}" for k in range(20)]))
    assert (found is None) is bool(others)


@pytest.mark.parametrize(
    ("begin", "end"),
    [(["conv", "norm", "relu"], ["pool", "linear"]), ([], [])],
    ids=["one", "many"],
)
def test_blocks_that_are_alike_in_all_stages_are_no_steps_of_one_pass(begin, end):
    """As operators are, whose names do not tell the size of what they compute."""
    program = Program().kernels(begin)
    for _ in range(16):
        program.kernels([*["conv", "norm", "relu"] * 2, "conv", "norm", "add", "relu"])
    assert (period_of(program.kernels(end)) is None) is bool(begin)


@pytest.mark.parametrize("last", ["attention", "head"], ids=["any kernel", "the last one"])
def test_which_kernel_recurs_least_makes_no_difference_on_one_thread(last):
    program = Program()
    for _ in range(5):
        program.kernels(["norm", "attention", "linear", "norm", "linear", "norm", "head"])
        program.sleep(60_000)
    program.script.ops = [
        op for op in program.script.ops if last != "head" or op.name != "attention"
    ]
    found = period_of(program)
    assert (len(found.starts), found.anchor) == (5, "head")


def test_nothing_has_no_period():
    assert period_of(Program()) is None


def test_without_an_update_a_step_ends_where_the_host_waits():
    program = Program()
    spans = []
    for _ in range(6):
        begin = program.sleep(60_000).now - 60_000
        for _ in range(4):
            program.kernels(["norm", "attention", "linear"])
        program.kernel("head").wait()
        spans.append((begin, program.now))
    assert len(period_of(program).starts) == 6


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (UPDATE, True),
        ("void multi_tensor_apply_kernel<2048, AdamFunctor<float, float, int>>", True),
        ("void at::native::FusedAdamMathFunctor fused_adam_kernel", True),
        ("void kOptimizer32bit1State<float, 1>", True),
        ("void apex::lamb_stage_2(float*)", True),
        ("void adagrad_kernel(float*)", True),
        ("void op<at::native::{lambda(float)#1}>(int)", False),
        ("void elementwise_kernel<128, lambda at::clamp>", False),
        ("void multi_tensor_apply_kernel<TensorListMetadata<1>, Copy<float>>", True),
        ("multi_tensor_apply_kernel<TensorListMetadata<2>, at::native::Copy<float, float>>", False),
        ("void multi_tensor_apply_kernel<LpNormFunctor<float>>(int)", False),
        ("sgdr_schedule_kernel", False),
        ("macadam_kernel", False),
    ],
)
def test_an_update_is_told_by_its_name(name, expected):
    assert module.is_update(np.zeros(2, np.int64), [name]).tolist() == [expected] * 2


def test_optimizers_that_go_from_tensor_to_tensor_are_told_where_that_is_asked():
    name = "void at::native::vectorized_elementwise_kernel<4, at::native::addcdiv_cuda_kernel()>"
    ids = np.zeros(1, np.int64)
    assert not module.is_update(ids, [name]).any()
    assert module.is_update(ids, [name], of_tensors=True).all()


def test_copies_around_the_layers_are_no_update():
    """FSDP copies lists of tensors by the kernel that also updates them."""
    copies = "multi_tensor_apply_kernel<TensorListMetadata<2>, at::native::Copy<float, float>>"
    program, spans = Program(), []
    for _ in range(6):
        begin = program.sleep(60_000).now - 60_000
        for layer in range(4):
            program.kernel(copies).kernels([f"forward_{layer}_{k}" for k in range(4)])
        for layer in range(4):
            program.kernel(copies, thread=AUTOGRAD)
            program.kernels([f"backward_{layer}_{k}" for k in range(4)], backward=True)
        program.kernel(UPDATE)
        spans.append((begin, program.now))
    found = period_of(program)
    assert (len(found.starts), found.anchor) == (6, UPDATE)
