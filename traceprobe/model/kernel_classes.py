"""What kernels are for, by their names: matrices in which precision, element-wise work, or unknown.

Libraries name their kernels by convention: cuBLAS and cuDNN (`sm80_xmma_gemm_f32f32_tf32f32…`,
`nvjet_sm90_tst…`), CUTLASS (`cutlass_80_simt_sgemm…`, `…tensorop…s1688gemm_bf16…_align1`), older
ones by architecture (`volta_sgemm…`, `ampere_fp16_s16816gemm…`); of AMD's, rocBLAS and hipBLASLt by
the indices of the product and the types of its operands (Tensile: `Cijk_Ailk_Bljk_BBS_BH…` is bf16
to bf16, summed in fp32), MIOpen (`igemm_fwd_gtcx3_nhwc_bf16…`, `miopenSp3AsmConv…`), Composable
Kernel (`ck::kernel_gemm_xdl…`, `ck_tile::kentry<1, ck_tile::FmhaFwdKernel<…`, mangled ones with `t`
for a bf16) and AITER (`aiter::fmha_fwd_hd128_bf16…`). Where the name of a matrix kernel
does not say its precision, the class is `matmul_unknown`, not a guess. Kernels that are neither
PyTorch's nor those of a known library are told by the words of their names (`layer_norm`,
`batchedTranspose`), and those without such a word are `unknown`.
"""

from __future__ import annotations

import re
from functools import lru_cache

ATTENTION = "flash|fmha|sdpa|attn|attention"
"""Words in the names of kernels of fused attention, as a pattern."""
MOST_NAMES = 10_000
"""Names whose class is remembered: many parts of an analysis ask for it, of the same names."""
_MATMUL = re.compile(
    r"gemm|gemv|bmm_|xmma|cutlass|nvjet|cublas|(?<![a-z])[sh]\d*cudnn"
    r"|convolve|conv\dd|conv(fwd|bwd|_)|wgrad|dgrad|fprop|winograd|fmha|sdpa|^cijk_|igemm"
    r"|(?<![a-z])(wg|[a-z])?mma_|paged_attention|(?<![a-z])attn_(fwd|bwd)"
    r"|flash(?!infer::)|flashinfer::\w*(batch|single|mla|gemm)"
    # AMD's: Tensile, MIOpen, AITER (also mangled), Composable Kernel, vLLM's and AOTriton's.
    r"|^custom_cijk_|asmconv|miopenconv|^_?(aiter::|zn5aiter\d+)(mla|pa|fmoe)_"
    r"|^ck_tile::\w*attention|wvsp?li?tk|^bwd_kernel_(dk_dv|dq|fuse)",
    re.IGNORECASE,
)
_NO_MATMUL = re.compile(
    r"^at::native::|multi_tensor_apply|splitkreduce|pooling"
    r"|fbgemm_gpu::|bounds_check|causal_conv1d|compute\w*OffsetsKernel",
    re.IGNORECASE,
)
_LAYOUT = re.compile(
    # The last are MIOpen's, around convolutions.
    r"nchw_?(to_?|2)nhwc|nhwc_?(to_?|2)nchw|^batched_transpose_\d+x\d+_",
    re.IGNORECASE,
)
_SOFTMAX = re.compile(r"softmax", re.IGNORECASE)
_ROUTING = re.compile(r"top_?k|gating|routing|sampling", re.IGNORECASE)
"""Softmax of something else than attention's scores."""
_LOG_SOFTMAX = re.compile(
    # PyTorch's kernel for short rows is both, by the last argument but one of its template.
    r"log_?softmax|softmax_warp_(for|back)ward<[^<>]*\d, (true|\(bool\)1),",
    re.IGNORECASE,
)
_FUSED_ATTENTION = re.compile(r"fmha|flash|sdpa|attention", re.IGNORECASE)
_THREE_TF32 = re.compile(r"^fmha_cutlass[FB]_f32_.*_sm([89]|1\d)\d")
_GRAPH = re.compile(r"^CUDA graph \d+")
_COMPILED = re.compile(r"^triton_|^CudaCodeGen::|^nvfuser|^(loop_|input_)?fusion_\d")
"""Inductor's, those of TorchScript's fuser and its successor, and XLA's."""
_FUSED = re.compile(
    r"(?<!un)fused|liger|swi?glu|geglu|causal_conv1d|selective_scan|^cudnn::fusion::"
    r"|split_embedding_|^transformer_engine::|^elemWiseRNN|^(lstm|gru|rnn|generic)_elementwise_[bf]p",
    re.IGNORECASE,
)
"""Written as one by hand: Apex, Liger, Transformer Engine, Mamba, FBGEMM's tables, cuDNN, whose
kernels for the cells of its RNNs leave a compiler nothing to fuse."""
_FAMILIES = re.compile(
    r"^(at|c10|cub|thrust|at_cuda_detail|fbgemm_gpu|dali|epilogue)::|^cudnn::(ops|cnn|bn_)|^cask\w*_cudnn"
    r"|^_ZN(2at|3c10|3cub|6thrust|14at_cuda_detail)|cunn_|split[kK]reduce|multi_tensor_apply"
    r"|^(rocprim|hipcub)::|^_ZN(7rocprim|6hipcub)|^(Im\d?d?2(d2)?Col|Col2Im|Op\d?d?Tensor)"
)
"""Libraries whose other kernels are element-wise, reductions, copies or indexing."""
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
WORDS = frozenset(
    _WORD.findall(
        """
    activation add batchnorm bias bn broadcast cast cat clamp concat convert copy cumsum div dropout
    elementwise entropy exp expand fill gather gelu groupnorm histogram index indexing indices
    interpolate layernorm ln loss mask masked memset mul multiply nll norm normalize pad padding
    permute pointwise pool pooling quant quantize random reduce reduction relu rmsnorm rope rotary
    scale scatter sigmoid silu softmax sort sub sum tanh topk transpose unrolled upsample vectorized
    zero
    """
    )
)
"""What element-wise kernels, reductions, copies and indexing are called, each a whole word."""
_WRAPPED = re.compile(
    r"^std::enable_if<.*>::type |^void |\(anonymous namespace\)::|<unnamed>::"
    r"|\bck_tile::kentry<[\d, ]*"
)
_UNALIGNED = re.compile(r"_align[12](?!\d)")
_HALF = re.compile(
    r"bf16|f16(?!f32_f32)|fp16|half|bfloat16|h(884|1688|16816)|nvjet_(sm\d+_)?(h|t|q)|e4m3|e5m2|fp8"
    r"|wgmma|hmma_fp(16|32)|^(custom_)?cijk_[a-z]+_[a-z]+_(f8|b8|h|b)"
    r"|^_ZN(2ck|7ck_tile)\d.*[IE](t{2,}f|(DF16_){2})"
    r"|^(void )?ck(_tile)?::.*(unsigned short|_Float16|f8_)",
    re.IGNORECASE,
)
_TENSILE = re.compile(r"(Custom_)?Cijk_\w*_MT\d")
_MATRIX_INSTRUCTION = re.compile(r"_MI\d+x\d+")
_TF32 = re.compile(r"tf32|tensor16x8x8|s1688gemm|nvjet_(sm\d+_)?s(?!m\d)", re.IGNORECASE)
_FP32 = re.compile(
    r"simt|ffma|sgemm|scudnn|f32f32_f32f32|float_engine|_f32_|<float|sgemv"
    r"|^(custom_)?cijk_[a-z]+_[a-z]+_s|asmconv\w*_fp32",
    re.IGNORECASE,
)


