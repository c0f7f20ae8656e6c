"""The step marker: which ranges delimit iterations, which only look like it, and who goes first."""

from __future__ import annotations

import numpy as np
import pytest

from tests.builders import memory
from tests.builders.loop import LOADER
from tests.builders.program import Program
from tests.builders.scenario import AUTOGRAD, PID, Script
from traceprobe.errors import UsageError
from traceprobe.model.codes import UNKNOWN
from traceprobe.timeline import step_markers

ADAM = "void at::native::multi_tensor_apply_kernel<AdamFunctor>(int)"
PITCH = 1_000


def find(script, step=None):
    trace = memory.trace(script.build())
    return step_markers.find_step_marker(
        trace.host_ranges, trace.host_operators, trace.gpu_ops, trace.host_calls, trace.names, step
    )


def numbered(script, name, count=5, *, length=900, offset=0, first=0, **columns):
    """Ranges `name` with a running number, one each pitch."""
    for k in range(count):
        at = k * PITCH + offset
        script.range(name.format(first + k), at, at + length, **columns)
    return script


def optimizer_bursts(script, periods=5, *, kernels=4, launches=2, uneven=0, **columns):
    """Kernels of a step, the last `launches` of which are the optimizer's."""
    for k in range(periods):
        for i in range(kernels + (uneven if k == 2 else 0)):
            at = k * PITCH + i * 50
            name = ADAM if i < launches else ""
            at = at + 500 if i < launches else at
            script.op("kernel", at + 30, at + 40, (at, at + 10), name=name, **columns)
    return script


def starts(marker):
    return marker.starts.tolist()


@pytest.mark.parametrize(
    "name",
    [
        "step {}",
        "iteration {}",
        "ProfilerStep#{}",
        "BENCHY::train STEP_{}",
        "train_batch_{}",
        "epoch 3 step {}",
        "iter {}/10",
    ],
)
def test_ranges_whose_names_differ_only_in_a_counter_are_steps(name):
    marker = find(numbered(Script(), name, first=7))
    assert marker.kind == "range"
    assert marker.labels == tuple(name.format(k) for k in range(7, 12))
    assert starts(marker) == [0, 1_000, 2_000, 3_000, 4_000]
    assert (marker.thread, marker.confidence) == (PID, 0.95)
    assert list(zip(*marker.inside, strict=True)) == [
        (k * PITCH, k * PITCH + 900) for k in range(5)
    ]


@pytest.mark.parametrize(
    "name",
    [
        "layer.{}",
        "h.{}.attn",
        "data copy in {}",
        "aten::step, op_id = {}",
        "IterBackward, seq = {}",
    ],
)
def test_other_counters_are_no_steps(name):
    assert find(numbered(Script(), name, count=12)) is None


def test_the_pattern_of_a_marker_finds_it_again():
    script = numbered(Script(), "epoch 1 step {}")
    marker = find(script)
    assert starts(find(script, marker.pattern)) == starts(marker)


def test_a_number_that_does_not_count_up_is_no_step():
    script = Script()
    for k, number in enumerate([64, 64, 64, 64, 64, 64]):
        script.range(f"batch of {number}", k * PITCH, k * PITCH + 900)
    assert find(script) is None


def test_a_range_that_recurs_under_one_name_is_no_step_by_itself():
    assert find(numbered(Script(), "training step", count=8)) is None


def test_the_counter_may_restart_with_each_epoch():
    script = numbered(Script(), "step {}", 6)
    numbered(script, "step {}", 6, offset=6 * PITCH)
    assert starts(find(script)) == [k * PITCH for k in range(12)]


def in_each_step(script, name, number, *, steps=5, update=True):
    """So many ranges in each step, with an update at its end."""
    for k in range(steps):
        for i in range(number):
            at = k * PITCH + i * 40
            script.range(name.format(k=k, i=i, n=k * number + i), at, at + 30)
        if update:
            end = k * PITCH + 900
            script.range("Optimizer.step#SGD.step", end, end + 50)
    return script


@pytest.mark.parametrize(
    "name",
    ["batchnorm_{i}", "iter block {i}", "batch part {n}", "step of the solver {n}"],
    ids=["layers", "layers called iterations", "micro-batches", "counted on"],
)
def test_a_counter_that_ticks_faster_than_the_updates_counts_something_else(name):
    assert find(in_each_step(Script(), name, 20)).kind == "optimizer"


def test_without_updates_a_counter_that_starts_again_and_again_counts_layers():
    assert find(in_each_step(Script(), "step through layer {i}", 20, update=False)) is None


