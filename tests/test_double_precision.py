"""Kernels that compute with 64 bits: by types of operators, by names, and what the finding says."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace

import pytest
from msgspec import UNSET
from msgspec.structs import replace

import traceprobe
from tests import records
from tests.builders import kineto
from tests.builders.scenario import Script
from tests.evidence import evidence
from tests.report_factory import MS
from traceprobe.capture.profiler.double_code import double_code
from traceprobe.findings.double_precision import double_precision
from traceprobe.records.double_precision import DoublePrecision

COPY = (
    "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda"
    "(at::TensorIteratorBase&)::{lambda()#3}::operator()() const::{lambda(double)#1}, char*>(int)"
)
TRITON = "triton_red_fused__log_softmax_0"


def noted(*types, size=64):
    """Tensors of these types, as PyTorch notes them."""
    return {"Input Dims": [[size, size]] * len(types), "Input type": list(types)}


def summary_of(folder, *kernels, compiled=None, operator="aten::op"):
    """Of steps of 1 ms with kernels of 100 µs, each with what its operator was called with.

    Args:
        compiled: what the recording noted of kernels of torch.compile.
    """
    script = Script()
    for step in range(4):
        t = MS * (step + 1)
        script.range(f"ProfilerStep#{step}", t, t + 999_000)
        for number, (name, operands) in enumerate(kernels):
            at = t + 120_000 * (number + 1)
            if operands is not None:
                script.operator(operator, at, at + 9_000, operands=operands)
            script.op("kernel", at + 10_000, at + 110_000, (at + 1_000, at + 2_000), name=name)
    path = kineto.write(script.build(), folder / "trace.json")
    if compiled is not None:
        notes = {"marked": True, "breaks": 0, "lines": [], **compiled}
        document = json.loads(path.read_text())
        path.write_text(json.dumps({**document, "traceprobe": {"compiler": notes}}))
    return traceprobe.analyze(traceprobe.load(path)).ranks[0].summary


@pytest.mark.parametrize(
    ("kernel", "counts"),
    [
        ("volta_sgemm_128x128_tn", False),
        ("sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n", False),
        ("void at::native::CatArrayBatchedCopy<float, unsigned int, 2, 64>(float*)", False),
        ("void at::native::vectorized_elementwise_kernel<4, Add<c10::BFloat16>>(int)", False),
        ("void at::native::unrolled<at::native::direct_copy::{lambda(float)#1}>(int)", False),
        ("void cutlass::Kernel<cutlass_80_tensorop_s16816gemm_bf16_64x64>(Params)", False),
        ("fused_kernel_0", True),
        ("volta_dgemm_128x64_nn", True),
        ("void vector_fft<512u, EPT<8u>>(kernel_arguments_t<unsigned int>)", True),
    ],
)
def test_a_kernel_that_names_another_type_is_not_told_by_its_operator(tmp_path, kernel, counts):
    """As of an operator that is called with labels of 64 bits, or that casts."""
    summary = summary_of(tmp_path, (kernel, noted("float", "double")))
    assert (summary.double_precision is not UNSET) is counts


@pytest.mark.parametrize(
    "operator", ["CompiledFunction", "CompiledFunctionBackward", "Torch-Compiled Region: 0/0"]
)
def test_a_whole_graph_tells_of_its_kernels_only_where_most_of_it_is_double(tmp_path, operator):
    labels = noted("float", "double")
    assert summary_of(tmp_path, (TRITON, labels), operator=operator).double_precision is UNSET
    assert summary_of(tmp_path, (TRITON, labels)).double_precision is not UNSET
    mostly = noted("float", "double", "double")
    assert summary_of(tmp_path, (TRITON, mostly), operator=operator).double_precision is not UNSET


def test_operators_with_tensors_of_64_bits_tell_of_compiled_kernels_too(tmp_path):
    double, half = noted("c10::BFloat16", "double"), noted("c10::BFloat16", "c10::BFloat16")
    summary = summary_of(tmp_path, (TRITON, double), ("gemm_bf16", half))
    found = summary.double_precision
    assert found.class_ns == {"fused": summary.steps * 100_000}
    assert (found.kernels, found.typed) == ([TRITON], True)


def test_a_number_of_64_bits_is_no_tensor_to_compute_with(tmp_path):
    """A loss, or a learning rate."""
    assert (
        summary_of(tmp_path, (TRITON, noted("float", "double", size=1))).double_precision is UNSET
    )


def test_a_kernel_that_also_runs_in_32_bits_is_counted_by_its_calls_and_not_named(tmp_path):
    kernels = (TRITON, noted("double")), (TRITON, noted("float"))
    summary = summary_of(tmp_path, *kernels)
    found = summary.double_precision
    assert (found.class_ns, found.kernels) == ({"fused": summary.steps * 100_000}, [])


@pytest.mark.parametrize(
    "name",
    [
        COPY,
        COPY.replace("{lambda(double)#1}", "[lambda(double) (instance 1)]"),
        "void at::native::vectorized_elementwise_kernel<2, at::native::FillFunctor<double>, char*>",
        "void (anonymous namespace)::cunn_SoftMaxForward<2, double, double, double, Epilogue>(int)",
        "void <unnamed>::softmax_warp_forward<(int)4, double, double>(int)",
        "volta_dgemm_64x64_nn",
        "cutlass_80_tensorop_d884gemm_64x64_16x4_nt_align1",
    ],
)
def test_names_tell_where_operators_do_not(name, tmp_path):
    found = summary_of(tmp_path, (name, None), (TRITON, None)).double_precision
    assert (found.kernels, found.typed) == ([name], False)


@pytest.mark.parametrize(
    "name",
    [
        "multi_tensor_apply_kernel<FusedAdamMathFunctor<float, 4>, float const*, double, double>",
        "uniform_and_transform<float, uniform_kernel(at::TensorIteratorBase&, double, double)>",
        "void normal_kernel<float, 4, double2>",
        "vectorized_elementwise_kernel<4, nan_to_num_kernel_cuda(int, std::optional<double>)>",
        "elementwise_kernel<upsample(int, c10::ArrayRef<double>)>",
        "void at::native::elementwise_kernel<128, pow_tensor_scalar_kernel_impl<float, double>>",
        "triton_poi_fused_double_mul_0",
    ],
)
def test_numbers_of_a_launch_are_no_precision_of_its_kernel(name, tmp_path):
    assert summary_of(tmp_path, (name, None)).double_precision is UNSET


def test_what_was_noted_of_compiled_kernels_tells_where_their_names_do_not(tmp_path):
    noted = {"double": [TRITON]}
    summary = summary_of(tmp_path, (TRITON, None), ("triton_poi_fused_1", None), compiled=noted)
    found = summary.double_precision
    assert (found.kernels, found.typed) == ([TRITON], True)
    assert found.class_ns == {"fused": summary.steps * 100_000}


@pytest.mark.parametrize("compiled", [{"double": []}, {}])
def test_no_note_of_a_compiled_kernel_is_no_double_one(tmp_path, compiled):
    assert summary_of(tmp_path, (TRITON, None), compiled=compiled).double_precision is UNSET


def generated(folder, name, *kernels):
    """A module as inductor writes it: each kernel is a name and a line of its text."""
    texts = (
        f"{n} = async_compile.triton('{n}', '''\n{line}\n''', device_str='cuda')\n"
        for n, line in kernels
    )
    path = folder / f"{name}.py"
    path.write_text("from torch import empty\n" + "\n".join(texts))
    return SimpleNamespace(__file__=str(path))


def test_texts_of_generated_kernels_tell_of_64_bits(tmp_path, monkeypatch):
    made = [
        generated(
            *(tmp_path, "one"),
            ("triton_red_0", "tmp1 = tmp0.to(tl.float64)"),
            ("triton_poi_1", "tmp1 = tmp0.to(tl.float32)"),
            ("triton_both_2", "tmp1 = tmp0.to(tl.float64)"),
        ),
        generated(
            *(tmp_path, "other"),
            ("triton_both_2", "tmp1 = tmp0 + 1"),
            ("triton_per_3", "'signature': {'in_ptr0': '*fp64', 'xnumel': 'i32'}"),
        ),
    ]
    cache = SimpleNamespace(PyCodeCache=SimpleNamespace(modules=made))
    monkeypatch.setitem(sys.modules, "torch._inductor.codecache", cache)
    assert double_code() == ["triton_red_0", "triton_per_3"]
    monkeypatch.delitem(sys.modules, "torch._inductor.codecache")
    assert double_code() == []


def rank(ms, *, typed=True, fused=0):
    """A rank of 100 ms a step with such kernels of so many ms."""
    classes = {"other": ms * MS * records.STEPS}
    spent = {"other": 50 * MS * records.STEPS, "fused": fused * MS * records.STEPS}
    parts = {"forward": 40, "backward": 50, "optimizer": 10}
    made = records.rank(parts, kernel_ns=spent)
    found = DoublePrecision(class_ns=classes, kernels=[], typed=typed)
    return replace(made, summary=replace(made.summary, double_precision=found))


def test_64_bits_cost_all_they_take_at_most_and_half_at_least():
    found = double_precision(evidence(rank(20, fused=30)))
    assert (found.status, found.saving_ms_per_step) == ("warn", pytest.approx(20))
    assert "at least 10.0 ms less" in found.evidence[0]
    assert double_precision(evidence(rank(4))).status == "pass"


def test_what_fused_kernels_do_not_tell_may_be_saved_as_well():
    found, changes = double_precision.examine(evidence(rank(20, typed=False, fused=30)))
    assert found.saving_ms_per_step == pytest.approx(50)
    assert "30.0 ms in fused kernels may compute with 64 bits as well" in found.evidence[0]
    assert changes is None


def test_a_run_without_such_kernels_has_no_such_question():
    made = records.rank({"forward": 50, "backward": 50}, kernel_ns={"other": MS})
    assert double_precision(evidence(made)).status == "not-applicable"
