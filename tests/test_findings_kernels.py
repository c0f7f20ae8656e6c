"""Findings about kernels and phases of computation, on records with exact numbers."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import traceprobe
from tests import records
from tests.builders import memory
from tests.builders.program import UPDATE, Program
from tests.builders.scenario import Script
from tests.evidence import evidence
from tests.records import SLOWED_BY
from tests.report_factory import MS
from traceprobe.findings import find_all
from traceprobe.findings.attention_unfused import attention_unfused
from traceprobe.findings.lower_precision import lower_precision
from traceprobe.findings.memory_format import memory_format
from traceprobe.findings.optimizer_cost import cheaper_updates, optimizer_cost
from traceprobe.findings.optimizer_launches import optimizer_launches
from traceprobe.findings.recomputation import recomputation
from traceprobe.findings.tf32_off import tf32_off
from traceprobe.findings.unaligned_matmul import unaligned_matmul
from traceprobe.findings.unfused_kernels import unfused_kernels
from traceprobe.model.taxonomy import KERNEL_CLASSES
from traceprobe.records.class_bound import UNSEEN
from traceprobe.records.host_activity import Updates
from traceprobe.records.operator_calls import OperatorPace
from traceprobe.records.summary import KernelShare, UnfusedAttention
from traceprobe.verdict import gpu_specs as gpus
from traceprobe.verdict.thresholds import FIXED

STEP = {"forward": 40, "backward": 50, "optimizer": 10}


def run(parts=STEP, gpu="NVIDIA H200", **kernels):
    """A rank of 100 ms a step whose kernels have these ms per step."""
    spent = {c: kernels.get(c, 0) * MS * records.STEPS for c in KERNEL_CLASSES}
    rank = records.rank(parts, kernel_ns=spent)
    return replace(rank, device=replace(rank.device, name=gpu))


def applied(rule, rank):
    return rule(evidence(rank))


H200_FP32_TO_BF16 = 66.9 / 2 / 989.4
H200_FP32_TO_TF32 = 66.9 / 2 / 494.7
"""Half of the peak, over the other."""


REST = {"other": 4, "fused": 6, "softmax": 2, "layout": 4}


def test_the_ratio_of_peaks_says_what_16_bits_save():
    found = applied(lower_precision, run(matmul_fp32=40, matmul_tf32=8, matmul_3xtf32=6, **REST))
    # TF32 reaches seven tenths of its peak at least, which is half of that of bf16.
    kept = 40 * H200_FP32_TO_BF16 + 8 * 0.7 / 2 + 6 * 0.7 / 6 + 16 / 2
    assert found.status == "warn"
    assert found.saving_ms_per_step == pytest.approx(70 - kept, rel=1e-3)
    assert "bfloat16" in found.advice


@pytest.mark.parametrize("gpu", ["Tesla V100-SXM2-16GB", "Tesla T4", "Quadro RTX 8000"])
def test_gpus_before_ampere_are_told_fp16_and_no_tf32(gpu):
    found = applied(lower_precision, run(matmul_fp32=64, gpu=gpu))
    assert found.status == "warn"
    assert "float16" in found.advice
    assert "GradScaler" in found.advice
    assert "dtype=torch.bfloat16" not in found.advice
    assert applied(tf32_off, run(matmul_fp32=64, gpu=gpu)).status == "not-applicable"


def test_the_evidence_tells_the_precisions_that_ran_and_no_others():
    found = applied(lower_precision, run(matmul_fp32=64, matmul_unaligned=8))
    told = "64.0 ms without tensor cores and 8.00 ms with unaligned operands"
    assert found.evidence[0] == f"matrix kernels per step: {told}"
    assert applied(lower_precision, run(reduction=64)).evidence == ["matrix kernels per step: none"]


@pytest.mark.parametrize("gpu", ["Tesla K80", "Tesla M40"])
def test_gpus_that_are_no_faster_in_16_bits_are_left_alone(gpu):
    assert applied(lower_precision, run(matmul_fp32=64, gpu=gpu)).status == "not-applicable"


@pytest.mark.parametrize("finding", [lower_precision, tf32_off])
@pytest.mark.parametrize("gpu", ["", "NVIDIA Q999"])
def test_what_an_unknown_gpu_can_do_is_not_guessed(finding, gpu):
    found = applied(finding, run(matmul_fp32=64, gpu=gpu))
    assert (found.status, found.saving_ms_per_step) == ("inconclusive", None)
    assert found.advice.startswith("On an NVIDIA GPU of compute capability 8.0 or later")


@pytest.mark.parametrize(
    "gpu", ["NVIDIA A100-SXM4-80GB", "NVIDIA A40", "NVIDIA L4", "NVIDIA GeForce RTX 3090"]
)
@pytest.mark.parametrize("finding", [lower_precision, tf32_off])
def test_ampere_and_later_have_tensor_cores_for_tf32(finding, gpu):
    assert applied(finding, run(matmul_fp32=64, gpu=gpu)).status == "warn"


def test_no_gpu_is_advised_what_it_lacks():
    for entry in gpus.table().gpus:
        name = entry.aliases[0] if entry.aliases else entry.name
        found = gpus.find_gpu(name)
        if found is None:
            continue
        advice = applied(lower_precision, run(matmul_fp32=64, gpu=name)).advice
        assert "bf16" in found.peaks or "dtype=torch.bfloat16" not in advice
        assert "fp8" not in advice
        assert (
            "tf32" in found.peaks or applied(tf32_off, run(matmul_fp32=64, gpu=name)).advice == ""
        )


def test_tf32_saves_all_but_the_ratio_of_its_peak():
    found = applied(tf32_off, run(matmul_fp32=64, matmul_3xtf32=20))
    assert found.status == "warn"
    assert found.saving_ms_per_step == pytest.approx(64 * (1 - H200_FP32_TO_TF32), rel=1e-3)
    assert applied(tf32_off, run(matmul_fp32=4, matmul_3xtf32=60)).status == "pass"


@pytest.mark.parametrize(
    ("finding", "kept"), [(tf32_off, 19.5 / 2 / 156), (lower_precision, 19.5 / 2 / 312)]
)
def test_of_several_gpus_the_one_that_gains_most_is_the_bound(finding, kept):
    ranks = [run(matmul_fp32=64, gpu=gpu) for gpu in ("NVIDIA H200", "NVIDIA A100-SXM4-40GB")]
    found = finding(evidence(ranks[0], replace(ranks[1], rank=1)))
    assert found.saving_ms_per_step == pytest.approx(64 * (1 - kept), rel=1e-3)


@pytest.mark.parametrize(
    ("flags", "status"),
    [
        ({"matmul_precision": "high", "cudnn_allow_tf32": True}, "pass"),
        ({"matmul_precision": "highest", "cudnn_allow_tf32": True}, "warn"),
        ({"matmul_precision": "high", "cudnn_allow_tf32": False}, "warn"),
        ("high", "warn"),
    ],
)
def test_tf32_that_is_allowed_is_not_off(flags, status):
    found = tf32_off(evidence(run(matmul_fp32=64), capture={"flags": flags}))
    assert found.status == status


def test_attention_that_is_not_fused_is_known_by_its_softmax():
    found = applied(attention_unfused, run(softmax=10, other=30, matmul_half=40))
    assert (found.status, found.saving_ms_per_step) == ("warn", pytest.approx(22 + 30))
    assert applied(attention_unfused, run(softmax=4, other=30)).status == "pass"
    assert applied(attention_unfused, run(other=30)).status == "not-applicable"


@pytest.mark.parametrize(
    ("kernels", "ms"),
    [
        ({"softmax": 10, "other": 90}, 48),  # 3.8 times as much at most is attention's
        ({"softmax": 10, "other": 20, "matmul_half": 5}, 35),  # no more products than there are
        ({"softmax": 0.01, "other": 40, "matmul_tf32": 50}, 0.06),
    ],
)
def test_fused_attention_saves_no_more_than_attention_can_take(kernels, ms):
    found = applied(attention_unfused, run(**kernels))
    assert found.saving_ms_per_step == pytest.approx(ms)


def with_attention(rank, fused, *, count=20, **ms):
    """The rank with attention of these ms per step, which fused takes less."""
    spent = {name: each * MS * records.STEPS for name, each in ms.items()}
    found = UnfusedAttention(count=count, class_ns=spent, fused_ns=fused * MS * records.STEPS)
    return replace(rank, summary=replace(rank.summary, attention=found))


def test_attention_with_products_takes_all_between_them_and_leaves_the_rest():
    whole = run(softmax=4, other=50, matmul_half=40)
    rank = with_attention(whole, 8, softmax=4, other=16, matmul_half=6)
    found, rest = applied(attention_unfused, rank), applied(unfused_kernels, rank)
    # Nothing is faster than a quarter of the products.
    assert (found.status, found.saving_ms_per_step) == ("warn", pytest.approx(26 - 2))
    assert found.evidence[0].startswith(
        "26.0 ms per step (26.0 %) from matrix product to matrix product around 2 softmax kernels"
    )
    assert rest.saving_ms_per_step == pytest.approx(54 - 20)
    assert "20.0 ms more belong to attention: `attention-unfused` counts them" in rest.evidence


@pytest.mark.parametrize(("unaligned", "less"), [(0, 18), (3, 18 + 8 / 2 * 3 / 4)])
def test_fused_attention_reads_no_scores_of_an_odd_length(unaligned, less):
    """Of products that read them, aligned ones take a quarter."""
    products = {"matmul_half": 6 - unaligned, "matmul_unaligned": unaligned}
    rank = with_attention(run(softmax=4, other=50, **products), 8, softmax=4, other=16, **products)
    _, changes = attention_unfused.examine(evidence(rank))
    assert changes.speedup["forward"] == pytest.approx(90 / (90 - less), abs=1e-3)


def test_attention_that_is_not_worth_fusing_is_counted_as_element_wise():
    rank = with_attention(run(other=50, softmax=2), 2, softmax=2, other=2, matmul_half=2)
    assert applied(attention_unfused, rank).status == "pass"
    assert applied(unfused_kernels, rank).saving_ms_per_step == pytest.approx(52)


def test_softmax_without_products_counts_beside_a_little_attention_that_has_them():
    """Long masks and dropouts part most softmax kernels from their products."""
    whole = run(softmax=8, other=50, matmul_half=30)
    rank = with_attention(whole, 2, count=10, softmax=2, matmul_half=2)
    found = applied(attention_unfused, rank)
    known, guessed = found.evidence
    assert "around 1 softmax kernel, of" in known
    assert found.status == "warn"  # 2 ms where products are known, and 6 ms of softmax
    assert known.startswith("4.00 ms per step (4.0 %) from matrix product")
    assert guessed.startswith("6.00 ms per step (6.0 %) more in softmax kernels")
    assert found.saving_ms_per_step == pytest.approx(4 - 0.5 + 6 * (1 + 6 / 5 + 19 / 5))
    few = with_attention(run(softmax=3, other=5, matmul_half=30), 2, softmax=2, matmul_half=2)
    assert applied(attention_unfused, few).saving_ms_per_step == pytest.approx(3.5)


def test_layouts_that_change_cost_their_kernels():
    found = applied(memory_format, run(layout=9, other=20))
    assert (found.status, found.saving_ms_per_step) == ("warn", pytest.approx(29))
    few = applied(memory_format, run(layout=4, other=20))
    assert (few.status, few.saving_ms_per_step) == ("pass", None)
    assert applied(memory_format, run()).status == "not-applicable"


def launching(count, names=("multi_tensor_apply",), parts=STEP, phase="optimizer"):
    """A rank whose optimizer has so many kernels, those with most time of these names."""
    rank = run(parts)
    listed = [
        KernelShare(name=name, phase=phase, count=1, total_ns=1, mean_ns=1.0) for name in names
    ]
    facts = records.host(
        phase_kernels={"forward": 50.0, "optimizer": count},
        phase_launch_ns={"forward": 90 * MS * records.STEPS, "optimizer": 30 * MS * records.STEPS},
    )
    return replace(rank, summary=replace(rank.summary, top_kernels=listed, host=facts))


@pytest.mark.parametrize(
    ("rank", "status", "saving"),
    [
        (launching(21.0), "warn", 10),
        (launching(20.0), "pass", None),
        (launching(90.0, ["FusedAdamMathFunctor"]), "pass", None),
        (launching(90.0, ["triton_poi_fused_add_1"]), "pass", None),
        (launching(90.0, ["triton_poi_fused_add_1"], phase="forward"), "warn", 10),
        (launching(90.0, parts={"forward": 80, "idle_host": 20}), "warn", 20),
        (launching(90.0, parts={"forward": 60, "idle_host": 40}), "warn", 30),
        (launching(90.0, parts={"forward": 1_000, "optimizer": 9}), "pass", None),
    ],
    ids=["many", "few", "fused", "compiled", "other fused", "idle", "other idle", "cheap"],
)
def test_an_optimizer_of_many_kernels_could_be_fused(rank, status, saving):
    found = applied(optimizer_launches, rank)
    assert (found.status, found.saving_ms_per_step) == (status, saving)


@pytest.mark.parametrize(
    ("operator", "groups", "kernels", "told"),
    [
        ("aten::_foreach_addcdiv_", 64.0, ["multi_tensor_apply"], True),
        ("aten::_foreach_addcdiv_", 63.0, ["multi_tensor_apply"], False),
        ("aten::_foreach_norm", 64.0, ["multi_tensor_apply"], False),
        ("aten::_fused_adamw_", 295.0, ["FusedAdamMathFunctor"], True),
    ],
)
def test_groups_of_single_parameters_are_named(operator, groups, kernels, told):
    called = {operator: OperatorPace(groups, 20.0, 1.0, 0.1)}
    seen = replace(evidence(launching(300.0, kernels)), called=lambda: called)
    found = optimizer_launches(seen)
    assert found.advice.startswith("Put parameters of equal settings into one group") == told
    assert (f"{groups:.0f} groups of parameters" in " ".join(found.evidence)) == told
    assert ("fused=True" in found.advice) == (kernels == ["multi_tensor_apply"])


def test_what_the_optimizer_has_before_its_update_stays():
    """Norms of gradients that a hook logs, inside of the step as in a closure's."""
    program = Program()
    for _ in range(6):
        program.kernels(["forward"] * 30).kernels(["backward"] * 30, backward=True)
        with program.range("Optimizer.step#AdamW.step"):
            for _ in range(50):
                program.kernel("norm", 4_000).sleep(100_000)
            program.kernels([UPDATE] * 6, ns=4_000)
    report = traceprobe.analyze(program.trace())
    host = report.ranks[0].summary.host
    assert host.phase_kernels["optimizer"] == 56
    assert host.updates.kernels_per_step == 6
    assert host.updates.launch_ns < 1e-2 * host.phase_launch_ns["optimizer"]
    finding = next(f for f in report.findings if f.id == "optimizer-launches")
    assert (finding.status, finding.saving_ms_per_step) == ("pass", None)