def test_a_counter_may_tick_a_little_more_often_than_the_updates():
    script = in_each_step(Script(), "step {k}", 1, steps=8)
    script.ranges = [
        r for r in script.ranges if r.name != "Optimizer.step#SGD.step" or r.t0 > PITCH
    ]
    assert find(script).pattern == r"step \d+"


@pytest.mark.parametrize("name", ["Warm-up step {}", "warmup iteration {}", "micro_batch {}"])
def test_what_is_no_step_by_its_name_is_none(name):
    assert find(numbered(Script(), name)) is None


def test_of_loading_and_training_a_batch_the_one_that_launches_is_the_step():
    script = Script()
    for k in range(5):
        at = k * PITCH
        script.range(f"load batch {k}", at, at + 600)
        script.range(f"train batch {k}", at + 600, at + 950)
        for i in range(4):
            script.op("kernel", at + 700 + 50 * i, at + 740 + 50 * i, (at + 650, at + 655))
    marker = find(script)
    assert marker.pattern == r"train batch \d+"
    assert starts(marker) == [k * PITCH + 600 for k in range(5)]


def test_where_the_number_jumps_the_profiler_had_paused():
    script = Script()
    for number, at in ((2, 0), (3, PITCH), (4, 2 * PITCH), (12, 9 * PITCH), (13, 10 * PITCH)):
        script.range(f"ProfilerStep#{number}", at, at + 900)
    marker = find(script)
    assert marker.ends.tolist() == [1_000, 2_000, 2_900, 10_000, 10_900]
    times = np.array([2_899, 2_900, 8_999, 9_000])
    assert marker.iteration_at(times).tolist() == [2, UNKNOWN, UNKNOWN, 3]
    assert marker.windows == 5


def test_a_counter_that_counts_by_tens_has_no_pauses():
    script = Script()
    for k in range(5):
        script.range(f"step {10 * k}", k * PITCH, k * PITCH + 900)
    assert find(script).ends.tolist() == [1_000, 2_000, 3_000, 4_000, 4_900]


@pytest.mark.parametrize("name", ["train_step", "step", "[pl][profile]run_training_batch"])
def test_equal_ranges_named_like_a_step_are_steps_if_they_launch(name):
    script = numbered(Script(), name)
    assert find(script) is None
    for k in range(5):
        script.op("kernel", k * PITCH + 500, k * PITCH + 600, (k * PITCH + 100, k * PITCH + 110))
    marker = find(script)
    assert (marker.kind, marker.pattern, marker.confidence) == ("range", name, 0.9)


def test_of_two_counters_the_one_that_covers_more_time_wins():
    script = numbered(Script(), "batch {} to device", length=100, offset=10)
    numbered(script, "step {}")
    assert find(script).pattern == r"step \d+"


def test_a_counter_without_a_step_word_does_not_compete():
    script = numbered(Script(), "data copy in {}", length=950)
    numbered(script, "step {}", length=500, offset=20)
    assert find(script).pattern == r"step \d+"


def test_of_nested_steps_the_outer_one_wins():
    script = numbered(Script(), "step {}", length=800, offset=50, first=3)
    numbered(script, "ProfilerStep#{}", length=1_000)
    marker = find(script)
    assert marker.pattern == r"ProfilerStep#\d+"
    assert starts(marker) == [k * PITCH for k in range(5)]


def test_instants_say_where_steps_begin_but_not_what_is_outside_of_them():
    script = Script()
    for k in range(5):
        script.range(f"step {k}", k * PITCH, k * PITCH, form="mark")
    marker = find(script)
    assert starts(marker) == [k * PITCH for k in range(5)]
    assert marker.inside is None


def test_the_step_thread_is_the_one_with_most_of_the_ranges():
    script = numbered(Script(), "step {}", 4, thread=AUTOGRAD)
    script.range("step 4", 4 * PITCH, 4 * PITCH + 900)
    assert find(script).thread == AUTOGRAD


def test_rows_of_the_profiler_are_no_steps():
    script = Script()
    for k in range(5):
        script.overhead(f"CUPTI step {k}", k * PITCH, k * PITCH + 900)
    assert find(script) is None


def test_the_users_pattern_goes_before_everything_else():
    script = numbered(Script(), "step {}")
    numbered(script, "outer", length=300, offset=100)
    marker = find(script, "^out")
    assert (marker.kind, marker.pattern, marker.confidence) == ("user", "^out", 1.0)
    assert starts(marker) == [100 + k * PITCH for k in range(5)]
    assert marker.labels == ("outer",) * 5
    assert len(marker.inside.t0) == 5


