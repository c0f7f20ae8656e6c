"""Kernels of the forward pass that the backward pass launches again, told by those that say so."""

from __future__ import annotations

import polars as pl
import pytest

from traceprobe.model.codes import UNKNOWN, Kind
from traceprobe.model.taxonomy import Phase
from traceprobe.timeline.recomputed import computed_again

NAMES = {
    "A": "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128_kernel0_0",
    "a": "cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_26_64x64x128_kernel0_0",
    "L": "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_bias_TNT",
    "d": "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT",
    "w": "nvjet_sm90_tst_192x192_64x3_1x2_h_bz_coopB_splitK_NTN",
    "n": "triton_per_fused__to_copy_add_native_layer_norm_view_8",
    "g": "triton_poi_fused_gelu_view_9",
    "m": "Memset (Device)",
    "p": "triton_poi_fused__scaled_dot_product_cudnn_attention_nll_loss_forward_3",
    "N": "void at::native::batch_norm_collect_statistics_kernel<at::native::Var, float, float>",
    "b": "void at::native::batch_norm_backward_kernel<float, float, float, int>",
    "C": "sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize64x64x64",
    "W": "sm90_xmma_wgrad_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize64x64x64",
    "<": "void cudnn::engines_precompiled::nchwToNhwcKernel<float, float, float>",
    ">": "void cudnn::engines_precompiled::nhwcToNchwKernel<float, float, float>",
    "r": "void at::native::vectorized_elementwise_kernel<4, at::native::clamp_min_scalar<float>>",
}
LETTERS = list(NAMES)
STEP, AUTOGRAD, REPLICA = 1, 2, 3


def told(forward, backward, thread=AUTOGRAD, forward_thread=STEP, names=NAMES, grids=None):
    """What of a backward pass is computed again, by letter, `.` where it is not.

    Args:
        grids: blocks of the kernels of the backward pass, where they are others.
    """
    text = forward + backward
    ahead = len(forward)
    ops = pl.DataFrame(
        {
            "kind": [int(Kind.MEMSET if letter == "m" else Kind.KERNEL) for letter in text],
            "device": [0] * len(text),
            "thread": [forward_thread] * ahead + [thread] * len(backward),
            "launch_t0": range(len(text)),
            "name": [LETTERS.index(letter) for letter in text],
            "grid": [132] * ahead + (grids or [132] * len(backward)),
        }
    )
    phase = pl.Series([int(Phase.FORWARD)] * ahead + [int(Phase.BACKWARD)] * len(backward))
    again = computed_again(ops, list(names.values()), phase.to_numpy(), STEP)
    assert not again[:ahead].any()
    found = again[ahead:].tolist()
    return "".join(letter if each else "." for letter, each in zip(backward, found, strict=True))


def test_products_of_the_forward_pass_around_its_attention_and_all_between_run_again():
    assert told("nLAnLgL", "dwnLAnLgLnwdaw") == "...LAnLgL....."


def test_a_layer_whose_last_kernels_are_not_needed_again():
    assert told("LALgL", "ngLAgLgdwdaw") == "..LAgL......"


def test_memory_that_is_set_before_a_kernel_goes_with_it():
    assert told("LmAL", "dmLmALmdmaw") == ".mLmAL....."


def test_convolutions_whose_normalisation_runs_again_do_too():
    assert told("CNrCNr", "WbCNrCNrbWrbW") == "..CNrCN......"


def test_the_gradient_of_a_transposed_convolution_is_none_that_runs_again():
    assert told("CNrC", "CWbCNrbW") == "...CN..."


def test_conversions_of_the_layout_go_with_their_convolution():
    assert told("<C>N", "b<W><C>Nb<W>") == "....<C>N...."


@pytest.mark.parametrize(
    "backward",
    [
        pytest.param("bCWbCW", id="convolutions like those of the forward pass"),
        pytest.param("CNC", id="no gradient, so no backward pass"),
    ],
)
def test_nothing_is_told_without_a_normalisation_that_runs_again(backward):
    assert told("CNrCN", backward) == "." * len(backward)