_PRODUCTS = re.compile(
    r"^(aten|mkldnn|onednn)::_?(linear|conv|mkldnn_conv|matmul|mm|bmm|addmm|baddbmm|addbmm|einsum"
    r"|scaled_dot_product|scaled_mm|lstm|gru)"
)
"""Operators of a CPU run that go through a network's weights."""


def base_name(name: str) -> str:
    """What a kernel is called without what wraps it, and without its arguments.

    Arguments of templates name types of CUTLASS and cuBLAS in kernels of any kind.
    """
    return re.split(r"[<(]", _WRAPPED.sub("", name), maxsplit=1)[0]


def is_compiled(name: str) -> bool:
    """Whether a compiler wrote a kernel, which it names by all that it holds, of any pass."""
    return bool(_COMPILED.match(name))


def multiplies(name: str) -> bool:
    """Whether a kernel, or an operator of a CPU run, multiplies matrices, as networks do."""
    return bool(_PRODUCTS.search(name)) or kernel_class(name).startswith("matmul_")


@lru_cache(MOST_NAMES)
def kernel_class(name: str) -> str:
    """The class of a kernel."""
    if _GRAPH.match(name):
        return "unknown"
    if _LAYOUT.search(name):
        return "layout"
    if _THREE_TF32.match(name):
        return "matmul_3xtf32"
    softmax = _SOFTMAX.search(name) and not (_LOG_SOFTMAX.search(name) or _ROUTING.search(name))
    if softmax and not _FUSED_ATTENTION.search(name):
        return "softmax"
    if is_compiled(name):
        return "fused"
    base = base_name(name)
    if _NO_MATMUL.search(base) or not _MATMUL.search(base):
        return _other_class(base)
    half = _HALF.search(name)
    if half or _TF32.search(name):
        if _UNALIGNED.search(name):
            return "matmul_unaligned"
        return "matmul_half" if half else "matmul_tf32"
    return "matmul_fp32" if _FP32.search(name) else "matmul_unknown"


def _other_class(base: str) -> str:
    """The class of a kernel that is none of matrices, by what stands before its arguments."""
    if base.startswith("at::native::"):  # PyTorch's own `fused_dropout` is as element-wise as any
        return "other"
    if _FUSED.search(base):
        return "fused"
    known = _FAMILIES.search(base) or any(w.lower() in WORDS for w in _WORD.findall(base))
    return "other" if known else "unknown"


_TENSOR_CORES = {
    "matmul_fp32": False,
    "matmul_3xtf32": True,
    "matmul_tf32": True,
    "matmul_half": True,
    "matmul_unaligned": True,
}
"""Classes of kernels that are known to run on tensor cores, or not to."""


def on_matrix_units(name: str) -> bool | None:
    """Whether a matrix kernel runs on tensor cores or matrix cores; None where no name tells.

    AMD's take fp32 as well: Tensile writes the tile of their instruction (`MI16x16x4`) into a name.
    """
    if _TENSILE.match(name):
        return _MATRIX_INSTRUCTION.search(name) is not None
    return _TENSOR_CORES.get(kernel_class(name))
