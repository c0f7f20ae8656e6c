"""Which names of kernels are communication, of the libraries that are in use, and which are not."""

from __future__ import annotations

import pytest

import traceprobe
from tests.builders import kineto
from tests.builders.scenario import COMM_STREAM, Process, Script
from traceprobe.ingest.collective_metadata import collective_operation
from traceprobe.ingest.communication_kernels import own_name
from traceprobe.ingest.event_kinds import kernel_kind
from traceprobe.model.codes import Kind, Operation

COMMUNICATION = {
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)": "ALL_REDUCE",
    "ncclSymkDevKernel_AllReduce_AGxLL_R_sum_f32(ncclSymkDevWorkArgs const*)": "ALL_REDUCE",
    "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*)": "SEND_RECV",
    "ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)": "OTHER",
    "void rcclGenericKernel<1, false>(ncclDevKernelArgsStorage<4096ul>)": "OTHER",
    "mscclKernel_Sum_half_Simple_false(ncclDevComm*, mscclAlgo*, mscclWork*)": "OTHER",
    "void mscclpp::allreduce2<__half>(void*, void*, unsigned long)": "ALL_REDUCE",
    "mscclpp::executionKernel<int, false>(int, int*, int*)": "OTHER",
    "void nvshmemi_proxy_quiet_entrypoint()": "OTHER",
    "nvshmem_barrier_all_kernel": "BARRIER",
    "void deep_ep::internode_ll::dispatch<true, 3, 10, 7168>(void*, float*)": "ALL_TO_ALL",
    "void dpsk::ep::internode::combine<false, 8, __nv_bfloat16>(int4*, float*)": "ALL_TO_ALL",
    "void dpsk::ep::internode::cached_notify<false>(int, int)": "OTHER",
    "_ZN7deep_ep9intranode7combineI13__nv_bfloat16Li8EEEvPT_": "ALL_TO_ALL",
    "void pplx::dispatchKernel<10u, true, false>(unsigned long)": "ALL_TO_ALL",
    "void pplx_kernels::all_to_all::dispatch<4>(void*)": "ALL_TO_ALL",
    "void a2a_dispatch_send_kernel<true, 16ul, 8ul>(unsigned long)": "ALL_TO_ALL",
    "void tensorrt_llm::kernels::moe_comm::moeA2ACombineKernel<8>(void*)": "ALL_TO_ALL",
    "EpDispatchInterNodeKernel": "ALL_TO_ALL",
    "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*)": "ALL_REDUCE",
    "void aiter::cross_device_reduce_2stage<half, 4>(aiter::RankData*)": "ALL_REDUCE",
    "_ZN4vllm26cross_device_reduce_2stageI6__halfLi8EEEvPNS_8RankDataE": "ALL_REDUCE",
    "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport"
    "<(flashinfer::Pattern)1, __nv_bfloat16, 8>(flashinfer::Params)": "ALL_REDUCE",
    "void flashinfer::trtllm_mnnvl_allreduce::oneshotAllreduceFusionKernel<(unsigned char)2>(P)": (
        "ALL_REDUCE"
    ),
    "void tensorrt_llm::kernels::oneShotAllReduceKernel<float, 8, true>(Params)": "ALL_REDUCE",
    "void tensorrt_llm::kernels::lowPrecisionTwoShotAllReduceKernel<half, 8>(P)": "ALL_REDUCE",
    "void (anonymous namespace)::two_shot_all_reduce_kernel_inplace<c10::BFloat16, 16, 2>(P)": (
        "ALL_REDUCE"
    ),
    "void <unnamed>::multimem_all_reduce_kernel<c10::BFloat16, (int)16>(T1 *)": "ALL_REDUCE",
    "multimem_all_gather_kernel": "ALL_GATHER",
    "c10d::symmetric_memory::(anonymous namespace)::barrier_kernel(unsigned int**)": "BARRIER",
    "one_shot_all_reduce_kernel_optimized": "ALL_REDUCE",
    "userbuffers_fp16_sum_inplace_gpu_rw_ag": "OTHER",
    "kuserbuffers_pushsend": "SEND_RECV",
    "void dlslime::intranode_alltoall_kernel<8>(void*)": "ALL_TO_ALL",
}
COMPUTATION = [
    "void cutlass::device_kernel<DeepEpilogueKernel>(Params)",
    "DeepEpilogue_fused_bias",
    "void sampling::oneshot_topk<float, 4>(float*)",
    "two_shot_softmax_kernel",
    "lamport_clock_update(int*)",
    "lamport_initialize_kernel",
    "void block_all_reduce_sum_f32_f32_kernel<256>(float*, float*, int)",
    "warpAllReduceKernel",
    "triton_poi_fused_add_all_reduce_4",
    "triton_red_fused_all_gather_into_tensor_native_layer_norm_0",
    "gemm_one_shot_all_reduce_kernel",
    "void softmax<cub::BlockReduce<float>, AllReduceSum>(float*)",
    "void cutlass::device_kernel<dpsk::grouped_gemm::cuda::GemmKernel>(Params)",
    "void at::native::vectorized_gather_kernel<16, long>(char*, char*)",
    "void at::native::scatter_gather_elementwise_kernel<128, 8>(int, Lambda)",
    "void scatter_reduce_kernel<float>(float*)",
    "void at::native::reduce_kernel<512, 1, ReduceOp<float>>(ReduceOp<float>)",
    "void flash::combine_attn_seqk_parallel<Traits>(Params)",
    "deepepsilon_norm",
    "void simple_peer_norm<float>(float*)",
]


@pytest.mark.parametrize(("name", "operation"), COMMUNICATION.items(), ids=lambda text: text[:50])
def test_kernels_that_communicate_are_known_by_name(name, operation):
    assert kernel_kind(name) == Kind.COMM
    assert collective_operation(name) == Operation[operation]


@pytest.mark.parametrize("name", COMPUTATION, ids=lambda text: text[:50])
def test_names_that_only_resemble_them_are_computation(name):
    assert kernel_kind(name) == Kind.KERNEL


def test_a_kernels_own_name_is_what_stands_before_arguments():
    assert own_name("void a::(anonymous namespace)::f<int, (b)1>(int*)") == "void a::f"
    assert own_name("<unnamed>::g(int)") == "g"


def test_the_range_around_a_launch_tells_what_a_kernel_of_sends_and_receives_does(tmp_path):
    """PyTorch's ranges name the operation; a kernel outside of any keeps that of its name."""
    script = Script(Process(1_000))
    for k, name in enumerate(["nccl:all_to_all", "nccl:all_reduce", "nccl:coalesced", ""]):
        at = 10_000 * k
        if name:
            script.range(name, at, at + 1_000)
        script.op(
            *("comm", at + 2_000, at + 9_000, (at + 100, at + 200)),
            stream=COMM_STREAM,
            name="ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*)",
        )
    trace = traceprobe.load(kineto.write(script.build(), tmp_path / "a.json"))
    assert [Operation(n).name for n in trace.gpu_ops["operation"]] == [
        *("ALL_TO_ALL", "ALL_REDUCE", "SEND_RECV", "SEND_RECV"),
    ]
