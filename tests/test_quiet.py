"""Long quiet stretches of the host: what surrounds them tells what it waited for, or nothing does.

Each program is a loop without ranges around what it waits for; most of it is waiting.
"""

from __future__ import annotations

import pytest

import traceprobe
from tests.builders import kineto
from tests.builders.program import BATCH, UPDATE, Program
from tests.builders.scenario import Process, Script

MS = 1_000_000
QUIET = 3 * MS


def step(program):
    """A training step of 0.2 ms; the GPU keeps up with the host."""
    program.kernels([f"forward_{k}" for k in range(20)], ns=4_900)
    program.kernels([f"backward_{k}" for k in range(20)], ns=4_900, backward=True)
    program.kernels([UPDATE] * 2, ns=4_900)


def loop(body, count=10):
    """A loop whose steps are marked by updates, as any PyTorch trace has them."""
    program = Program()
    for _ in range(count):
        body(program)
        with program.range("Optimizer.step#SGD.step"):
            program.kernel(UPDATE, 4_900)
    return program


def analyze(program):
    return traceprobe.analyze(program.trace())


def idle(report):
    """Milliseconds per step of each idle cause that takes a tenth of one or more."""
    summary = report.ranks[0].summary
    each = {
        cause: (ns or 0) / summary.iterations_used / MS
        for cause, ns in summary.partition_ns.items()
        if cause.startswith("idle_")
    }
    return {cause: round(ms, 1) for cause, ms in each.items() if ms >= 0.1}


def own_iterator(program):
    """An iterator of the user's own: nothing is recorded until its batch is copied."""
    program.sleep(QUIET).copy_in()
    step(program)


def one_batch_ahead(program):
    """Accelerate's loader: the next batch is asked for after this one was copied."""
    program.copy_in().sleep(QUIET)
    step(program)


def test_a_batch_that_is_copied_after_a_quiet_stretch_was_waited_for():
    report = analyze(loop(own_iterator))
    assert idle(report)["idle_data_wait"] == pytest.approx(3.0, abs=0.1)
    assert report.ranks[0].summary.host.data_wait_inferred_ns > 0
    assert report.verdict.bound == "io"


def test_a_batch_that_is_copied_before_the_wait_was_waited_for_as_well():
    report = analyze(loop(one_batch_ahead))
    assert idle(report)["idle_data_wait"] == pytest.approx(3.0, abs=0.1)
    assert report.verdict.bound == "io"


LOADER = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"


def test_before_a_loader_is_asked_for_a_batch_nobody_waits_for_it():
    def body(program):
        program.sleep(QUIET)
        with program.range(LOADER):
            program.sleep(10_000)
        program.copy_in()
        step(program)

    report = analyze(loop(body))
    assert idle(report)["idle_host"] == pytest.approx(3.0, abs=0.1)
    assert "idle_data_wait" not in idle(report)
    pause_ms = report.ranks[0].summary.host.pause_ns / report.ranks[0].summary.iterations_used / MS
    assert pause_ms == pytest.approx(3.0, abs=0.1)
    assert report.verdict.bound == "overhead"


@pytest.mark.parametrize("inside", [True, False], ids=["in its range", "after it"])
def test_what_a_loader_is_asked_for_was_waited_for_or_made_of_it(inside):
    def body(program):
        with program.range(LOADER):
            program.sleep(QUIET if inside else 10_000)
        if not inside:
            program.sleep(QUIET)
        program.copy_in()
        step(program)

    report = analyze(loop(body))
    assert idle(report)["idle_data_wait"] == pytest.approx(3.0, abs=0.1)
    assert report.verdict.bound == "io"


def test_after_results_were_copied_to_the_host_it_works_on_them():
    def simulate(program):
        program.copy_in()
        step(program)
        program.copy_out(4_096).sleep(QUIET)

    report = analyze(loop(simulate))
    assert idle(report)["idle_host"] == pytest.approx(3.0, abs=0.1)
    assert "idle_data_wait" not in idle(report)
    assert report.verdict.bound == "overhead"