def test_only_the_launches_of_an_update_get_fewer():
    whole = launching(90.0)
    updates = Updates(kernels_per_step=30.0, launch_ns=3 * MS * records.STEPS)
    host = replace(whole.summary.host, updates=updates)
    part = replace(whole, summary=replace(whole.summary, host=host))
    fewer = [cheaper_updates(evidence(rank)).fewer["optimizer"] for rank in (whole, part)]
    assert fewer == [FIXED.fused_launches, pytest.approx(1 / (1 - 0.1 * 0.9), abs=0.01)]
    assert applied(optimizer_launches, part).saving_ms_per_step == pytest.approx(10)


def test_the_size_of_the_model_says_how_few_launches_there_could_be():
    facts = {"parameters": 124_439_808, "parameter_tensors": 148}
    found = optimizer_launches(evidence(launching(56.0), workload=facts))
    assert found.evidence == [
        "56 kernels per step in the optimizer",
        "a fused Adam takes about 7 for 124,439,808 parameters in 148 tensors",
    ]


@pytest.mark.parametrize(
    ("size", "precision", "line"),
    [
        (
            50257,
            "bf16",
            "not a multiple of 8, that is of 16 bytes; 50304 is a multiple of 128 bytes",
        ),
        (
            50257,
            "tf32",
            "not a multiple of 4, that is of 16 bytes; 50272 is a multiple of 128 bytes",
        ),
        (50304, "bf16", None),
        (50257, "fp32", None),
    ],
)
def test_a_vocabulary_that_is_not_aligned_is_named(size, precision, line):
    facts = {"vocabulary": size, "settings": {"precision": precision}}
    found = unaligned_matmul(evidence(run(matmul_unaligned=40), workload=facts))
    assert found.evidence[1:] == ([] if line is None else [f"the vocabulary of {size} is {line}"])