def test_the_users_ranges_that_start_together_are_one_step():
    script = numbered(numbered(Script(), "my a"), "my b", length=400)
    assert starts(find(script, "my ")) == [k * PITCH for k in range(5)]


def test_the_users_instants_tell_nothing_of_what_is_outside():
    script = numbered(Script(), "here", length=0, form="mark")
    assert find(script, "here").inside is None


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [("(", "not a regular expression"), ("nowhere", "0 ranges"), ("step 0", "1 ranges")],
)
def test_a_pattern_that_delimits_nothing_is_an_error(pattern, problem):
    with pytest.raises(UsageError, match=problem):
        find(numbered(Script(), "step {}"), pattern)


def accumulation(script, steps=5, passes=2):
    """Several forward and backward ranges for each step of the optimizer."""
    for k in range(steps):
        for i in range(passes):
            at = k * PITCH + i * 300
            script.range("forward", at, at + 100).range("backward", at + 100, at + 250)
        end = k * PITCH + 700
        script.range("Optimizer.step#AdamW.step", end, end + 90)
    return script


def test_the_end_of_the_optimizer_ends_an_iteration_however_many_passes_come_before():
    marker = find(accumulation(Script()))
    assert (marker.kind, marker.pattern) == ("optimizer", "Optimizer.step#AdamW.step")
    assert starts(marker) == [790 + k * PITCH for k in range(5)]
    assert marker.inside is None


def test_an_optimizer_inside_another_one_does_not_count():
    script = Script()
    for k in range(5):
        at = k * PITCH
        script.range("Optimizer.step#Sharded.step", at, at + 300)
        script.range("Optimizer.step#Adam.step", at + 10, at + 90)
        script.range("Optimizer.step#Adam.step", at + 100, at + 290)
    assert starts(find(script)) == [300 + k * PITCH for k in range(5)]


def test_of_two_optimizers_the_more_frequent_one_delimits():
    script = Script()
    for k in range(8):
        script.range("Optimizer.step#Adam.step", k * PITCH, k * PITCH + 90)
        if k % 2:
            script.range("Optimizer.step#SGD.step", k * PITCH + 200, k * PITCH + 290)
    marker = find(script)
    assert marker.pattern == "Optimizer.step#Adam.step"
    assert len(marker.starts) == 8


def test_zeroing_gradients_is_no_optimizer_step():
    assert find(numbered(Script(), "Optimizer.zero_grad#AdamW.zero_grad", length=90)) is None


@pytest.mark.parametrize("name", [LOADER, "[pl][profile]_TrainingEpochLoop.train_dataloader_next"])
def test_iterations_begin_when_the_loader_is_asked(name):
    marker = find(numbered(Script(), name, length=80))
    assert marker.kind == "dataloader"
    assert starts(marker) == [k * PITCH for k in range(5)]
    assert marker.inside is None


def test_batches_taken_at_once_begin_one_iteration():
    """As trainers take all micro-batches of an update."""
    script = Script()
    for k in range(4):
        for n in range(3):
            at = k * PITCH + 100 * n
            script.range(LOADER, at, at + 60)
        for n in range(3):
            at = k * PITCH + 400 + 50 * n
            script.op("kernel", at + 10, at + 40, (at, at + 5))
    marker = find(script)
    assert marker.kind == "dataloader"
    assert starts(marker) == [k * PITCH for k in range(4)]


def micro_batches(each, update, *, passes=True):
    """Batches with a forward and a backward pass, and an update after some of them."""
    script = Script()
    for k in range(each):
        at = k * PITCH
        script.range(LOADER, at, at + 60)
        script.op("kernel", at + 120, at + 180, (at + 100, at + 110))
        if passes:
            name = "autograd::engine::evaluate_function: MmBackward0"
            script.operator(name, at + 300, at + 400, thread=AUTOGRAD, forward_thread=1)
            script.op("kernel", at + 320, at + 380, (at + 310, at + 315), thread=AUTOGRAD)
        if k in update:
            script.range("Optimizer.step#SGD.step", at + 500, at + 600)
            script.op("kernel", at + 520, at + 580, (at + 510, at + 515))
    return script


@pytest.mark.parametrize(
    ("update", "kind", "count"),
    [
        ((1, 3, 5), "optimizer", 3),
        ((2, 5), "dataloader", 8),  # one iteration, and six batches that tell more
        ((1, 2, 3), "dataloader", 8),  # each batch is updated with
        ((5,), "dataloader", 8),
        ((1, 4, 6), "dataloader", 8),  # an evaluation, or the end of an epoch
    ],
)
def test_updates_mark_iterations_of_micro_batches_however_few(update, kind, count):
    marker = find(micro_batches(8, update))
    assert (marker.kind, len(marker.starts)) == (kind, count)