@pytest.mark.parametrize(
    ("read", "begins", "ends", "cause"),
    [
        (4, -100_000, 0, "idle_data_wait"),
        (4, -100_000, 900_000, "idle_data_wait"),
        (4, -100_000, 1_200_000, "idle_unexplained"),  # it was there before
        (4, -100_000, -100_000, "idle_unexplained"),  # the thread goes on
        (4, 1_600_000, 0, "idle_unexplained"),  # most of it was for something else
        (1 << 20, -100_000, 0, "idle_host"),  # results are worked on
    ],
)
def test_a_batch_that_another_thread_had_just_made_was_waited_for(read, begins, ends, cause):
    def body(program):
        step(program)
        program.copy_out(read)
        begin = program.now + begins
        program.sleep(QUIET)
        program.script.range("data_load", begin, program.now - ends, thread=77)
        program.copy_in()

    report = analyze(loop(body))
    assert idle(report)[cause] == pytest.approx(3.0, abs=0.1)


def test_after_a_scalar_was_copied_to_the_host_nobody_knows():
    def print_loss(program):
        step(program)
        program.copy_out(4).sleep(QUIET).copy_in()

    report = analyze(loop(print_loss))
    assert idle(report)["idle_unexplained"] == pytest.approx(3.0, abs=0.1)
    assert report.verdict.bound == "inconclusive"
    assert "%" in report.verdict.missing[0]


def rollout(program, actions=4, operator="aten::linear"):
    """What a policy does is read and played, again and again; then all is learnt from."""
    for _ in range(actions):
        program.kernel("policy", 4_900, operator=operator).copy_out(8).sleep(2 * MS)
    step(program)


@pytest.mark.parametrize("actions", [1, 4])
def test_values_that_are_read_one_after_the_other_are_acted_on(tmp_path, actions):
    program = loop(lambda program: rollout(program, actions))
    path = kineto.write(program.script.build(), tmp_path / "trace.json")
    cause = "idle_host" if actions > 1 else "idle_unexplained"
    found = idle(traceprobe.analyze(traceprobe.load(path)))
    assert found[cause] == pytest.approx(2.0 * actions, abs=0.2)


def prints(program, between):
    """Values are read before and after a pause, though not right before it."""
    step(program)
    program.kernel("abs", 4_900, operator="aten::abs").copy_out(8)
    program.kernel("ne", 4_900, operator="aten::ne").sleep(QUIET)
    between(program)
    program.kernel("max", 4_900, operator="aten::max").copy_out(8)


