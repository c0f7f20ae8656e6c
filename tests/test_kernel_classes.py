"""What kernels are for, told by their names: names as libraries give them."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from msgspec import UNSET
from msgspec.structs import replace

import traceprobe
from tests.analyses import report_of, trace_of
from traceprobe.model import kernel_classes
from traceprobe.model.codes import Kind
from traceprobe.model.taxonomy import Phase
from traceprobe.timeline import kernel_time

NAMES = {
    "matmul_fp32": [
        "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x64x8_stage3_warpsize1x4x1_ffma",
        "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x256_8x4_nt_align1>(Params)",
        "volta_sgemm_64x64_nt",
        "ampere_sgemm_32x32_sliced1x4_tn",
        "void convolveNd_dgrad_float_engine<float, 3, 128, 6, 8, 3, 3, 5, false>(int)",
        "cudnn_infer_volta_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1",
        "fmha_cutlassF_f32_aligned_64x64_rf_sm75(PyTorchMemEffAttention::AttentionKernel<float>)",
    ],
    "matmul_3xtf32": [
        "fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<float>)",
        "fmha_cutlassB_f32_aligned_64x64_k64_sm80(PyTorchMemEffAttention::AttentionBackwardKernel)",
    ],
    "matmul_tf32": [
        "sm80_xmma_wgrad_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize64x64x64",
        "sm90_xmma_gemm_f32f32_tf32f32_f32_nt_n_tilesize128x128x32_warpgroupsize1x1x1",
        "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_64x128_32x3_tn_align4>(Params)",
        "nvjet_sss_128x128_32x4_1x1_h_bz_NNT",
        "nvjet_sm100_sss_128x128_32x4_1x1_h_bz_NNT",
        "cutlass3x_sm100_tensorop_s128x128x8tf32gemm_f32_f32_f32_f32_f32_2sm_epi_tma_ptr_array",
    ],
    "matmul_half": [
        "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT",
        "nvjet_tst_192x192_64x4_2x1_v_bz_coopB_bias_TNN",
        "ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_64x3_tn",
        "volta_h884gemm_64x64_ldg8_nn",
        "volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_tn",
        "volta_fp16_s884cudnn_fp16_256x128_ldg8_relu_exp_small_nhwc_tn_v1",
        "fmha_cutlassB_f16_aligned_64x64_k64_sm70(PyTorchMemEffAttention)",
        "turing_fp16_s1688gemm_fp16_128x128_ldg8_f2f_tn",
        "turing_h1688gemm_128x128_ldg8_tn",
        "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x4_nt",
        "nvjet_sm100_tst_32x64_64x16_4x2_2cta_h_bz_splitK_bias_TNN",
        "cutlass3x_sm90_tensorop_s64x128x16gemm_bf16_bf16_f32_bf16_bf16_128x128x64_0_tnn_align8",
        "cutlass3x_sm100_tensorop_s64x128x16gemm_f16_f16_f32_f16_f16_64x128x64_1x1x1_0_nnn_align8",
        "cutlass3x_sm120_bstensorop_s16x8x32gemm_ue8m0xe4m3_ue8m0xe4m3_f32_void_e5m2_pingpong_q",
        "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<"
        "flash::CollectiveMainloopFwdSm90<2, 128, cutlass::bfloat16_t, float>>>>",
        "cudnn_generated_fort_native_sdpa_sm100_flash_fprop_f16_knob_7_128x128x128_4x1x1",
        "sm90_xmma_dgrad_implicit_gemm_indexed_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize256x64",
        "cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_26_64x64x64",
        "void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, cutlass::bfloat16_t>>",
        "Cijk_Ailk_Bjlk_BBS_BH_Bias_HAS_SAV_UserArgs_MT128x64x32_MI32x32x1_SN",
        "bmm_MxE4m3_MxE2m1MxE4m3_Fp32_t128x16x256u2_s3_et128x16_m128x16x32",
    ],
    "matmul_unaligned": [
        "void cutlass::Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_tn_align1>(Params)",
        "void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_256x64_16x4_tn_align1>(Params)",
    ],
    "matmul_unknown": [
        "cudnn_generated_fort_native_sm80_convFwd_knob_21_128x128x32_4_0",
        "ampere_gcgemm_64x64_nt",
        "nvjet_sm100_ooohs_128x64_256x4_1x2_h_bz_TNT",
        "nvjet_dsd_64x64_16x4_1x1_h_bz_NNT",
    ],
    "fused": [
        "void LSTM_elementWise_bp1<float, float, float>(int, int, float*, float*)",
        "void elemWiseRNNcell<float, float, float, (cudnnRNNMode_t)2, (cudnnRNNBiasMode_t)2>(int)",
        "void GENERIC_elementWise_bp2<float, float, float, 4, (cudnnRNNBiasMode_t)2>(int, int)",
        "triton_poi_fused_gelu_view_8",
        "triton__0d1d2d3d4d5d6d",
        "triton_tem_fused_addmm_mm_3",  # a product, but no name says in which precision
        "triton_red_fused__log_softmax_nll_loss_forward_12",
    ],
    "softmax": [
        "void (anonymous namespace)::softmax_warp_forward<float, float, float, 10, false, false>",
        "void <unnamed>::softmax_warp_backward<float, float, float, (int)10, (bool)0, (bool)0>(T2)",
        "void at::native::cunn_SoftMaxForward<4, float, float, float, SoftMaxForwardEpilogue>(int)",
        "void scaled_upper_triang_masked_softmax_warp_forward<c10::Half, c10::Half, float, 10>(T2)",
        "triton_per_fused__softmax_backward_data__to_copy_transpose_view_9",
    ],
    "layout": [
        "void cudnn::engines_precompiled::nchwToNhwcKernel<__half, __half, float, false>(Params)",
        "void cudnn::fusion::nhwcToNchwKernel<unsigned short, unsigned short, float, false>(T)",
    ],
    "other": [
        "void (anonymous namespace)::softmax_warp_forward<float, float, float, 9, true, false>",
        "void <unnamed>::softmax_warp_backward<float, float, float, (int)9, (bool)1, (bool)0>(T2)",
        "void at::native::cunn_SoftMaxBackward<8, float, float, float, LogSoftMaxBackwardEpilogue>",
        "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add>(int)",
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>(float)",
        "void cublasLt::splitKreduce_kernel<32, 16, int, float, float>(cublasLt::Params)",
        "void multi_tensor_apply_kernel<TensorListMetadata<4>, AdamFunctor<float>>(long)",
    ],
    "unknown": [
        "CUDA graph 7",
        "my_kernel(float*, int)",
        "_fwd_kernel",
        "void sim::advance_particles<double>(Particle*)",
        "void scanner::dispatch<128>(int4*)",
        "gamma_correct_kernel",
        "_state_passing_fwd_kernel",
        "cutoff_address_kernel",  # neither "off" nor "add" is a word of it
        "void moe::dev::finalize::finalizeKernelVecLoad<cutlass::bfloat16_t, 4>(int)",
        "void dot_kernel<float, 128, cublasDotParams<cublasGemvTensorStridedBatched<float>>>(int)",
        "lambda_dispatch_kernel",
        "scandal_kernel",
    ],
}
ROCM = {
    "matmul_half": [
        "Cijk_Ailk_Bljk_BBS_BH_MT64x64x64_MI16x16x16x1_SN_1LDSB0_APM1_ABV0_ACED0_AF0EM1",
        "Cijk_Alik_Bljk_HHS_BH_Bias_HAS_SAV_UserArgs_MT256x128x32_MI16x16x1_SN_LDSB1",
        "Cijk_Ailk_Bljk_B_BS_BH_Bias_HA_S_SAV_UserArgs_MT64x288x64_MI16x16x1_SN_LDSB1",
        "Custom_Cijk_Alik_Bljk_F8B8BS_BH_Bias_shortname1_gfx942",
        "igemm_fwd_gtcx3_nhwc_bf16_bx0_ex1_bt128x128x32_wt32x32x8_ws1x1_wr2x2_ta1x8x2x1",
        "_ZN2ck16tensor_operation6device37kernel_batched_gemm_xdlops_bwd_weightINS_47"
        "GridwiseGemm_bk0mk1_bk0nk1_mn_xdlops_bwd_weightILi64EttftLNS_25InMemoryDataOperationEnumE1E",
        "_ZN2ck16tensor_operation6device12_GLOBAL__N_149kernel_grouped_conv_fwd_multiple_abd_xdl_"
        "cshuffleINS_34GridwiseGemmMultipleD_xdl_cshuffleItttftNS_5TupleIJEEEtNS0_12element",
        "void ck::kernel_gemm_xdl_cshuffle_v3<ck::GridwiseGemmMultiD_ABScale_xdl_cshuffle_v3<"
        "ck::tensor_layout::gemm::RowMajor, ck::f8_fnuz_t, ck::f8_fnuz_t, float>>(int)",
        "void ck_tile::kentry<256, 1, ck_tile::FmhaBwdDQDKDVKernel<ck_tile::BlockFmhaBwdPipeline<"
        "unsigned short, unsigned short>>>(ck_tile::FmhaBwdDQDKDVKernel::Kargs)",
        "aiter::fmha_fwd_hd128_bf16_causal_group",
        "aiter::fmha_bwd_hd128_bf16_causal_a32_psskddv",
        "aiter::mla_dec_stage1_bf16_a16w16_subQ16_mqa16",
        "_ZN5aiter37fmha_fwd_hd128_bf16_causal_rtna_groupE",
        "void wvSplitK_hf_sml_<__hip_bfloat16, 64, 2, 16, 8, 2, 1>(int, int)",
        "miopenSp3AsmConv_v30_3_1_gfx9_fp16_dot2_edc_f2x3_stride1",
    ],
    "matmul_fp32": [
        "Cijk_Ailk_Bljk_SB_MT128x128x16_MI32x32x2x1_SN_1LDSB0",
        "Cijk_Ailk_Bljk_S_B_Bias_HA_S_SAV_UserArgs_MT16x16x128_MI16x16x1_SN_LDSB1",
        "miopenSp3AsmConv_v21_1_2_gfx9_fp32_f2x3_stride1",
    ],
    "matmul_unknown": [
        "Cijk_Ailk_Bljk_DB_MT64x64x16_MI16x16x4x1_SN",
        "attn_fwd",
        "bwd_kernel_dk_dv",
        "naive_conv_nonpacked_fwd_nchw_ushort_double_ushort",
        "void ck_tile::kentry<1, ck_tile::GroupedGemmKernel<ck_tile::GemmSpatiallyLocalTile>>(int)",
        "void ck_tile::kentry<1, ck_tile::UnifiedAttentionKernel<ck_tile::Pipeline>>(int)",
    ],
    "layout": ["batched_transpose_16x64_pack_1x4_ediv_1x2_half", "batched_transpose_256x4_half"],
    "other": [
        "void ck_tile::kentry<1, ck_tile::Rmsnorm2dFwd<ck_tile::Rmsnorm2dFwdPipelineOnePass>>(int)",
        "SubTensorOpWithScalar1d",
        "Im2d2Col_v2",
        "Op2dTensorGeneric",
        "MIOpenBatchNormBwdSpatialFinalDScaleDBias",
        "transpose_NCHW2CNHW_V2_2D_WG_off64",
        "void rocprim::detail::trampoline_kernel<rocprim::detail::target_arch>(int)",
        "_ZN7rocprim6detail17trampoline_kernelINS0_14default_configE",
        "__amd_rocclr_fillBufferAligned",
        "__amd_rocclr_copyBuffer",
    ],
    "fused": ["triton_poi_fused_gelu_view_8"],
    "unknown": ["ck_tile::kentry", "void my::kentry<1, Gemm>(int)"],
}
MATRIX_UNITS = [
    ("Cijk_Ailk_Bljk_SB_MT128x128x16_MI32x32x2x1_SN_1LDSB0", True),  # fp32, and yet on them
    ("Custom_Cijk_Alik_Bljk_BBS_BH_MT64x64x64_MI16x16x16x1_SN", True),
    ("Cijk_Ailk_Bljk_SB_MT64x64x8_SE_1LDSB0_TT4_4_WG16_16_1", False),
    ("volta_sgemm_64x64_nt", False),
    ("nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT", True),
    ("attn_fwd", None),
    ("triton_poi_fused_gelu_view_8", None),
]
FAMILIES = {
    "other": [
        "void at_cuda_detail::cub::DeviceRadixSortOnesweepKernel<at_cuda_detail::cub::Policy<int>>",
        "void thrust::cuda_cub::core::_kernel_agent<thrust::cuda_cub::__parallel_for::Agent>(int)",
        "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, 512, true>(cudnnTensorStruct)",
        "void cuApplyLayerNorm<float, float, c10::Half>(c10::Half*, float*)",
        "_rms_norm_forward_kernel",
        "_layer_norm_bwd_dwdb",
        "void layer_norm::ln_fwd_kernel<layer_norm::Kernel_traits<c10::BFloat16>>(FwdParams)",
        "MIOpenBatchNormFwdTrainSpatial",
        "SubTensorOpWithCastTensor1d",
        "rotary_kernel",
        "void (anonymous namespace)::elementwise_kernel_with_index<int, at::native::arange>(int)",
        "void fbgemm_gpu::permute_2D_data_kernel<false, long, long>(int)",
        "void cunn_ClassNLLCriterion_updateOutput_kernel<float, float>(float*)",
        "void vllm::moe::topkGatingSoftmax<4, 64, 4, 16, int>(float const*)",
        "void layer_norm_grad_input_gamma_beta_kernel<float>(float*)",
        "void tensorrt_llm::kernels::quantize_with_block_size<2, __nv_bfloat16>(int)",
        "void epilogue::impl::globalKernel<float, float, true>(int, cublasLtEpilogue_t, int)",
        "void flashinfer::norm::RMSNormKernel<8, __nv_bfloat16>(__nv_bfloat16*)",
        "void at::native::vectorized_elementwise_kernel<4, cutlass::bfloat16_t>(int)",
        "unfused_bias_add",
    ],
    "fused": [
        "CudaCodeGen::kernel2(CudaCodeGen::Tensor<float, (int)5>)",
        "nvfuser_pointwise_f0_c1_r0_g0",
        "_swiglu_forward_kernel",
        "liger_cross_entropy_kernel",
        "std::enable_if<(8>0), void>::type vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>(int)",
        "void cudnn::fusion::compute_dot_do_o_specialized<true, __half, 128>(float*)",
        "void causal_conv1d_fwd_kernel<Causal_conv1d_fwd_kernel_traits<128, 4, c10::BFloat16>>",
        "void selective_scan_fwd_kernel<Selective_Scan_fwd_kernel_traits<128, 16>>(SSMParamsBase)",
        "void transformer_engine::cast_transpose_general_kernel<8, 8, float>(int)",
        "void split_embedding_codegen_forward_unweighted_kernel<float, float>(int)",
    ],
    "layout": ["batched_transpose_32x32_half"],
    "matmul_half": [
        "void wgmma_bf16_mainloop(int)",
        "_attn_fwd_bf16",
        "void flashinfer::BatchPrefillWithPagedKVCacheKernel<__nv_bfloat16>(int)",
    ],
    "matmul_unknown": ["_attn_bwd_dkdv", "void imma_mainloop(int)"],
}
"""By convention rather than by a word of PyTorch's, and names that look like another class."""


