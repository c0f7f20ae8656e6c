"""Captures that show no training, and traces of other tools: what is said instead of a bound."""

from __future__ import annotations

import json
import random
import re
from dataclasses import replace

import pytest

import traceprobe
from tests.builders import kineto, nsight
from tests.builders.loop import training_loop
from tests.builders.scenario import PID, Process, Range, Script
from tests.evidence import finding_in
from tests.rendering import terminal_of
from tests.written_traces import report_of_scenario
from traceprobe.errors import EmptyTrace, UnsupportedInput
from traceprobe.ingest.read_trace import read_trace
from traceprobe.pipeline.inspection import describe

MS = 1_000_000
LOOP = {
    "steps": 8,
    "h2d_ns": 40_000,
    "forward_ns": 4 * MS,
    "backward_ns": 6 * MS,
    "optimizer_ns": MS,
    "sync_ns": 50_000,
}


def statuses(report, *names):
    return {finding_in(report, name).status for name in names}


def without_gpu_rows(scenario):
    """The host of a run of which the profiler recorded no GPU op."""
    ops = {op.correlation for op in scenario.ops}
    return replace(scenario, ops=(), calls=tuple(scenario.host_calls())), len(ops)


ABOUT_STEPS = ("host-overhead", "synchronization", "data-wait", "small-kernels")


def test_launches_without_a_gpu_row_are_a_failed_capture_and_no_cpu_run(tmp_path):
    scenario, _ = training_loop(**LOOP)
    failed, _ = without_gpu_rows(scenario)
    report = report_of_scenario(
        failed, tmp_path, header=(("WARNING", ["CUPTI is not initialized"]),)
    )
    assert report.verdict.bound == "inconclusive"
    assert "no GPU rows" in report.verdict.headline
    assert finding_in(report, "gpu-rows-missing").status == "fail"
    assert "CUPTI is not" in " ".join(finding_in(report, "gpu-rows-missing").evidence)
    assert [w.code for w in report.quality.warnings] == ["gpu-rows-missing"]
    assert statuses(report, *ABOUT_STEPS) == {"inconclusive"}


def test_the_same_without_any_annotation_is_no_other_case(tmp_path):
    scenario, _ = training_loop(**LOOP)
    failed, _ = without_gpu_rows(replace(scenario, ranges=()))
    report = report_of_scenario(failed, tmp_path)
    assert finding_in(report, "gpu-rows-missing").status == "fail"


def test_operators_of_cuda_libraries_do_not_run_on_a_cpu(tmp_path):
    run = cpu_run(loading=6)
    convolution = replace(run.operators[0], name="aten::cudnn_convolution")
    report = report_of_scenario(replace(run, operators=(*run.operators, convolution)), tmp_path)
    assert report.verdict.bound == "inconclusive"
    assert "`aten::cudnn_convolution` ran" in " ".join(
        finding_in(report, "gpu-rows-missing").evidence
    )
    assert finding_in(report, "data-wait").status == "inconclusive"


def test_a_question_to_cudnn_is_asked_on_a_cpu_too(tmp_path):
    run = cpu_run(loading=6)
    question = replace(run.operators[0], name="aten::cudnn_is_acceptable")
    report = report_of_scenario(replace(run, operators=(*run.operators, question)), tmp_path)
    assert report.verdict.bound != "inconclusive"
    assert finding_in(report, "gpu-rows-missing").status == "not-applicable"


def test_an_export_says_how_many_launches_it_has_and_that_no_gpu_row_is_there(tmp_path):
    scenario, _ = training_loop(**LOOP)
    failed, _ = without_gpu_rows(scenario)
    launches = sum(call.api == "cudaLaunchKernel" for call in failed.calls)
    with pytest.raises(EmptyTrace, match=f"{launches} kernels were launched .* not one GPU row"):
        read_trace(nsight.write(failed, tmp_path / "run.sqlite"))


def test_a_reason_that_helps_nobody_is_followed_by_what_does(tmp_path):
    scenario, _ = training_loop(**LOOP)
    failed, _ = without_gpu_rows(scenario)
    said = "Not all CUDA events might have been collected."
    path = nsight.write(replace(failed, diagnostics=((0, 30, said),)), tmp_path / "run.sqlite")
    with pytest.raises(EmptyTrace, match=f"{said} Look for another profiler .* profile it again"):
        read_trace(path)


