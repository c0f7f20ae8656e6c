"""The type of what a reduction adds up, by the names of its kernels."""

from __future__ import annotations

import polars as pl
import pytest

from traceprobe.model.codes import UNKNOWN, Kind, Operation
from traceprobe.pipeline.reduced_types import REDUCED_TYPES, reduced_type, with_reduced_types
from traceprobe.timeline.collectives import CollectiveGroup

F32 = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
BF16 = "ncclDevKernel_AllReduce_Sum_bf16_TREE_LL(ncclDevKernelArgsStorage<4096ul>)"
GATHER = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        (F32, "float32"),
        (BF16, "bfloat16"),
        ("ncclDevKernel_ReduceScatter_Sum_f16_RING_LL(x)", "float16"),
        ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, unsigned long)", "float32"),
        ("ncclKernel_AllReduce_RING_LL_Sum___nv_bfloat16(ncclDevComm*)", "bfloat16"),
        ("ncclDevKernel_AllReduce_Sum_u64_RING_LL(x)", None),
        (GATHER, None),
    ],
)
def test_the_name_of_a_kernel_tells_what_it_reduces(name, dtype):
    found = reduced_type(name)
    assert (None if found == UNKNOWN else REDUCED_TYPES[found]) == dtype


def test_a_group_has_the_type_of_all_its_kernels():
    kinds = [Operation.ALL_REDUCE] * 4 + [Operation.ALL_GATHER]
    ops = pl.DataFrame(
        {
            "kind": [int(Kind.COMM)] * 5,
            "name": [0, 0, 0, 1, 2],
            "operation": [int(kind) for kind in kinds],
            "bytes": [8, 8, UNKNOWN, UNKNOWN, 8],
            "group_size": [2] * 5,
        }
    )
    sizes = ((Operation.ALL_REDUCE, 8), (Operation.ALL_REDUCE, None), (Operation.ALL_GATHER, 8))
    groups = [CollectiveGroup(kind, size, 2, 1, 1, 1, 0, 1) for kind, size in sizes]
    found = with_reduced_types(groups, ops, [F32, BF16, GATHER])
    assert [group.dtype for group in found] == ["float32", None, None]
