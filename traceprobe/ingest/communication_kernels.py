"""Which kernels communicate, by their names: collectives of libraries, and those written by hand.

Only the kernel's own name and the namespaces around it count. Template arguments and parameters
mention communication where there is none, and so does what a compiler fuses beside a collective.
"""

from __future__ import annotations

import re
from functools import partial

_pattern = partial(re.compile, flags=re.VERBOSE)

_LIBRARIES = _pattern(
    r"""(?i)(?<![a-z])(
      nccl | rccl | msccl | mscclpp      # NVIDIA's, AMD's and Microsoft's collectives
    | nvshmem | rocshmem                 # one-sided messages that kernels send themselves
    | dpsk::ep | deep_?ep                # DeepEP: the messages of experts
    | pplx | pplx_kernels                # Perplexity's, likewise
    | symmetric_memory | symm_mem        # PyTorch
    | k?userbuffers                      # Transformer Engine
    | quick_?reduce                      # AMD's, in vLLM
    )(?![a-z]) | (?i:(?<![a-z])(nccl|rccl|msccl|nvshmem|rocshmem)[a-z])"""
)
_OPERATIONS = _pattern(
    r"""
      (?i:(?<![a-z])(all[-_]?reduce|all[-_]?gather|reduce[-_]?scatter|all[-_]?to[-_]?all|all2all))
    | (?<=[a-z])(All_?[Rr]educe|All_?[Gg]ather|Reduce_?[Ss]catter|All_?[Tt]o_?[Aa]ll|All2All)
    | (?i:cross_?device_?reduce)                        # vLLM, SGLang, aiter
    | (?i:(?<![a-z])multimem_)                          # reductions in the switch
    | (?i:(?<![a-z])(moe_?)?a2a_?(dispatch|combine))    # TensorRT-LLM, Perplexity
    | (?i:(?<![a-z])ep_?(dispatch|combine)_?(intra|inter)_?node)  # MORI
    """
)
# Compiled when first searched for, unlike the others: most traces name no such kernel.
_LOCAL = r"""(?ix)
      (warp|wave|block|cta|thread|lane|quad|group)_?all_?(reduce|gather)  # within one GPU
    | (?<![a-z])triton_[a-z]+_fused                                       # made by torch.compile
    | gemm | matmul                                                       # mostly computation
    """
_UNNAMED = re.compile(r"\(anonymous namespace\)(::)?|<unnamed>(::)?|\{anonymous\}(::)?")


def is_communication(kernel: str) -> bool:
    """Whether a kernel of that name communicates with other GPUs."""
    name = own_name(kernel)
    if _LIBRARIES.search(name):
        return True
    return _OPERATIONS.search(name) is not None and re.search(_LOCAL, name) is None


def own_name(kernel: str) -> str:
    """A kernel's name and its namespaces, without template arguments and parameters."""
    return re.split(r"[<(]", _UNNAMED.sub("", kernel), maxsplit=1)[0]