def test_a_run_on_a_cpu_launches_nothing(tmp_path):
    script = Script()
    for k in range(8):
        script.range(f"step {k}", k * 10 * MS, (k + 1) * 10 * MS)
        script.operator("aten::mm", k * 10 * MS, k * 10 * MS + 9 * MS, sequence=k)
    report = report_of_scenario(script.build(), tmp_path)
    assert report.verdict.bound == "compute"
    assert finding_in(report, "gpu-rows-missing").status == "not-applicable"


@pytest.mark.parametrize(
    ("devices", "part", "status"),
    [(True, 0.7, "fail"), (True, 1.0, "not-applicable"), (False, 0.7, "not-applicable")],
    ids=["cut", "whole", "cut, and no GPU"],
)
def test_a_file_that_ends_before_its_gpu_rows_is_no_cpu_run(tmp_path, devices, part, status):
    script = Script(Process(PID, devices=("NVIDIA H200",) if devices else ()))
    for k in range(30):
        script.range(f"step {k}", k * 10 * MS, (k + 1) * 10 * MS)
        script.operator("aten::mm", k * 10 * MS, k * 10 * MS + 9 * MS, sequence=k)
    path = kineto.write(script.build(), tmp_path / "cut.json")
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * part)])
    report = traceprobe.analyze(traceprobe.load(path))
    assert finding_in(report, "gpu-rows-missing").status == status
    assert any(w.code == "cpu-run" for w in report.quality.warnings) == (status != "fail")


@pytest.mark.parametrize("trains", [False, True])
def test_a_server_that_answers_requests_is_called_one(tmp_path, trains):
    scenario, _ = training_loop(**LOOP)
    again = replace(scenario.operators[0], name="vllm::unified_attention")
    other = [replace(again, name="autograd::engine::evaluate_function: X")] if trains else []
    served = [o for o in scenario.operators if not o.name.startswith("autograd::engine")]
    report = report_of_scenario(replace(scenario, operators=(*served, again, *other)), tmp_path)
    assert ("inference server (vLLM)" in report.to_markdown()) is not trains
    assert ("inference server (vLLM)" in terminal_of(report, 999, False)) is not trains


@pytest.mark.parametrize(
    ("name", "inference"),
    [
        ("aten::mm", True),
        ("autograd::engine::evaluate_function: MmBackward0", False),
        ("Optimizer.step#SGD.step", False),
        ("cudaGraphLaunch", False),  # it may replay a step of training
        ("hipGraphLaunch", False),
        ("Optimizer.zero_grad#SGD.zero_grad", False),
        ("MyBACKWARD", False),
        ("cutlass_tensorop_bf16_s16816wgrad_optimized_bf16", False),  # of a thread not recorded
    ],
)
def test_a_trace_without_a_backward_pass_or_an_update_is_called_inference(
    tmp_path, name, inference
):
    script = Script()
    for k in range(5):
        at = k * MS
        script.range(f"step {k}", at, at + MS)
        for number in range(30):
            begin = at + 200_000 + 20_000 * number
            script.op("kernel", begin, begin + 15_000, (begin - 50_000, begin - 40_000))
        script.operator("aten::mm", at, at + 100_000)
    if name == "cudaGraphLaunch":
        script.call(name, 110_000, 120_000)
    else:
        script.operator(name, 110_000, 120_000)
    report = report_of_scenario(script.build(), tmp_path)
    assert ("inference" in {w.code for w in report.quality.warnings}) is inference
    said = "it is of inference, of an evaluation or of a benchmark, unless"
    assert (said in " ".join(terminal_of(report, 999, False).split())) is inference
    advice = [f.advice for f in report.findings if f.status in ("warn", "fail")]
    assert any("`torch.compile`" in text for text in advice)
    assert not any("optimizer" in text for text in advice)  # the steps have none, in any case


def test_copies_alone_are_no_training(tmp_path):
    script = Script()
    for k in range(200):
        at = k * MS
        script.op("h2d", at + 20_000, at + 400_000, (at, at + 5_000), bytes=1 << 20)
        script.call("cudaStreamSynchronize", at + 10_000, at + 410_000)
    report = report_of_scenario(script.build(), tmp_path, nsight.write, "sqlite")
    assert report.verdict.bound == "inconclusive"
    assert "no kernel" in report.verdict.headline
    assert finding_in(report, "gpu-rows-missing").status == "fail"
    assert statuses(report, *ABOUT_STEPS, "h2d-exposed") == {"inconclusive"}