def test_half_precision_is_not_told_to_go_lower():
    found = applied(lower_precision, run(matmul_half=70, matmul_fp32=4, other=16))
    assert (found.status, found.saving_ms_per_step) == ("pass", None)


@pytest.mark.parametrize(
    ("gpu", "kept"),
    [
        ("NVIDIA A100-SXM4-80GB", 1 / 8),
        ("NVIDIA GeForce RTX 3090", 1 / 8),
        ("", 1 / 8),
        ("NVIDIA H200", 1 / 16),
    ],
)
def test_unaligned_matrices_keep_a_part(gpu, kept):
    found = applied(unaligned_matmul, run(matmul_unaligned=40, gpu=gpu))
    assert found.status == "warn"
    assert found.saving_ms_per_step == pytest.approx(40 * (1 - kept))
    assert applied(unaligned_matmul, run(matmul_unaligned=4)).status == "pass"


def test_elementwise_kernels_could_be_fused():
    found = applied(unfused_kernels, run(other=16, softmax=5, layout=3, fused=5))
    assert (found.status, found.saving_ms_per_step) == ("warn", pytest.approx(21))
    assert applied(unfused_kernels, run(other=19)).status == "pass"


@pytest.mark.parametrize(("ms", "says"), [(20, "F.embedding"), (5, "torch.compile")])
def test_gradients_of_rows_fetched_by_index_are_no_matter_of_fusion(ms, says):
    fetched = OperatorPace(per_step=1, host_us=100, operations=10, device_ms=ms)
    seen = replace(evidence(run(other=30)), called=lambda: {"aten::_index_put_impl_": fetched})
    assert says in unfused_kernels(seen).advice