@pytest.mark.parametrize(
    "backward",
    [
        pytest.param("dwnagdw", id="only gradients"),
        pytest.param("dLLwnadL", id="products like those of the forward pass, and no attention"),
        pytest.param("dwpLanw", id="a kernel that is named for attention and a loss"),
        pytest.param("LALgL", id="no gradient of attention, so no backward pass"),
    ],
)
def test_nothing_is_told_without_attention_that_runs_again(backward):
    assert told("nLAnLgL", backward) == "." * len(backward)


def test_kernels_with_other_blocks_are_of_something_else():
    assert told("LAL", "LALdaw", grids=[132, 132, 99, 132, 132, 132]) == "LA...."
    assert told("LAL", "LALdaw", grids=[132, 99, 132, 132, 132, 132]) == "......"


def test_what_gradients_launch_more_often_than_the_forward_pass_is_theirs():
    assert told("LAd", "LAdadddw") == "LA......"


def test_replicas_that_run_both_passes_on_one_thread_tell_nothing():
    assert told("LAL", "LALda", thread=REPLICA, forward_thread=REPLICA) == "....."


def test_the_step_thread_may_launch_another_forward_pass_behind_the_backward_pass():
    assert told("LAL", "LALda", thread=STEP, forward_thread=REPLICA) == "....."


def test_what_no_call_launched_tells_nothing():
    assert told("LAL", "LALda", thread=UNKNOWN) == "....."


@pytest.mark.parametrize(
    ("forward", "backward"),
    [
        (
            "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4>>",
            "void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Traits<128>>",
        ),
        (
            "fmha_cutlassF_bf16_aligned_64x128_rf_sm80",
            "fmha_cutlassB_bf16_aligned_128x128_k64_sm80",
        ),
        (
            "void cutlass::device_kernel<flash::enable_sm90<flash::FlashAttnFwdSm90<int>>>",
            "void cutlass::device_kernel<flash::enable_sm90<flash::FlashAttnBwdSm90<int>>>",
        ),
        ("attn_fwd", "attn_bwd_dkdv"),
    ],
)
def test_fused_attention_by_the_names_of_other_libraries(forward, backward):
    names = {**NAMES, "A": forward, "a": backward}
    assert told("LAL", "dLALaw", names=names) == ".LAL.."


@pytest.mark.parametrize(
    ("forward", "backward"),
    [
        (
            "void cudnn::bn_fw_tr_1C11_singleread<float, 512, true, 1, 2, 0>",
            "void cudnn::bn_bw_1C11_singleread_fp16<512, 1, 1, 2, 20, true>",
        ),
        (
            "void cudnn::batchnorm_fwtr_nhwc_semiPersist<__half, __half, float, 512>",
            "void cudnn::batchnorm_bwtr_nhwc_semiPersist<__half, __half, float, 512>",
        ),
        (
            "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>",
            "void at::native::(anonymous namespace)::layer_norm_grad_input_kernel_vectorized<T>",
        ),
        (
            "void at::native::(anonymous namespace)::RowwiseMomentsCUDAKernel<float>",
            "void at::native::(anonymous namespace)::GammaBetaBackwardCUDAKernel1<float>",
        ),
        (
            "void (anonymous namespace)::softmax_warp_forward<float, float, float, 10, false>",
            "void (anonymous namespace)::softmax_warp_backward<float, float, float, 10, false>",
        ),
        ("_rms_norm_forward_kernel", "_rms_norm_backward_kernel"),
        (
            "void transformer_engine::normalization::ln_fwd_tuned_kernel<Kernel_traits<float>>",
            "void transformer_engine::normalization::ln_bwd_tuned_kernel<Kernel_traits<float>>",
        ),
    ],
)
def test_normalisation_and_softmax_by_the_names_of_libraries(forward, backward):
    names = {**NAMES, "A": forward, "a": backward}
    assert told("LAL", "dLALaw", names=names) == ".LAL.."