def launches(count, slow=(), *, again=False, busy_ns=0):
    """Kernels of 50 µs, one launched every 60 µs; of some the launch lasts long.

    Args:
        slow: (number of the launch, how long it lasts), ns.
        again: every kernel is the same, so that its first launch is the first of all.
        busy_ns: how long the kernel before a slow launch keeps the GPU busy.
    """
    script, at, free = Script(), 0, 0
    slow, order = dict(slow), random.Random(1)  # without a period that would be an iteration
    for k in range(count):
        lasts = slow.get(k, 6_000)
        start = max(at + lasts - 1_000, free)
        end = start + (busy_ns if k + 1 in slow and busy_ns else 50_000)
        name = "gemm" if again else f"gemm_{k if k < 40 else order.randrange(40)}"
        script.op("kernel", start, end, (at, at + lasts), name=name)
        at, free = at + max(lasts, 60_000), end
    return script.build()


def test_first_launches_that_load_code_are_a_cold_start(tmp_path):
    report = report_of_scenario(launches(400, {1: 6 * MS, 2: 4 * MS}), tmp_path)
    assert report.verdict.bound == "inconclusive"
    assert "cold start" in report.verdict.headline
    found = finding_in(report, "cold-start")
    assert found.status == "fail"
    assert found.evidence[1] == "2 × cudaLaunchKernel, the longest 6.00 ms"
    assert finding_in(report, "host-overhead").status == "inconclusive"


def test_a_launch_that_waits_for_a_full_queue_is_no_cold_start(tmp_path):
    report = report_of_scenario(launches(400, {1: 6 * MS, 2: 4 * MS}, busy_ns=7 * MS), tmp_path)
    assert finding_in(report, "cold-start").status == "pass"


def test_a_kernel_that_ran_before_is_warm(tmp_path):
    report = report_of_scenario(launches(400, {200: 6 * MS, 300: 4 * MS}, again=True), tmp_path)
    assert finding_in(report, "cold-start").status == "pass"


def test_allocations_of_every_step_are_the_pace_of_the_run(tmp_path):
    script = Script()
    for k in range(150):
        at = k * MS
        script.call("cudaMalloc", at, at + 400_000)
        script.op("kernel", at + 420_000, at + 990_000, (at + 400_000, at + 406_000), name="gemm")
    report = report_of_scenario(script.build(), tmp_path, nsight.write, "sqlite")
    assert finding_in(report, "cold-start").status == "pass"
    assert report.verdict.bound != "inconclusive"


@pytest.mark.parametrize(
    ("steps", "cold"), [((0,), True), (range(8), False), ((1, 6), False), ((1, 2), True)]
)
def test_memory_that_is_returned_in_every_step_is_no_cold_start(tmp_path, steps, cold):
    script = Script()
    for k in range(8):
        at = k * 10 * MS
        script.range(f"step {k}", at, at + 10 * MS)
        for n in range(20):
            t0 = at + n * 100_000
            script.op("kernel", t0 + 20_000, t0 + 90_000, (t0, t0 + 6_000), name=f"gemm_{n}")
            script.call("cudaFree", t0 + 7_000, t0 + 8_000)
        if k in steps:
            script.call("cudaFree", at + 2 * MS, at + 9 * MS)
    report = report_of_scenario(script.build(), tmp_path, nsight.write, "sqlite")
    assert finding_in(report, "cold-start").status == ("warn" if cold else "pass")
    assert len(steps) < 8 or report.verdict.bound == "overhead"


@pytest.mark.parametrize("name", ["compile_inner (dynamo_timed)", "an epoch"])
def test_a_compilation_is_a_cold_start(tmp_path, name):
    script, order = Script(), random.Random(1)
    for k in range(400):
        at = k * 60_000 + 40 * MS * (k >= 200)
        t0 = at + 5_000
        script.op("kernel", t0, t0 + 50_000, (at, at + 6_000), name=f"gemm_{order.randrange(40)}")
    script.range(name, 200 * 60_000, 200 * 60_000 + 40 * MS)
    report = report_of_scenario(script.build(), tmp_path)
    compiles = name.endswith("(dynamo_timed)")
    assert finding_in(report, "cold-start").status == ("fail" if compiles else "pass")
    assert ("cold start" in report.verdict.headline) is compiles


@pytest.mark.parametrize(("head_ms", "bound"), [(30, "inconclusive"), (5, "compute")])
@pytest.mark.parametrize("another", [False, True])
def test_what_precedes_the_work_of_a_single_step_may_be_its_bound(
    tmp_path, head_ms, bound, another
):
    script, at = Script(), head_ms * MS
    script.range("step 7", 0, at + 110 * 500_000)
    for k in range(110):
        t0 = at + k * 500_000
        script.op("kernel", t0, t0 + 498_000, (t0 - 9_000, t0 - 4_000), name=f"gemm_{k % 37}")
    if another:  # which is cut off, and shows that there is no such head before each step
        t0, bound = at + 110 * 500_000 + 100_000, "compute"
        script.range("step 8", t0 - 50_000, t0 + 400_000)
        script.op("kernel", t0, t0 + 300_000, (t0 - 9_000, t0 - 4_000), name="gemm_0")
    report = report_of_scenario(script.build(), tmp_path)
    assert report.verdict.bound == bound
    assert ("before its first work" in report.verdict.headline) is (bound == "inconclusive")