@pytest.mark.parametrize(
    ("expected", "name"),
    [(c, n) for table in (NAMES, ROCM, FAMILIES) for c, names in table.items() for n in names],
)
def test_a_kernel_is_known_by_its_name(expected, name):
    assert kernel_classes.kernel_class(name) == expected


def test_time_adds_up_without_the_optimizer_and_without_collectives():
    rows = [
        (Kind.KERNEL, Phase.FORWARD, 0, 0, 5),
        (Kind.KERNEL, Phase.BACKWARD, 0, 10, 17),
        (Kind.KERNEL, Phase.BACKWARD, 1, 15, 21),
        (Kind.KERNEL, Phase.OPTIMIZER, 1, 20, 90),
        (Kind.KERNEL, Phase.INPUT, 1, 20, 90),
        (Kind.COMM, Phase.UNATTRIBUTED, 2, 0, 50),
    ]
    names = ["volta_sgemm_64x64_nt", "at::copy", "ncclDevKernel_AllReduce"]
    found = kernel_time.time_by_class(ops_of(rows), names, np.array([0, 100]), np.array([0]))
    assert {name: ns for name, ns in found.items() if ns} == {"matmul_fp32": 12, "other": 4}


def test_an_update_that_a_graph_replays_is_no_kernel_of_forward_or_backward_pass():
    rows = [
        (Kind.KERNEL, Phase.GRAPH, 0, 0, 5),
        (Kind.KERNEL, Phase.GRAPH, 1, 5, 9),
        (Kind.KERNEL, Phase.BACKWARD, 1, 9, 10),
    ]
    names = ["at::add", "void at::native::multi_tensor_apply_kernel<FusedAdamMathFunctor>(x)"]
    found = kernel_time.time_by_class(ops_of(rows), names, np.array([0, 100]), np.array([0]))
    assert {name: ns for name, ns in found.items() if ns} == {"other": 6}