@pytest.mark.parametrize(
    ("between", "cause"),
    [
        (lambda program: None, "idle_host"),
        (lambda program: program.copy_in(), "idle_data_wait"),
        (lambda program: program.copy_in(8), "idle_unexplained"),
        (lambda program: program.kernel("gemm", QUIET // 2), "idle_unexplained"),
    ],
    ids=["nothing", "a batch", "a scalar", "work for the GPU"],
)
def test_a_pause_between_values_that_are_read_is_the_hosts(tmp_path, between, cause):
    program = loop(lambda program: prints(program, between))
    path = kineto.write(program.script.build(), tmp_path / "trace.json")
    found = idle(traceprobe.analyze(traceprobe.load(path)))
    assert found[cause] == pytest.approx(3.0, abs=0.1)


def test_where_no_operators_are_recorded_a_loader_may_be_hidden_there():
    found = idle(analyze(loop(lambda program: rollout(program, operator=None))))
    assert found["idle_unexplained"] == pytest.approx(8.0, abs=0.2)


def test_on_a_cpu_an_operator_reads_the_values(tmp_path):
    script = Script(Process(devices=()))
    at = 1_000_000

    def run(name, **columns):
        nonlocal at
        script.operator(name, at, at + 100_000, **columns)
        at += 110_000

    for _ in range(10):
        for _ in range(4):
            run("aten::linear")
            run("aten::item")
            at += 2 * MS
        run("aten::linear")
        run("autograd::engine::evaluate_function: AddmmBackward0", forward_thread=1)
        begin = at
        run("aten::add_")
        script.range("Optimizer.step#SGD.step", begin, at)
    path = kineto.write(script.build(), tmp_path / "trace.json")
    found = idle(traceprobe.analyze(traceprobe.load(path)))
    assert found["idle_host"] == pytest.approx(8.0, abs=0.2)


def test_without_a_copy_at_either_end_nobody_knows():
    def vanish(program):
        program.sleep(QUIET)
        step(program)

    report = analyze(loop(vanish))
    assert idle(report)["idle_unexplained"] == pytest.approx(3.0, abs=0.1)
    assert report.verdict.bound == "inconclusive"


def test_a_little_that_is_unexplained_leaves_a_verdict():
    def hesitate(program):
        program.sleep(QUIET)
        step(program)
        program.kernel("attention", 12 * MS).wait()

    report = analyze(loop(hesitate))
    assert idle(report)["idle_unexplained"] == pytest.approx(3.0, abs=0.1)
    assert report.verdict.bound == "compute"


def test_a_host_that_runs_operators_is_not_quiet():
    def work(program):
        step(program)
        for _ in range(30):
            begin = program.now
            program.sleep(QUIET // 30).script.operator("aten::add", begin, program.now)

    report = analyze(loop(work))
    assert idle(report)["idle_host"] == pytest.approx(3.0, abs=0.1)
    assert report.verdict.bound == "overhead"


def makes_its_batch(folder, operator="aten::normal_", read=None):
    """A loop without a loader: operators of the CPU make what is copied to the GPU.

    Args:
        read: bytes that are copied to the host before.
    """

    def body(program):
        if read is not None:
            program.copy_out(read)
        for _ in range(10):
            begin = program.now
            program.sleep(QUIET // 10).script.operator(operator, begin, program.now)
        program.copy_in()
        step(program)

    path = kineto.write(loop(body).script.build(), folder / "trace.json")
    return idle(traceprobe.analyze(traceprobe.load(path)))


@pytest.mark.parametrize("read", [None, 4])
def test_operators_that_launch_nothing_until_a_batch_is_copied_make_it(tmp_path, read):
    found = makes_its_batch(tmp_path, read=read)
    assert found["idle_data_wait"] == pytest.approx(3.0, abs=0.1)


@pytest.mark.parametrize(
    ("operator", "read"),
    [("aten::normal_", 4_096), ("aten::embedding_bag", None), ("aten::addmm", None)],
    ids=["of results", "of a table on the CPU", "of a network on the CPU"],
)
def test_but_operators_of_the_step_itself_are_the_hosts(tmp_path, operator, read):
    found = makes_its_batch(tmp_path, operator, read)
    assert found["idle_host"] == pytest.approx(3.0, abs=0.1)
    assert "idle_data_wait" not in found


def test_what_an_optimizer_on_the_cpu_does_is_no_loading():
    def updates(program):
        step(program)
        with program.range("Optimizer.step#Adam.step"):
            begin = program.now
            program.sleep(QUIET).script.operator("aten::_foreach_add_", begin, program.now)
        program.copy_in()

    assert "idle_data_wait" not in idle(analyze(loop(updates)))


def test_nor_is_one_that_calls_the_driver():
    def call(program):
        step(program)
        for _ in range(30):
            begin = program.now
            program.sleep(QUIET // 30).script.call("cudaEventQuery", begin, program.now)

    assert idle(analyze(loop(call)))["idle_host"] == pytest.approx(3.0, abs=0.1)


def test_what_a_range_of_the_forward_pass_encloses_is_the_hosts():
    def annotated(program):
        with program.range("forward"):
            program.sleep(QUIET)
            step(program)

    found = idle(analyze(loop(annotated)))
    assert found["idle_host"] == pytest.approx(3.0, abs=0.1)
    assert "idle_unexplained" not in found


@pytest.mark.parametrize(
    ("size", "times", "cause"),
    [
        (BATCH, 10, "idle_data_wait"),
        (8, 10, "idle_unexplained"),
        (BATCH, 2, "idle_unexplained"),
    ],
    ids=["a batch", "a scalar", "a size that hardly recurs"],
)
def test_only_what_recurs_and_is_no_scalar_is_a_batch(size, times, cause):
    numbers = iter(range(10))

    def body(program):
        number = next(numbers)
        program.sleep(QUIET).copy_in(size if number < times else size + 1_000 * number)
        step(program)

    found = idle(analyze(loop(body)))
    assert max(found, key=lambda name: found[name]) == cause


@pytest.mark.parametrize(
    ("pause", "cause"),
    [(QUIET, "idle_unexplained"), (900_000, "idle_host")],
    ids=["3 ms", "0.9 ms"],
)
def test_a_short_pause_is_pythons(pause, cause):
    def body(program):
        program.sleep(pause)
        step(program)

    assert cause in idle(analyze(loop(body)))


def test_where_launches_are_slow_a_pause_has_to_be_longer_to_be_quiet():
    """Twenty times the median time between launches: here 4 ms."""

    def slow(program):
        for _ in range(20):
            program.kernel("forward", 20_000).sleep(195_000)
        program.sleep(QUIET)

    assert "idle_unexplained" not in idle(analyze(loop(slow)))


def test_between_step_ranges_work_on_results_is_no_wait_for_data():
    def body(program, number):
        with program.range(f"step {number}"):
            program.copy_in()
            step(program)
            program.copy_out(4_096)
        program.sleep(QUIET)

    program = Program()
    for number in range(10):
        body(program, number)
    found = idle(analyze(program))
    assert found["idle_host"] == pytest.approx(3.0, abs=0.1)
    assert "idle_data_wait" not in found


def pause_in_the_midst(program):
    """The garbage collector, or arithmetic in Python, between two parts of a step."""
    program.kernels([f"forward_{k}" for k in range(20)], ns=4_900)
    program.sleep(QUIET)
    program.kernels([f"backward_{k}" for k in range(20)], ns=4_900, backward=True)
    program.kernels([UPDATE] * 2, ns=4_900)


def pause_before_the_next_part(program):
    """Two parts of a batch: the second may have been waited for."""
    program.kernels([f"forward_{k}" for k in range(20)], ns=4_900)
    program.kernels([f"backward_{k}" for k in range(20)], ns=4_900, backward=True)
    program.sleep(QUIET)
    step(program)


def test_a_step_that_goes_on_with_its_backward_pass_has_had_its_batch():
    report = analyze(loop(pause_in_the_midst))
    assert idle(report)["idle_host"] == pytest.approx(3.0, abs=0.1)
    assert report.verdict.bound == "overhead"
    host = report.ranks[0].summary.host
    assert host.pause_ns / report.ranks[0].summary.iterations_used == pytest.approx(
        3 * MS, rel=0.05
    )
    found = next(f for f in report.findings if f.id == "host-pauses")
    assert found.status == "fail"
    assert found.saving_ms_per_step == pytest.approx(3.0, abs=0.2)
    launching = next(f for f in report.findings if f.id == "host-overhead")
    assert (launching.predicted.ms if launching.predicted else 0) < 0.3


def test_a_pause_before_another_part_of_the_batch_stays_unexplained():
    report = analyze(loop(pause_before_the_next_part))
    assert idle(report)["idle_unexplained"] == pytest.approx(3.0, abs=0.1)
    assert report.ranks[0].summary.host.pause_ns == 0


def ends_its_loss(*then):
    """A step that pauses after its forward pass, and launches something else before the gradient.

    Args:
        then: what the step thread launches after the pause.
    """

    def body(program):
        program.kernels([f"forward_{k}" for k in range(20)], ns=4_900)
        program.sleep(QUIET).kernels([*then, "fill_gradient"], ns=4_900)
        program.kernels([f"backward_{k}" for k in range(20)], ns=4_900, backward=True)
        program.kernels([UPDATE] * 2, ns=4_900)

    return body


def test_a_step_that_goes_on_with_the_end_of_its_loss_has_had_its_batch():
    report = analyze(loop(ends_its_loss("scale_loss")))
    assert idle(report)["idle_host"] == pytest.approx(3.0, abs=0.1)
    assert report.verdict.bound == "overhead"


@pytest.mark.parametrize(
    ("kernel", "profiled", "marked", "asked"),
    [
        ("triton_poi_fused_mul_0", (), None, True),
        ("scale_loss", (), None, False),
        ("triton_poi_fused_mul_0", ("operators",), None, False),
        ("triton_poi_fused_mul_0", (), False, True),
        ("triton_poi_fused_mul_0", (), True, False),
    ],
)
def test_a_pause_of_a_compiled_program_may_be_its_compiler(kernel, profiled, marked, asked):
    def body(program):
        program.kernels([f"forward_{k}" for k in range(20)], ns=4_900)
        program.sleep(QUIET).kernel(kernel, 4_900)
        program.kernels([f"backward_{k}" for k in range(20)], ns=4_900, backward=True)

    notes = {"marked": marked, "breaks": 0, "lines": []}
    recorded = {} if marked is None else {"traceprobe": {"compiler": notes}}
    report = traceprobe.analyze(loop(body).trace(profiled=profiled, **recorded))
    found = next(f for f in report.findings if f.id == "host-pauses")
    assert found.status == "fail"
    assert ("TORCH_LOGS=recompiles" in found.advice) is asked


def test_many_kernels_after_a_pause_may_be_of_a_further_batch():
    report = analyze(loop(ends_its_loss(*(f"further_{k}" for k in range(4)))))
    assert idle(report)["idle_unexplained"] == pytest.approx(3.0, abs=0.1)


def test_what_is_copied_to_the_device_after_a_pause_may_have_been_waited_for():
    def targets_come_late(program):
        program.kernels([f"forward_{k}" for k in range(20)], ns=4_900)
        program.sleep(QUIET).kernels(["index"], ns=4_900).copy_in(128, 2_000)
        program.kernels([f"backward_{k}" for k in range(20)], ns=4_900, backward=True)

    report = analyze(loop(targets_come_late))
    assert idle(report)["idle_unexplained"] == pytest.approx(3.0, abs=0.1)


def test_the_last_of_many_parts_of_a_batch_is_no_end_of_a_loss():
    def accumulates(program):
        for k in range(12):
            if k == 11:
                program.sleep(QUIET)
            program.kernels([f"forward_{k}" for k in range(6)], ns=4_900)
            program.kernels([f"backward_{k}" for k in range(6)], ns=4_900, backward=True)

    report = analyze(loop(accumulates))
    assert idle(report)["idle_unexplained"] == pytest.approx(3.0, abs=0.1)


def test_a_stage_of_a_compilation_that_is_a_range_is_no_pause():
    def compiles(program):
        program.kernels([f"forward_{k}" for k in range(20)], ns=4_900)
        with program.range("_compile.compile_inner (dynamo_timed)"):
            program.sleep(QUIET)
        program.kernels([f"backward_{k}" for k in range(20)], ns=4_900, backward=True)

    report = analyze(loop(compiles))
    assert report.ranks[0].summary.host.pause_ns == 0
    asking = [f.id for f in report.findings if f.status == "fail"]
    assert "recompilation" in asking
    assert "host-pauses" not in asking


def test_a_pause_between_two_values_that_are_read_is_not_for_reading():
    def reads_twice(program):
        program.kernels([f"forward_{k}" for k in range(20)], ns=4_900)
        program.copy_out(4, 2_000).sleep(QUIET).copy_out(4, 2_000)
        program.kernels([f"backward_{k}" for k in range(20)], ns=4_900, backward=True)

    report = analyze(loop(reads_twice))
    found = {f.id: f for f in report.findings}
    assert found["host-pauses"].status == "fail"
    assert found["host-pauses"].predicted.ms == pytest.approx(3.0, abs=0.2)
    predicted = found["synchronization"].predicted
    assert (predicted.ms if predicted else 0.0) < 1.0