def test_what_is_inside_a_whole_graph_is_not_guessed():
    whole = run(other=1, unknown=60)
    listed = [
        KernelShare(name="CUDA graph 7", phase="graph", count=1, total_ns=1, mean_ns=1.0),
    ]
    graphs = replace(whole, summary=replace(whole.summary, top_kernels=listed))
    for rank, words in ((whole, "kernels whose names say nothing"), (graphs, "CUDA graphs only")):
        found = applied(unfused_kernels, rank)
        assert (found.status, found.saving_ms_per_step) == ("inconclusive", None)
        assert words in found.evidence[0]


def test_kernels_of_another_layout_are_counted_once():
    rank = run(layout=9, other=25)
    layout, fusing = applied(memory_format, rank), applied(unfused_kernels, rank)
    assert (layout.status, layout.saving_ms_per_step) == ("warn", pytest.approx(34))
    assert (fusing.status, fusing.saving_ms_per_step) == ("warn", None)
    assert "`memory-format` counts" in fusing.evidence[-1]
    few = run(layout=4, other=25)
    assert applied(unfused_kernels, few).saving_ms_per_step == pytest.approx(25)


def test_findings_about_the_same_time_name_each_other():
    evidences = evidence(run(softmax=20, other=30, matmul_half=40))
    by_id = {f.id: f for f in find_all(evidences)}
    words = "shares its time with {}: their savings do not add up"
    assert by_id["attention-unfused"].evidence[-1] == words.format("`unfused-kernels`")
    assert by_id["unfused-kernels"].evidence[-1] == words.format("`attention-unfused`")
    assert not any("shares its time" in line for line in by_id["optimizer-cost"].evidence)