def ops_of(rows):
    return pl.DataFrame(
        [[int(kind), int(phase), *rest] for kind, phase, *rest in rows],
        schema=["kind", "phase", "name", "t0", "t1"],
        orient="row",
    )


def test_kernels_that_run_at_once_take_the_device_once():
    rows = [
        (Kind.KERNEL, Phase.BACKWARD, 0, 0, 100),
        (Kind.KERNEL, Phase.BACKWARD, 1, 10, 30),
        (Kind.KERNEL, Phase.BACKWARD, 1, 90, 130),
        (Kind.KERNEL, Phase.FORWARD, 2, 95, 140),
    ]
    names = ["at::add", "volta_sgemm_64x64_nt", "who_knows"]
    edges = np.array([0, 50, 135])
    both = kernel_time.time_by_class(ops_of(rows), names, edges, np.array([0, 1]))
    assert {c: ns for c, ns in both.items() if ns} == {
        "matmul_fp32": 60,
        "other": 70,
        "unknown": 5,
    }
    second = kernel_time.time_by_class(ops_of(rows), names, edges, np.array([1]))
    assert {c: ns for c, ns in second.items() if ns} == {
        "matmul_fp32": 40,
        "other": 40,
        "unknown": 5,
    }


def test_tf32_convolutions_of_a_real_run_are_seen(samples):
    (rank,) = report_of(samples / "h200_unet_w1.json.gz").ranks
    spent = rank.summary.kernel_ns
    assert max(spent, key=spent.get) == "matmul_tf32"
    assert spent["matmul_half"] == spent["matmul_unaligned"] == spent["fused"] == 0


