"""What kernels have in common whose tensors have other sizes."""

from __future__ import annotations

import pytest

from traceprobe.model.kernel_families import kernel_family


@pytest.mark.parametrize(
    "names",
    [
        [
            "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_bias_TNT",
            "nvjet_sm90_tst_128x192_64x5_2x1_v_bz_coopB_NNN",
            "ampere_sgemm_128x64_tn",
            "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_64x64_nn>(T)",
        ],
        [
            "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>",
            "void at::native::unrolled_elementwise_kernel<at::native::CUDAFunctor_add<float>>",
            "void at::native::elementwise_kernel<128, 2, at::native::CUDAFunctor_add<float>>",
        ],
        [
            "void <unnamed>::softmax_warp_forward<float, float, float, 10, (bool)0, (bool)0>(T)",
            "void at::native::<unnamed>::cunn_SoftMaxForward<4, float, float, float>(T)",
        ],
        [
            "void at::native::<unnamed>::GammaBetaBackwardCUDAKernelTemplate<float, float, 32>",
            "void at::native::(anonymous namespace)::GammaBetaBackwardCUDAKernelTemplate<T>",
        ],
    ],
    ids=["products", "element-wise", "softmax", "arguments of a template"],
)
def test_kernels_of_one_family(names):
    assert len({kernel_family(name) for name in names}) == 1


def test_kernels_that_do_something_else_are_of_other_families():
    names = [
        "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_bias_TNT",
        "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>",
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>",
        "void at::native::<unnamed>::vectorized_layer_norm_kernel<float, float>(int)",
        "void at::native::<unnamed>::layer_norm_grad_input_kernel_vectorized<float, float>(int)",
        "void ck_tile::kentry<1, ck_tile::Layernorm2dFwd<float>>(int)",
        "void ck_tile::kentry<1, ck_tile::Rmsnorm2dFwd<float>>(int)",
    ]
    assert len({kernel_family(name) for name in names}) == len(names)
