"""Stalls of the host with a cause of their own: memory of the driver, compilation, graph breaks.

A step of these loops lasts 10 ms: a kernel until 2 ms, what the host does until 6 ms, then a kernel
until 10 ms. So 40 % of the step is idle, because of whatever the host does.
"""

from __future__ import annotations

import pytest

import traceprobe
from tests import records
from tests.builders import kineto, nsight
from tests.builders.scenario import Script
from tests.evidence import evidence, finding_in
from tests.written_traces import report_of_scenario
from traceprobe.anonymise.anonymise_trace import anonymise_trace
from traceprobe.capture.process.nsys_tool import embed_sidecars
from traceprobe.findings.allocator_stalls import allocator_stalls
from traceprobe.findings.host_stalls import line_sites
from traceprobe.findings.recompilation import recompilation
from traceprobe.records.host_stalls import Compilations, DeviceAllocations

MS = 1_000_000
STEPS = 8
LINE = "train.py(7): train"


def kernel(script, t0, t1, name="ampere_fp16_s16816gemm_fp16_128x128"):
    """A kernel, launched by an operator just before."""
    script.operator("aten::mm", t0 - 30_000, t0 - 10_000, sequence=t0, forward_thread=0)
    script.op("kernel", t0, t1, (t0 - 20_000, t0 - 15_000), name=name)