def test_a_vocabulary_of_50257_is_seen_to_be_unaligned(samples):
    (rank,) = report_of(samples / "profile_gpt2.sqlite.gz").ranks
    spent = rank.summary.kernel_ns
    assert max(spent, key=spent.get) == "matmul_unaligned"
    assert spent["matmul_fp32"] == 0


def test_a_run_on_a_cpu_has_no_kernels(samples):
    report = report_of(samples / "cpu_convnet.json.gz")
    assert [rank.summary.kernel_ns for rank in report.ranks] == [None]


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("cudaDeviceSynchronize_v3020", "cudaDeviceSynchronize"),
        ("hipDeviceSynchronize", "hipDeviceSynchronize"),
        ("secretDeviceSynchronize of a job", None),
    ],
)
def test_only_calls_of_the_api_are_named(name, told, samples):
    trace = trace_of(samples / "h200_unet_w1.json.gz")
    names = [name if n == "cudaDeviceSynchronize" else n for n in trace.names]
    (rank,) = traceprobe.analyze([replace(trace, names=names)]).ranks
    expected = UNSET if told is None else {told: 0.167}
    assert rank.summary.host.blocking_calls == expected


def test_kernels_are_counted_by_phase(samples):
    (rank,) = report_of(samples / "h200_unet_w1.json.gz").ranks
    host = rank.summary.host
    assert set(host.phase_kernels) == {"forward", "backward", "optimizer"}
    assert sum(host.phase_kernels.values()) == pytest.approx(host.kernels_per_step, abs=2e-3)


def test_blocks_are_those_of_all_grids_in_both_formats(samples):
    found = [
        report_of(samples / f"h200_unet_w1.{suffix}.gz").ranks[0].summary.host
        for suffix in ("json", "sqlite")
    ]
    each = [host.blocks_per_step / host.kernels_per_step for host in found]
    assert each[0] == pytest.approx(each[1], rel=0.02)


@pytest.mark.parametrize(("name", "expected"), MATRIX_UNITS)
def test_matrix_units_are_told_by_the_instruction_where_a_name_has_it(name, expected):
    assert kernel_classes.on_matrix_units(name) is expected