def test_batches_without_a_backward_pass_are_no_micro_batches():
    assert find(micro_batches(8, (1, 3, 5), passes=False)).kind == "dataloader"


def test_without_ranges_the_period_of_the_kernels_delimits_iterations():
    marker = find(optimizer_bursts(Script(), thread=AUTOGRAD))
    assert (marker.kind, marker.thread, marker.pattern) == ("kernels", AUTOGRAD, ADAM)
    # The first launch, then the ends of the last launch of each update.
    assert starts(marker) == [100] + [560 + k * PITCH for k in range(4)]
    assert marker.ends.tolist() == [560 + k * PITCH for k in range(5)]
    assert marker.labels[:2] == ("period 0", "period 1")
    assert marker.inside is None


def test_kernels_without_a_launch_site_delimit_nothing():
    script = Script()
    for k in range(5):
        script.op("kernel", k * PITCH, k * PITCH + 10, name=ADAM)
        script.op("kernel", k * PITCH + 20, k * PITCH + 30)
        script.op("kernel", k * PITCH + 40, k * PITCH + 50)
    assert find(script) is None


def test_one_device_is_enough_to_find_bursts():
    one = find(optimizer_bursts(Script()))
    both = optimizer_bursts(optimizer_bursts(Script()), uneven=3, device=1)
    assert starts(find(both)) == starts(one)


EVIDENCE = {
    "range": lambda s: numbered(s, "step {}", length=500),
    "optimizer": accumulation,
    "dataloader": lambda s: numbered(s, LOADER, length=50, offset=2),
    "kernels": optimizer_bursts,
}


@pytest.mark.parametrize("first", EVIDENCE)
def test_the_first_kind_of_marker_that_exists_wins(first):
    script, kinds = Script(), list(EVIDENCE)
    for kind in kinds[kinds.index(first) :]:
        EVIDENCE[kind](script)
    assert find(script).kind == first


@pytest.mark.parametrize(("count", "kind"), [(2, "optimizer"), (3, "range")])
def test_a_kind_that_delimits_three_windows_goes_before_one_that_delimits_fewer(count, kind):
    assert find(accumulation(numbered(Script(), "step {}", count))).kind == kind


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_kind_that_delimits_fewer_windows_is_better_than_none(count):
    assert len(find(numbered(Script(), "step {}", count)).starts) == count


def test_a_few_steps_go_before_bursts_of_kernels():
    assert find(optimizer_bursts(numbered(Script(), "step {}", 2))).kind == "range"


def test_a_single_step_is_one_iteration_of_which_little_is_sure():
    marker = find(numbered(Script(), "step {}", 1))
    assert (starts(marker), marker.ends.tolist(), marker.confidence) == ([0], [900], 0.5)


def test_a_single_instant_delimits_nothing():
    script = Script().range("step 0", 0, 0, form="mark")
    assert find(script) is None
    assert find(optimizer_bursts(script)).kind == "kernels"


def passes_in_ranges(outer, inner, passes=1):
    """Passes over equal layers, one after the other, each with a range around it."""
    program = Program()
    for _ in range(passes):
        with program.range(outer):
            for layer in range(6):
                with program.range(inner.format(layer)):
                    program.kernels(["norm", "attention", "linear", "gelu"])
        program.wait()
    return program.script


@pytest.mark.parametrize(
    ("outer", "inner", "steps"),
    [
        ("inference", "part", True),
        ("Model_Forward", "part", False),
        ("inference", "TransformerLayer_{}", False),
        ("inference", "layer of the loop", True),
    ],
    ids=["nothing is told", "one forward pass", "numbered layers", "always the same"],
)
def test_repetitions_inside_of_one_forward_pass_are_its_layers(outer, inner, steps):
    assert (find(passes_in_ranges(outer, inner)) is not None) is steps


def test_forward_passes_that_repeat_are_steps_whatever_their_layers_are_called():
    marker = find(passes_in_ranges("Model_Forward", "TransformerLayer_{}", passes=5))
    assert (marker.kind, len(marker.starts)) == ("kernels", 5)


def test_without_any_of_these_there_is_no_marker():
    script = Script().range("forward", 0, 100).op("kernel", 10, 20, (0, 5))
    assert find(script) is None


@pytest.mark.parametrize(
    ("name", "pattern"),
    [("step 7", r"step \d+"), ("epoch 3 step 12", r"epoch \d+ step \d+"), ("warmup", "warmup")],
)
def test_a_template_blots_out_the_numbers_of_a_name(name, pattern):
    assert step_markers.name_template(name) == pattern