@settings(max_examples=200, deadline=None)
@given(
    st.fixed_dictionaries({c: st.integers(0, 90) for c in KERNEL_CLASSES}),
    st.lists(st.integers(0, 300), min_size=7, max_size=7).filter(any),
    st.one_of(st.none(), st.integers(1, 3_000)),
    st.sampled_from([(), SLOWED_BY]),
)
def test_no_finding_saves_more_than_the_classes_that_it_removes(
    kernels, times, unprofiled, profiled
):
    names = ("forward", "optimizer", "communication", "h2d", "idle_host", "idle_data_wait", "d2h")
    parts = dict(zip(names, times, strict=True))
    rank = run(parts, **kernels)
    known = evidence(rank, unprofiled_ms=unprofiled, profiled=profiled)
    for found in find_all(known):
        if found.saving_ms_per_step is None:
            continue
        most = sum(kernels.get(c, parts.get(c, 0)) for c in found.saving_of)
        hidden = max((unprofiled or 0) - sum(times), 0)
        if any(names & {*found.saving_of} for names in UNSEEN.values()):
            most += hidden
        if found.id == "data-wait":
            most = max(most, known.verdict.shares["io"] * (unprofiled or 0) - parts["h2d"])
        assert found.saving_of
        assert 0 < found.saving_ms_per_step <= most * (1 + 1e-9)
        assert found.saving_ms_per_step <= sum(times) + hidden