def test_set_up_of_an_iteration_that_does_not_count_is_not_judged(tmp_path):
    scenario, _ = training_loop(**LOOP)
    first = min(op.t0 for op in scenario.ops if op.kind == "kernel")
    ops = [
        replace(op, launch=op.launch and replace(op.launch, t0=op.launch.t0 - 80 * MS), name="load")
        if op.t0 == first
        else op
        for op in scenario.ops
    ]
    report = report_of_scenario(replace(scenario, ops=tuple(ops)), tmp_path)
    assert finding_in(report, "cold-start").status == "pass"
    assert report.verdict.bound == "compute"


def chrome(tmp_path, *processes, event=None, **keys):
    rows = [
        {"ph": "M", "name": "process_name", "pid": n, "tid": 0, "args": {"name": name}}
        for n, name in enumerate(processes)
    ]
    rows += [
        event or {"ph": "X", "name": "op", "pid": 0, "tid": 0, "ts": k, "dur": 1} for k in (1, 2)
    ]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({**keys, "traceEvents": rows}), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("processes", "keys", "named"),
    [
        (["Python", "CANN", "Ascend Hardware"], {}, "Ascend NPUs"),
        (["/host:CPU", "/device:TPU:0"], {}, "XLA's profiler"),
        (["/job:localhost/replica:0/task:0/device:GPU:0 Compute"], {}, "TensorFlow"),
        (["0 CPU HIP API", "6 GPU0"], {}, "rocprof"),
        (["Browser", "Renderer"], {}, "Chrome browser"),
        (["MainProcess"], {"viztracer_metadata": {"version": "1.0"}}, "VizTracer"),
    ],
)
def test_traces_of_other_tools_are_refused_by_name(tmp_path, processes, keys, named):
    with pytest.raises(UnsupportedInput, match=f"is a .*{named}.*; traceprobe reads"):
        read_trace(chrome(tmp_path, *processes, **keys))


@pytest.mark.parametrize(("category", "named"), [("mtia_ccp_events", "MTIA"), ("hpu_op", "Gaudi")])
def test_devices_whose_work_is_not_read_are_named(tmp_path, category, named):
    event = {"ph": "X", "cat": category, "name": "add", "pid": 9, "tid": 1, "ts": 1, "dur": 1}
    with pytest.raises(UnsupportedInput, match=f"is a trace of {named} accelerators; traceprobe"):
        read_trace(chrome(tmp_path, "python", event=event))


@pytest.mark.parametrize(
    ("head", "named"),
    [
        (
            b'{"$schema":"https://www.speedscope.app/file-format-schema.json","profiles":[]}',
            "speed",
        ),
        (b'{ "rocprofiler-sdk-tool": []}', r"rocprofv3, .*\(record with torch\.profiler"),
        (b'"Kind","Agent_Id","Queue_Id","Kernel_Name"\n', "a table of rocprofv3"),
        (b'"Domain","Function","Process_Id"\n', "a table of rocprofv3"),
        (b"{\xa9\x03\xfa\x08train.py\xe9\x01\x00\x00\x00", "cProfile"),
        (b"NVR\x00\x01\x00", "Nsight Compute"),
        (b"\n\x80\x05\x12\x0b/device:TPU:0 (pid 1)" + bytes(60), "XLA"),
    ],
)
def test_files_of_other_tools_are_told_by_how_they_begin(tmp_path, head, named):
    path = tmp_path / "trace.bin"
    path.write_bytes(head)
    with pytest.raises(UnsupportedInput, match=named):
        read_trace(path)


@pytest.mark.parametrize(
    ("table", "named"),
    [("rocpd_kernel_dispatch_00a1", "rocpd"), ("CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL", "nvprof")],
)
def test_databases_of_other_tools_are_told_by_their_tables(tmp_path, table, named):
    path = nsight.write(training_loop(**LOOP)[0], tmp_path / "run.sqlite")
    nsight.edit(path, f"CREATE TABLE {table} (start INTEGER)", "DROP TABLE StringIds")
    with pytest.raises(UnsupportedInput, match=named):
        read_trace(path)


