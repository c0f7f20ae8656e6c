"""What kernels are for, by their names: matrices in which precision, or anything else.

Libraries name their kernels by convention: cuBLAS and cuDNN (`sm80_xmma_gemm_f32f32_tf32f32…`,
`nvjet_sm90_tst…`), CUTLASS (`cutlass_80_simt_sgemm…`, `…tensorop…s1688gemm_bf16…_align1`), older
ones by architecture (`volta_sgemm…`, `ampere_fp16_s16816gemm…`). Where a name does not say, the
class is `matmul_unknown`, not a guess.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import polars as pl

from traceprobe.model.events import Kind
from traceprobe.model.taxonomy import KERNEL_CLASSES, Phase

_MATMUL = re.compile(
    r"gemm|gemv|bmm_|xmma|cutlass|nvjet|cublas|[sh]\d*cudnn"
    r"|convolve|conv\dd|conv(fwd|bwd|_)|wgrad|dgrad|fprop|winograd|fmha|flash|sdpa|^cijk_|igemm|mma_",
    re.IGNORECASE,
)
_NO_MATMUL = re.compile(
    r"^void at::native::|multi_tensor_apply|splitkreduce|pooling"
    r"|fbgemm_gpu::|bounds_check",
    re.IGNORECASE,
)
_LAYOUT = re.compile(r"nchw_?to_?nhwc|nhwc_?to_?nchw", re.IGNORECASE)
_SOFTMAX = re.compile(r"softmax", re.IGNORECASE)
_LOG_SOFTMAX = re.compile(
    # PyTorch's kernel for short rows is both, by the last argument but one of its template.
    r"log_?softmax|softmax_warp_(for|back)ward<[^<>]*\d, (true|\(bool\)1),",
    re.IGNORECASE,
)
_FUSED_ATTENTION = re.compile(r"fmha|flash|sdpa|attention", re.IGNORECASE)
_THREE_TF32 = re.compile(r"^fmha_cutlass[FB]_f32_.*_sm([89]|1\d)\d")
_GRAPH = re.compile(r"^CUDA graph \d+")
_FUSED = re.compile(r"^triton_")
_UNALIGNED = re.compile(r"_align[12](?!\d)")
_HALF = re.compile(
    r"bf16|f16(?!f32_f32)|fp16|half|bfloat16|h(884|1688|16816)|nvjet_(sm\d+_)?(h|t|q)|e4m3|e5m2|fp8"
    r"|wgmma|hmma_fp(16|32)|^cijk_.*_(bbs|hhs|bss|hss)_",
    re.IGNORECASE,
)
_TF32 = re.compile(r"tf32|tensor16x8x8|s1688gemm|nvjet_(sm\d+_)?s(?!m\d)", re.IGNORECASE)
_FP32 = re.compile(
    r"simt|ffma|sgemm|scudnn|f32f32_f32f32|float_engine|_f32_|<float|sgemv", re.IGNORECASE
)


def kernel_class(name: str) -> str:
    """The class of a kernel."""
    if _GRAPH.match(name):
        return "unknown"
    if _LAYOUT.search(name):
        return "layout"
    if _THREE_TF32.match(name):
        return "matmul_3xtf32"
    softmax = _SOFTMAX.search(name) and not _LOG_SOFTMAX.search(name)
    if softmax and not _FUSED_ATTENTION.search(name):
        return "softmax"
    if _FUSED.match(name):
        return "fused"
    if _NO_MATMUL.search(name) or not _MATMUL.search(name):
        return "other"
    half = _HALF.search(name)
    if half or _TF32.search(name):
        if _UNALIGNED.search(name):
            return "matmul_unaligned"
        return "matmul_half" if half else "matmul_tf32"
    return "matmul_fp32" if _FP32.search(name) else "matmul_unknown"


TENSOR_CORES = {
    "matmul_fp32": False,
    "matmul_3xtf32": True,
    "matmul_tf32": True,
    "matmul_half": True,
    "matmul_unaligned": True,
}
"""Classes of kernels that are known to run on tensor cores, or not to."""


def time_by_class(ops: pl.DataFrame, names: Sequence[str]) -> dict[str, int]:
    """Sum of the durations of the kernels of forward and backward pass, ns per class.

    The optimizer's kernels and those of the loader are left out: other findings are about them.

    Args:
        ops: columns kind, phase, name, t0, t1.
    """
    left_out = [int(Phase.OPTIMIZER), int(Phase.INPUT)]
    kernels = ops.select("kind", "phase", "name", "t0", "t1").filter(
        (pl.col("kind") == int(Kind.KERNEL)) & ~pl.col("phase").is_in(left_out)
    )
    spent = kernels.group_by("name").agg(ns=(pl.col("t1") - pl.col("t0")).sum())
    by_class = dict.fromkeys(KERNEL_CLASSES, 0)
    for name, ns in spent.rows():
        by_class[kernel_class(names[name])] += ns
    return by_class