def test_the_optimizer_costs_what_its_kernels_take():
    found = applied(optimizer_cost, run())
    assert (found.status, found.saving_ms_per_step) == ("warn", pytest.approx(10))


def test_recomputation_costs_what_it_takes():
    parts = {"forward": 55, "backward": 30, "recompute": 10, "idle_host": 5}
    for between, saved in ((0, 10), (3, 13), (60, 15)):
        rank = run(parts)
        facts = records.host(phase_launch_ns={"recompute": between * MS * records.STEPS})
        rank = replace(rank, summary=replace(rank.summary, host=facts))
        found = applied(recomputation, rank)
        assert (found.status, found.saving_ms_per_step) == ("warn", pytest.approx(saved))


@pytest.mark.parametrize(
    "finding",
    [
        attention_unfused,
        lower_precision,
        memory_format,
        optimizer_launches,
        tf32_off,
        unaligned_matmul,
        unfused_kernels,
    ],
)
def test_a_run_on_a_cpu_has_no_such_question(finding):
    assert applied(finding, records.rank(STEP)).status == "not-applicable"


def test_the_host_spends_time_between_launches_of_the_same_phase():
    script = Script().range("step 0", -100, 2_900).range("step 1", 2_900, 5_900)
    script.range("step 2", 5_900, 9_000).range("step 3", 9_000, 9_900)
    for origin in (0, 3_000, 6_000, 9_100):
        for name, at in (
            ("forward", 100),
            ("forward", 150),
            ("optimizer", 400),
            ("optimizer", 470),
        ):
            start = origin + at
            script.range(name, start - 5, start + 15)
            script.op("kernel", start + 20, start + 40, (start, start + 10))
    summary = traceprobe.analyze(memory.trace(script.build())).ranks[0].summary
    steps = summary.iterations_used
    assert steps
    assert summary.host.phase_launch_ns == {"forward": 50 * steps, "optimizer": 70 * steps}


@pytest.mark.parametrize(
    ("name", "ms"),
    [
        ("void at::native::batch_norm_backward_kernel<c10::BFloat16>(int)", 0.42),
        ("void at::native::batch_norm_backward_channels_last_kernel<c10::BFloat16>(int)", 0.1),
        ("void at::native::(anonymous namespace)::max_pool_backward_nchw<float, int>(int)", 0.3),
        ("void at::native::(anonymous namespace)::max_pool_backward_nhwc<float, int>(int)", 0.1),
    ],
    ids=["norm in NCHW", "norm in NHWC", "pooling in NCHW", "pooling in NHWC"],
)
def test_what_pytorch_does_in_nchw_becomes_faster_with_the_conversions(name, ms):
    """Normalising as fast as four fifths of them, pooling twice as fast."""
    program = Program()
    for _ in range(8):
        program.kernel("sm90_xmma_fprop", 100_000)
        program.kernel("cudnn::nchwToNhwcKernel", 100_000)
        program.kernels([name], ns=400_000, backward=True)
        with program.range("Optimizer.step#SGD.step"):
            program.kernel(UPDATE, 10_000)
    report = traceprobe.analyze(program.trace())
    found = next(f for f in report.findings if f.id == "memory-format")
    assert found.predicted.ms == pytest.approx(ms, abs=0.02)