def test_gpu_rows_make_a_trace_ours_whatever_its_processes_are_called(tmp_path):
    scenario, _ = training_loop(**LOOP)
    named = replace(scenario, processes=(replace(scenario.processes[0], name="Browser"),))
    assert report_of_scenario(named, tmp_path).verdict.bound == "compute"


def cpu_run(*, loading=0, between=0, steps=10, marked=True):
    """Three operators and their backward pass on a CPU, 3 ms each; times in ms."""
    script, at = Script(), 0
    for k in range(steps):
        begin = at
        if loading:
            name = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
            script.range(name, at, at + loading * MS)
            at += loading * MS
        for number in range(4):
            forward = {"forward_thread": int(number == 3), "sequence": k}
            script.operator(f"aten::op{number}", at, at + 3 * MS, **forward)
            at += int((3 + between) * MS)
        if marked:
            script.range(f"step {k}", begin, at)
    return script.build()


def test_what_a_run_on_a_cpu_holds_is_told_in_its_own_words(tmp_path):
    path = kineto.write(cpu_run(loading=6), tmp_path / "run.json")
    told = list(describe(read_trace(path)))
    assert ("operators", "40, ranges 20") in told
    assert not [text for subject, text in told if subject == "missing" and "host calls" in text]
    assert not [subject for subject, _ in told if subject in ("gpu ops", "linked")]


OF_GPUS = re.compile(r"\bGPUs?\b|CUDA|cuda|\bdevice\b|[Kk]ernel|[Ll]aunch|multiprocessor|pinned")


@pytest.mark.parametrize(
    ("run", "bound"),
    [
        ({"loading": 6}, "io"),
        ({"between": 3}, "overhead"),
        ({"between": 0.5}, "compute"),
    ],
)
def test_a_run_on_a_cpu_is_told_in_its_own_words(tmp_path, run, bound):
    report = report_of_scenario(cpu_run(**run), tmp_path)
    assert report.verdict.bound == bound
    findings = [f for f in report.findings if f.status != "not-applicable"]
    said = [report.verdict.headline, *report.verdict.reasons]
    said += [text for f in findings for text in (f.title, *f.evidence, f.advice)]
    assert [text for text in said if OF_GPUS.search(text)] == []
    assert "host-overhead" in {f.id for f in findings}


def test_a_cpu_run_that_is_too_short_counts_operators(tmp_path):
    whole = Range("main", PID, 0, 30 * MS)
    report = report_of_scenario(replace(cpu_run(steps=2, marked=False), ranges=(whole,)), tmp_path)
    assert "8 operators, at least 100 are needed" in " ".join(report.verdict.missing)
    assert report.verdict.bound == "inconclusive"
    assert [text for text in report.verdict.missing if OF_GPUS.search(text)] == []


def test_summing_gradients_is_backward_work(tmp_path):
    script = Script()
    node = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"
    for k in range(8):
        at = k * 10 * MS
        script.range(f"step {k}", at, at + 10 * MS)
        script.operator("aten::mm", at, at + 3 * MS, sequence=k)
        script.operator(node, at + 3 * MS, at + 8 * MS, sequence=k + 100, forward_thread=0)
    (rank,) = report_of_scenario(script.build(), tmp_path).ranks
    parts = rank.summary.partition_ns
    assert parts["forward"] == pytest.approx(3 * MS * rank.summary.iterations_used, rel=0.01)
    assert parts["backward"] == pytest.approx(5 * MS * rank.summary.iterations_used, rel=0.01)


@pytest.mark.parametrize("gpus", [(), ("NVIDIA H200",)])
def test_a_training_on_a_cpu_needs_no_annotation(tmp_path, gpus):
    script = Script(Process(1000, devices=gpus))
    for k in range(60):
        at = k * 10 * MS
        script.operator("aten::addmm", at, at + 3 * MS, sequence=k)
        node = "autograd::engine::evaluate_function: AddmmBackward0"
        script.operator(node, at + 3 * MS, at + 9 * MS)
        script.operator("aten::mm", at + 3 * MS, at + 8 * MS)
    if gpus:  # where the operators may have run, and nothing was recorded
        with pytest.raises(EmptyTrace, match="no GPU work"):
            report_of_scenario(script.build(), tmp_path)
        return
    report = report_of_scenario(script.build(), tmp_path)
    assert report.verdict.bound == "compute"
    assert any(warning.code == "cpu-run" for warning in report.quality.warnings)
    assert report.ranks[0].summary.steps >= 50