def loop(stall, steps=range(STEPS), count=STEPS):
    """Eight steps, in some of which the host does something else, between 2 and 6 ms.

    Args:
        stall: adds rows to a script, from the start of a step on.
    """
    script = Script()
    for k in range(count):
        at = (1 + k) * 10 * MS
        script.range(f"step {k}", at, at + 10 * MS)
        script.operator(LINE, at, at + 10 * MS)
        kernel(script, at + MS // 10, at + 2 * MS)
        if k in steps:
            stall(script, at, k)
            kernel(script, at + 6 * MS, at + 99 * MS // 10)
        else:
            kernel(script, at + 2 * MS, at + 99 * MS // 10)
    return script.build()


def long_now_and_then(stall, more=4 * MS):
    """Steps of 6 ms; every fourth has so much more, in which the host does something else."""
    script, at = Script(), 10 * MS
    for k in range(16):
        long = k % 4 == 3
        script.range(f"step {k}", at, at + 6 * MS + long * more)
        kernel(script, at + MS // 10, at + 2 * MS)
        if long:
            stall(script, at, k)
            at += more
        kernel(script, at + 2 * MS, at + 59 * MS // 10)
        at += 6 * MS
    return script.build()


def makes_room(script, at, k):
    script.operator("aten::empty", at + 2 * MS, at + 59 * MS // 10)
    script.call("cudaFree", at + 2 * MS, at + 4 * MS)
    script.call("cudaMalloc", at + 4 * MS + 5_000, at + 59 * MS // 10)


def empties_cache(script, at, k):
    script.call("cudaFree", at + 2 * MS, at + 4 * MS)
    script.operator("aten::empty", at + 4 * MS + 500_000, at + 59 * MS // 10)
    script.call("cudaMalloc", at + 4 * MS + 500_000, at + 59 * MS // 10)


def empties_cache_in_a_compiled_region(script, at, k):
    region(script, at + 2 * MS, at + 59 * MS // 10, "0/0")
    script.call("cudaFree", at + 2 * MS, at + 59 * MS // 10 - 1_000)


def makes_room_in_compiled_code(script, at, k):
    region(script, at + 2 * MS, at + 59 * MS // 10, "0/0")
    script.call("cudaFree", at + 2 * MS, at + 4 * MS)
    script.call("cudaMalloc", at + 4 * MS + 5_000, at + 59 * MS // 10 - 1_000)


def asks_a_pool(script, at, k):
    script.call("cudaFreeAsync", at + 2 * MS, at + 4 * MS)
    script.call("cudaHostAlloc", at + 4 * MS, at + 59 * MS // 10)


def calls_last(script, at):
    """A call that ends then: what follows, and not what was before, is of the compilation."""
    script.call("cudaStreamIsCapturing", at - 1_000, at)


def compiles(script, at, k):
    t0, t1 = at + 2 * MS, at + 59 * MS // 10
    calls_last(script, t0)
    script.range(f"dynamo_data: compile_id=3/{140 + k}", t0, t0 + 1_000)
    script.operator("_compile.compile_inner (dynamo_timed)", t0, t1)
    script.operator("build_guards (dynamo_timed)", t0 + MS, t1)


def test_what_dynamo_does_beside_its_stages_is_compiling_too(tmp_path):
    def compiles_slowly(script, at, k):
        compiles(script, at, k)
        calls_last(script, at + MS)
        script.operator("dynamo", at + MS, at + 59 * MS // 10)

    stages, whole = (
        report_of_scenario(loop(stall), tmp_path).ranks[0].summary
        for stall in (compiles, compiles_slowly)
    )
    more = whole.host.compilations.host_ns - stages.host.compilations.host_ns
    assert more == MS * whole.iterations_used


@pytest.mark.parametrize(("write", "suffix"), [(kineto.write, "json"), (nsight.write, "sqlite")])
@pytest.mark.parametrize(
    ("stall", "reason", "advice"),
    [
        (makes_room, "the allocator makes room", "Leave the allocator room"),
        (makes_room_in_compiled_code, "the allocator makes room", "Leave the allocator room"),
        (empties_cache, "`torch.cuda.empty_cache()` does", "Take `torch.cuda.empty_cache()` out"),
        (
            empties_cache_in_a_compiled_region,
            "`torch.cuda.empty_cache()` does",
            "Take `torch.cuda.empty_cache()` out",
        ),
    ],
)
def test_memory_of_the_driver_in_every_step_says_what_it_is_for(
    tmp_path, write, suffix, stall, reason, advice
):
    report = report_of_scenario(loop(stall), tmp_path, write, suffix)
    found = finding_in(report, "allocator-stalls")
    assert found.status == "fail"
    assert reason in found.evidence[1]
    assert found.advice.startswith(advice)
    assert 3 < found.predicted.ms <= found.saving_ms_per_step <= 4
    (rank,) = report.ranks
    driver = sum(c.t1 - c.t0 for c in loop(stall).calls if c.api in ("cudaFree", "cudaMalloc"))
    assert sum(rank.replay.stall_ns) == driver * rank.replay.iterations // STEPS
    both = found.saving_ms_per_step + finding_in(report, "host-overhead").saving_ms_per_step
    assert both == pytest.approx(rank.summary.launch_idle_ns / rank.summary.steps / MS)


@pytest.mark.parametrize(
    ("stall", "steps", "told"),
    [
        (makes_room, (0, 1), True),
        (empties_cache, (0, 1), True),
        (makes_room, (0,), False),  # as the first step does that tries convolutions out
    ],
)
def test_of_two_iterations_both_give_memory_back(tmp_path, stall, steps, told):
    report = report_of_scenario(loop(stall, steps, count=2), tmp_path)
    assert report.ranks[0].summary.iterations_used == 2
    cold = finding_in(report, "cold-start").status
    if told:
        assert finding_in(report, "allocator-stalls").status == "fail"
        assert cold == "pass"
    else:
        assert finding_in(report, "allocator-stalls").status not in {"warn", "fail"}


def test_an_allocation_follows_at_once_in_the_time_of_a_profiler_as_well(tmp_path):
    def slowly(script, at, k):
        script.call("cudaFree", at + 2 * MS, at + 4 * MS)
        script.call("cudaMalloc", at + 4 * MS + 60_000, at + 59 * MS // 10)

    found = finding_in(
        report_of_scenario(loop(slowly), tmp_path, nsight.write, "sqlite"), "allocator-stalls"
    )
    assert "the allocator makes room" in found.evidence[1]


def test_the_line_that_frees_is_named(tmp_path):
    report = report_of_scenario(loop(empties_cache), tmp_path)
    (site,) = finding_in(report, "allocator-stalls").sites
    assert (site.line, site.part) == (LINE, 1.0)
    general = finding_in(report, "host-overhead")
    assert general.status == "warn"
    assert not general.sites  # all of it is at that line


@pytest.mark.parametrize(
    ("stall", "steps"), [(makes_room, (0, 1)), (asks_a_pool, range(STEPS)), (None, ())]
)
def test_memory_that_is_not_taken_again_and_again_is_none(tmp_path, stall, steps):
    report = report_of_scenario(loop(stall, steps), tmp_path)
    assert finding_in(report, "allocator-stalls").status == "not-applicable"


def updates_on_the_cpu(script, at, k):
    script.op("d2h", at + 2 * MS, at + 21 * MS // 10, (at + 2 * MS, at + 21 * MS // 10), bytes=MS)
    script.range("Optimizer.step#Adam.step", at + 22 * MS // 10, at + 5 * MS)
    script.operator("aten::_foreach_add_", at + 23 * MS // 10, at + 5 * MS - 1_000)
    launch = (at + 5 * MS, at + 58 * MS // 10)
    script.op("h2d", at + 51 * MS // 10, at + 58 * MS // 10, launch, bytes=2 * MS, pageable=True)


@pytest.mark.parametrize(
    ("operator", "times", "says"),
    [
        ("VmappedVmappedModIndex", 12, "torch.compile(flex_attention)"),
        ("aten::_is_any_true", 12, "set_detect_anomaly"),
        ("aten::lstm_cell", 12, "nn.LSTM"),
        ("aten::gru_cell", 2, "Launch less"),
        ("aten::_thnn_fused_lstm_cell", 12, "torch.backends.cudnn.enabled"),
        ("aten::mul", 12, "Launch less"),
    ],
)
def test_operators_that_one_mistake_alone_calls_name_it(tmp_path, operator, times, says):
    def busy(script, at, k):
        for call in range(times):
            begin = at + 2 * MS + call * 4 * MS // times
            script.operator(operator, begin, begin + 3 * MS // times)

    host = finding_in(report_of_scenario(loop(busy), tmp_path), "host-overhead")
    assert host.status == "fail"
    assert says in host.advice


@pytest.mark.parametrize(
    ("new", "fills", "zeros", "says"),
    [
        (12, 24, 6, "use_deterministic_algorithms"),  # all new tensors, and those of zeros again
        (12, 17, 6, "Launch less"),  # one new tensor is not filled
        (12, 6, 6, "Launch less"),
        (3, 17, 0, "Launch less"),  # masks that are filled, beside compiled code that allocates
    ],
)
def test_memory_that_is_always_filled_tells_of_deterministic_algorithms(
    tmp_path, new, fills, zeros, says
):
    calls = ["aten::empty"] * new + ["aten::zero_"] * zeros + ["aten::fill_"] * fills

    def busy(script, at, k):
        for place, name in enumerate(calls):
            begin = at + 2 * MS + place * 4 * MS // len(calls)
            script.operator(name, begin, begin + 3 * MS // len(calls))

    host = finding_in(report_of_scenario(loop(busy), tmp_path), "host-overhead")
    assert host.status == "fail"
    assert says in host.advice


@pytest.mark.parametrize(
    ("operator", "launches", "named"),
    [("aten::normal_", False, True), ("aten::normal_", True, False), ("aten::sort", False, False)],
)
def test_random_numbers_that_the_cpu_draws_are_told(tmp_path, operator, launches, named):
    def busy(script, at, k):
        begin = at + 2 * MS
        script.operator(operator, begin, begin + 4 * MS)
        if launches:
            script.op("kernel", begin + 3_000, begin + 5_000, (begin + 1_000, begin + 1_500))

    host = finding_in(report_of_scenario(loop(busy), tmp_path), "host-overhead")
    assert host.status == "fail"
    assert host.advice.startswith("Draw random numbers on the GPU") is named
    assert ("for 4.00 ms" in host.advice) is named


@pytest.mark.parametrize(
    ("operator", "kernels", "says"),
    [
        ("aten::cudnn_convolution", 40, "cudnn.benchmark"),
        ("aten::cudnn_convolution", 4, "Launch less"),
        ("aten::_cudnn_attention_forward", 2, "sdpa_kernel"),
        ("aten::_flash_attention_forward", 2, "Launch less"),
    ],
)
def test_one_call_that_prepares_for_each_size_names_it(tmp_path, operator, kernels, says):
    """It lasts 4 ms: of a convolution many kernels tell, of cuDNN's attention its duration."""

    def busy(script, at, k):
        begin, length = at + 2 * MS, 4 * MS
        script.operator(operator, begin, begin + length)
        for n in range(kernels):
            call = begin + 1_000 + n * length // (kernels + 1)
            script.op("kernel", call + 1_000, call + 3_000, (call, call + 500))

    host = finding_in(report_of_scenario(loop(busy), tmp_path), "host-overhead")
    assert host.status == "fail"
    assert says in host.advice


def test_an_optimizer_on_the_cpu_is_told_and_its_copies_are_no_batches(tmp_path):
    report = report_of_scenario(loop(updates_on_the_cpu), tmp_path)
    host = finding_in(report, "host-overhead")
    assert host.advice.startswith("The optimizer updates the parameters on the CPU")
    assert not host.predicted
    assert any("inside of `Optimizer.step`" in line for line in host.evidence)
    for name in ("h2d-exposed", "h2d-pageable"):
        assert finding_in(report, name).advice.startswith("Parameters are copied back")
    assert finding_in(report, "memory-traffic").advice.startswith("Gradients are copied")


def test_an_optimizer_that_launches_kernels_is_none_on_the_cpu(tmp_path):
    def updates(script, at, k):
        updates_on_the_cpu(script, at, k)
        kernel(script, at + 3 * MS, at + 31 * MS // 10)

    report = report_of_scenario(loop(updates), tmp_path)
    assert "torch.compile" in finding_in(report, "host-overhead").advice
    assert finding_in(report, "h2d-exposed").advice.startswith("Pin the loader's memory")


def test_compilation_in_every_step_is_told_and_no_cold_start(tmp_path):
    report = report_of_scenario(loop(compiles), tmp_path)
    found = finding_in(report, "recompilation")
    assert found.status == "fail"
    assert "of the functions by Dynamo's numbers 3 has 147 versions" in found.evidence
    assert [site.line for site in found.sites] == [LINE]
    assert 3 < found.predicted.ms <= found.saving_ms_per_step <= 4
    assert finding_in(report, "cold-start").status == "pass"
    assert finding_in(report, "host-overhead").status == "pass"


def compiles_where_nothing_of_it_is_recorded(script, at, k):
    t0, t1 = at + 2 * MS, at + 59 * MS // 10
    script.range(f"torch.compile compile_id=3/{140 + k}", t0, t0, form="mark")
    script.range(
        "torch.compile (dynamo_timed) at data_loading.py(12): forward", t0, t1, form="start"
    )


@pytest.mark.parametrize("anonymous", [False, True])
def test_compilation_under_nsight_is_told_by_the_ranges_of_the_recording(tmp_path, anonymous):
    scenario = loop(compiles_where_nothing_of_it_is_recorded)
    path = nsight.write(scenario, tmp_path / "trace.sqlite")
    public = tmp_path / "public.sqlite"
    anonymise_trace(path, public)
    report = traceprobe.analyze(traceprobe.load(public if anonymous else path))
    found = finding_in(report, "recompilation")
    assert found.status == "fail"
    assert "of the functions by Dynamo's numbers 3 has 147 versions" in found.evidence
    (site,) = found.sites
    assert site.line.endswith(".py(12): forward")
    (rank,) = report.ranks
    assert rank.summary.partition_ns["forward"]  # nothing else is called so
    assert not rank.summary.partition_ns["idle_data_wait"]
    assert finding_in(report, "cold-start").status == "pass"


@pytest.mark.parametrize(("write", "suffix"), [(kineto.write, "json"), (nsight.write, "sqlite")])
@pytest.mark.parametrize("then", ["call", "nothing"])
def test_until_compiled_code_begins_its_compilation_goes_on(tmp_path, write, suffix, then):
    """Guards are written and code is loaded after the last stage, in which no range is open."""

    def compiles_early(script, at, k):
        calls_last(script, at + 2 * MS)
        script.range("_compile.compile_inner (dynamo_timed)", at + 2 * MS, at + 4 * MS)
        if then == "call":
            script.call("cudaStreamIsCapturing", at + 5 * MS, at + 5 * MS + 1_000)

    report = report_of_scenario(loop(compiles_early), tmp_path, write, suffix)
    (rank,) = report.ranks
    # The next kernel's operator begins before its launch; Nsight Systems has no operators.
    launched = 6 * MS - (30_000 if suffix == "json" else 20_000)
    lasts = rank.summary.host.compilations.host_ns / rank.summary.steps
    assert lasts == (5 * MS if then == "call" else launched) - 2 * MS


@pytest.mark.parametrize(("write", "suffix"), [(kineto.write, "json"), (nsight.write, "sqlite")])
@pytest.mark.parametrize(("earlier", "counted"), [(150_000, 150_000), (MS, 200_000)])
def test_guards_that_fail_before_a_compilation_are_part_of_it(
    tmp_path, write, suffix, earlier, counted
):
    """From the last call on, and no more than a tenth of what the compilation lasts."""

    def fails_guards(script, at, k):
        calls_last(script, at + 3 * MS - earlier)
        if suffix == "json":
            t0 = at + 3 * MS - earlier
            script.operator("TorchDynamo Cache Lookup", t0 + 10_000, t0 + 20_000)
        script.range(f"torch.compile compile_id=3/{k}", at + 3 * MS - 1_000, at + 3 * MS - 1_000)
        script.range("_compile.compile_inner (dynamo_timed)", at + 3 * MS, at + 5 * MS)
        script.call("cudaStreamIsCapturing", at + 5 * MS, at + 5 * MS + 1_000)

    (rank,) = report_of_scenario(loop(fails_guards), tmp_path, write, suffix).ranks
    lasts = rank.summary.host.compilations.host_ns / rank.summary.steps
    assert lasts == 2 * MS + counted


def test_compilation_in_the_first_steps_is_set_up(tmp_path):
    report = report_of_scenario(loop(compiles, (0, 1, 2)), tmp_path)
    assert finding_in(report, "recompilation").status == "not-applicable"
    (rank,) = report.ranks
    assert [calls.name for calls in rank.summary.host.set_up] == ["compilation"]


def test_compilation_in_long_iterations_alone_is_counted_there(tmp_path):
    report = report_of_scenario(long_now_and_then(compiles), tmp_path)
    found = finding_in(report, "recompilation")
    assert (found.status, found.saving_ms_per_step) == ("warn", None)
    assert "`long-iterations` counts what it costs" in found.evidence
    assert finding_in(report, "long-iterations").saving_ms_per_step > 0


def collects(script, at, k):
    script.range("Python garbage collection (generation 2)", at + 2 * MS, at + 59 * MS // 10)


@pytest.mark.parametrize(("write", "suffix"), [(kineto.write, "json"), (nsight.write, "sqlite")])
def test_collections_of_garbage_are_the_hosts_and_told(tmp_path, write, suffix):
    report = report_of_scenario(loop(collects), tmp_path, write, suffix)
    summary = report.ranks[0].summary
    found = finding_in(report, "garbage-collection")
    assert (found.status, found.saving_ms_per_step) == ("fail", pytest.approx(3.9, abs=0.1))
    assert "the longest 3.90 ms" in found.evidence[0]
    assert "`gc.freeze()`" in found.advice
    assert report.verdict.bound == "overhead"
    assert summary.partition_ns["idle_unexplained"] == 0
    assert summary.host.garbage_collections.iterations == summary.iterations_used
    assert finding_in(report, "host-overhead").status == "pass"
    if suffix == "json":
        assert [site.line for site in found.sites] == [LINE]


def test_a_range_of_the_programs_own_around_one_is_not_another(tmp_path):
    def both(script, at, k):
        script.range("gc.collect", at + 2 * MS - 1_000, at + 59 * MS // 10 + 1_000)
        collects(script, at, k)

    summary = report_of_scenario(loop(both), tmp_path).ranks[0].summary
    assert summary.host.garbage_collections.count == summary.iterations_used


@pytest.mark.parametrize(("busy", "told"), [(False, True), (True, False)])
def test_a_collection_of_another_thread_counts_where_the_loop_stands_still(tmp_path, busy, told):
    def elsewhere(script, at, k):
        t0, t1 = at + 2 * MS, at + 59 * MS // 10
        script.range("Python garbage collection (generation 2)", t0, t1, thread=777)
        for n in range(30 * busy):
            script.operator("aten::add", t0 + n * 100_000, t0 + n * 100_000 + 90_000)

    report = report_of_scenario(loop(elsewhere), tmp_path)
    assert (finding_in(report, "garbage-collection").status == "fail") is told


def test_collections_without_steps_are_told_of_the_whole_capture(tmp_path):
    script = Script()
    for k in range(STEPS):
        at = (1 + k) * 10 * MS
        kernel(script, at + MS // 10, at + 2 * MS, name=f"gemm_{k}")
        collects(script, at, k)
        kernel(script, at + 6 * MS, at + 99 * MS // 10, name=f"norm_{k}")
    report = report_of_scenario(script.build(), tmp_path)
    assert report.ranks[0].summary.iterations_used == 0
    found = finding_in(report, "garbage-collection")
    assert found.status == "fail"
    assert found.evidence[0].startswith("8 collections, ")


def test_a_checkpoint_during_which_garbage_is_collected_is_a_checkpoint(tmp_path):
    def saves(script, at, _):
        script.op("d2h", at + 2 * MS, at + 9 * MS, (at + MS, at + MS + 5_000), bytes=1 << 30)
        script.range("gc.collect", at + 9 * MS, at + 10 * MS)

    scenario = long_now_and_then(saves, more=8 * MS)
    found = finding_in(report_of_scenario(scenario, tmp_path), "long-iterations")
    assert found.advice.startswith("Copy checkpoints to pinned memory")


@pytest.mark.parametrize(("write", "suffix"), [(kineto.write, "json"), (nsight.write, "sqlite")])
def test_collections_are_known_in_an_anonymised_trace(tmp_path, write, suffix):
    path = write(loop(collects), tmp_path / f"trace.{suffix}")
    target = tmp_path / f"anonymous.{suffix}"
    anonymise_trace(path, target)
    report = traceprobe.analyze(traceprobe.load(target))
    assert finding_in(report, "garbage-collection").status == "fail"


def test_without_a_range_nobody_knows_what_the_host_did(tmp_path):
    report = report_of_scenario(loop(lambda script, at, k: None), tmp_path)
    assert finding_in(report, "garbage-collection").status == "not-applicable"


def test_collections_of_long_iterations_are_counted_there(tmp_path):
    report = report_of_scenario(long_now_and_then(collects), tmp_path)
    assert "only long iterations" in finding_in(report, "garbage-collection").evidence[0]
    found = finding_in(report, "long-iterations")
    assert any("garbage collection 3.90 ms" in line for line in found.evidence)
    assert "`gc.freeze()`" in found.advice


def region(script, t0, t1, name):
    script.operator(f"Torch-Compiled Region: {name}", t0, t1)


def graph(script, t0, t1):
    script.operator("## Call CompiledFxGraph fabc ##", t0, t1)


def broken(script, at, k):
    region(script, at + 2 * MS, at + 59 * MS // 10, "2/0")
    graph(script, at + 2 * MS, at + 3 * MS)
    region(script, at + 5 * MS, at + 59 * MS // 10, "3/0")
    graph(script, at + 5 * MS, at + 59 * MS // 10)


def beside(script, at, k):
    region(script, at + 2 * MS, at + 3 * MS, "0/0")
    region(script, at + 4 * MS, at + 5 * MS, "1/0")


def regional(script, at, k):
    for n in range(3):
        region(script, at + (2 + n) * MS, at + (3 + n) * MS, "0/0")


def test_a_compiled_function_inside_another_is_a_graph_break(tmp_path):
    report = report_of_scenario(loop(broken), tmp_path)
    found = finding_in(report, "graph-breaks")
    assert found.status == "warn"
    assert found.evidence[0] == (
        "2 calls of compiled functions per step, 1 of them inside another, whose graph is broken "
        "there"
    )
    assert 0 < found.saving_ms_per_step <= 2.1
    assert [site.line for site in found.sites] == [LINE]


@pytest.mark.parametrize("stall", [beside, regional])
def test_functions_that_are_compiled_whole_have_no_break(tmp_path, stall):
    assert finding_in(report_of_scenario(loop(stall), tmp_path), "graph-breaks").status == "pass"


def test_without_compiled_functions_there_is_nothing_to_break(tmp_path):
    report = report_of_scenario(loop(makes_room), tmp_path)
    assert finding_in(report, "graph-breaks").status == "not-applicable"


@pytest.mark.parametrize("most", [True, False])
def test_what_a_break_leaves_uncompiled_counts_where_most_is_compiled(tmp_path, most):
    def pieces(script, at, k):
        eager = at + 3_600_000
        kernel(script, eager, eager + MS, "at::native::vectorized_elementwise_kernel<4, Mul>")
        broken(script, at, k)
        if most:
            graph(script, at + 59 * MS // 10, at + 6 * MS)

    found = finding_in(report_of_scenario(loop(pieces), tmp_path), "graph-breaks")
    assert ("1.00 ms per step in element-wise" in found.evidence[1]) is most


FUSED, EAGER = "triton_poi_fused_gelu_0", "at::native::vectorized_elementwise_kernel<4, Mul>"
NOTED = {"marked": True, "breaks": 2, "lines": ["gpt.py(80): forward"]}


def with_notes(notes):
    """Writes an export of Nsight Systems whose recording noted something of `torch.compile`."""

    def write(scenario, path):
        nsight.write(scenario, path)
        embed_sidecars(path, {0: {"compiler": notes}})
        return path

    return write


def kernels_of(*parts):
    """Steps in which kernels run between 2 and 6 ms: names and how long, ms."""

    def body(script, at, k):
        t0 = at + 2 * MS
        for name, ms in parts:
            kernel(script, t0, t0 + int(ms * MS), name)
            t0 += int(ms * MS)

    return loop(body)


@pytest.mark.parametrize(
    ("parts", "notes", "status", "fusing"),
    [
        (((FUSED, 1), (EAGER, 2.5)), NOTED, "warn", "pass"),
        (((FUSED, 1), (EAGER, 1.5)), NOTED, "pass", "pass"),
        (((FUSED, 1), (EAGER, 2.5)), {**NOTED, "breaks": 0, "lines": []}, "pass", "warn"),
        # Little of the step is compiled.
        (((FUSED, 0.2), (EAGER, 2.5)), NOTED, "not-applicable", "warn"),
        (((FUSED, 1), (EAGER, 2.5)), {**NOTED, "breaks": -1}, "not-applicable", "warn"),
        (((FUSED, 1), (EAGER, 2.5)), None, "not-applicable", "warn"),
    ],
)
def test_breaks_under_nsight_are_those_that_the_recording_noted(
    tmp_path, parts, notes, status, fusing
):
    report = report_of_scenario(kernels_of(*parts), tmp_path, with_notes(notes), "sqlite")
    found, rest = finding_in(report, "graph-breaks"), finding_in(report, "unfused-kernels")
    assert (found.status, rest.status) == (status, fusing)
    if status != "warn":
        return
    assert found.evidence[0].startswith("graphs broke at 2 places since the program began")
    assert [(site.line, site.part) for site in found.sites] == [("gpt.py(80): forward", 1.0)]
    assert found.saving_ms_per_step == pytest.approx(2.5)
    assert not rest.saving_ms_per_step
    assert "`graph-breaks` counts 2.50 ms of them" in rest.evidence


def test_a_trace_that_shows_compiled_functions_has_lines_of_the_recording_where_it_has_none(
    tmp_path,
):
    def unnamed(script, at, k):
        broken(script, at, k)
        script.operators[:] = [each for each in script.operators if each.name != LINE]

    header = (("traceprobe", {"compiler": NOTED}),)
    report = report_of_scenario(loop(unnamed), tmp_path, header=header)
    found = finding_in(report, "graph-breaks")
    assert found.evidence[0].startswith("2 calls of compiled functions per step, 1 of them inside")
    assert [site.line for site in found.sites] == ["gpt.py(80): forward"]


def test_an_anonymised_recording_keeps_what_it_noted_but_its_lines(tmp_path):
    path = with_notes(NOTED)(kernels_of((FUSED, 1), (EAGER, 2.5)), tmp_path / "run.sqlite")
    target = tmp_path / "public.sqlite"
    anonymise_trace(path, target)
    found = finding_in(traceprobe.analyze(traceprobe.load(target)), "graph-breaks")
    assert found.status == "warn"
    assert not found.sites


@pytest.mark.parametrize("fused", [True, False])
def test_what_compiled_graphs_launch_themselves_is_not_to_be_fused(tmp_path, fused):
    def launched(script, at, k):
        kernel(script, at + 2 * MS, at + 3 * MS, FUSED if fused else "ampere_sgemm")
        kernel(script, at + 3 * MS, at + 55 * MS // 10, EAGER)
        region(script, at + MS, at + 5 * MS, "0/0")
        graph(script, at + MS, at + 5 * MS)

    found = finding_in(report_of_scenario(loop(launched), tmp_path), "unfused-kernels")
    told = "2.50 ms of them are launched by compiled graphs, whose compiler could not fuse them"
    assert (told in found.evidence) is fused
    assert found.status == ("pass" if fused else "warn")


WRAPPED = ("nn.Module: OptimizedModule_0", "nn.Module: GPT_0"), ("nn.Module: GPT", "nn.Module: GPT")


@pytest.mark.parametrize("modules", [*WRAPPED, ("nn.Module: Trainer_0", "nn.Module: GPT_0")])
@pytest.mark.parametrize("inside", [True, False])
def test_what_a_break_leaves_uncompiled_of_a_compiled_module_counts_however_much_it_is(
    tmp_path, modules, inside
):
    def pieces(script, at, k):
        eager = at + 3_600_000
        kernel(script, eager, eager + MS, "at::native::vectorized_elementwise_kernel<4, Mul>")
        broken(script, at, k)
        for n, name in enumerate(modules):
            begin = at + n * 1_000 if inside else at + 5 * MS
            script.operator(name, begin, at + 99 * MS // 10 - n * 1_000)

    found = finding_in(report_of_scenario(loop(pieces), tmp_path), "graph-breaks")
    counted = inside and modules in WRAPPED
    assert ("1.00 ms per step in element-wise" in found.evidence[1]) is counted


def test_lines_of_calls_that_take_no_time_are_not_divided():
    assert line_sites([{"train.py(3): step": 0}], 1.0) == []


IDLE = {"forward": 60, "idle_host": 39, "idle_sync": 1}


def of_ranks(name, make):
    """Two ranks of 4 and 12 steps, each with a stall in all of its steps but one."""
    return evidence(
        *(
            records.rank(IDLE, number, steps=steps, host=records.host(**{name: make(steps)}))
            for number, steps in enumerate((4, 12))
        )
    )


def test_ranks_that_record_more_steps_take_memory_in_no_more_than_all():
    def freed(steps):
        return DeviceAllocations(
            allocations_per_step=0.0,
            frees_per_step=1.0,
            iterations=steps - 1,
            host_ns=2 * MS * steps,
            cost_ns=2 * MS * steps,
            for_room=0.0,
            lines={},
        )

    found = allocator_stalls(of_ranks("device_allocations", freed))
    assert found.evidence[0] == (
        "0 allocations and 1 release of device memory per step, in 11 of 12 iterations"
    )


def test_ranks_that_record_more_steps_compile_no_longer_in_each():
    def compiled(steps):
        ns = 4 * MS * steps
        return Compilations(iterations=steps - 1, host_ns=ns, cost_ns=ns, frames=[], lines={})

    found = recompilation(of_ranks("compilations", compiled))
    assert found.evidence[0] == (
        "4.00 ms per step (4.0 %) of compilation on the host, in 11 of 12 iterations"
    )


@pytest.mark.parametrize("rule", [allocator_stalls, recompilation])
@pytest.mark.parametrize(
    ("unprofiled_ms", "most"), [(None, 8), (90.0, 90 - 60), (72.0, 72 - 60), (66.0, 66 - 60)]
)
def test_the_driver_is_no_faster_without_a_profiler(rule, unprofiled_ms, most):
    """Stalls of 8 ms in a step of 100 ms with 60 ms of work on the device.

    What is left of the host may be shorter than that without the profiler.
    """
    steps = 8
    stall = {"iterations": steps, "host_ns": 8 * MS * steps, "cost_ns": 8 * MS * steps, "lines": {}}
    given = {"allocations_per_step": 0.0, "frees_per_step": 1.0, "for_room": 0.0}
    host = (
        records.host(device_allocations=DeviceAllocations(**stall, **given))
        if rule is allocator_stalls
        else records.host(compilations=Compilations(**stall, frames=[]))
    )
    rank = records.rank(IDLE, steps=steps, host=host)
    found, changes = rule.examine(evidence(rank, unprofiled_ms=unprofiled_ms))
    assert found.saving_ms_per_step == pytest.approx(most)
    assert changes.removed == {"stalls"}
