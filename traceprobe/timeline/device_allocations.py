"""Memory that the host takes from the driver and gives back, in the middle of training.

PyTorch's allocator keeps what tensors no longer need, so a loop in its rhythm calls neither
`cudaMalloc` nor `cudaFree`: the second waits until the device has done all its work. Two things
make a loop call both in every step: `torch.cuda.empty_cache()`, and memory so short that the
allocator gives back what it keeps before it can take a larger block (c10's `CUDACachingAllocator`:
`release_cached_blocks` on the way of `malloc`). The second happens inside the operator that
allocates, which is one of ATen's: ranges of a program, of Dynamo and of autograd have code of the
program in them, which may call `empty_cache()`. There, as in compiled code, which allocates without
an operator, and without operators in the trace, it shows by the allocation that follows at once.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import polars as pl

from traceprobe.model.accounting import ROOM_NS
from traceprobe.model.codes import UNKNOWN
from traceprobe.timeline.operators import launching_rows

_TAKES = r"(?:cuda|hip)Malloc|cuMemAlloc|(?:cu|hip)Mem(?:Create|Map)"
_GIVES = r"(?:cuda|hip)Free|cuMemFree|(?:cu|hip)Mem(?:Release|Unmap)"
_API = re.compile(rf"(?:(?P<takes>{_TAKES})|(?P<gives>{_GIVES}))(?:_v\d+)?(?:_pt[sd][sz])?")
"""Calls that act on device memory at once: those of stream-ordered pools and of host memory have
longer names."""
_ALLOCATES = "aten::"
"""How names of operators begin that run no code of the program."""


def find_allocations(
    calls: pl.DataFrame, operators: pl.DataFrame, threads: set[int], names: Sequence[str]
) -> pl.DataFrame:
    """The calls that take device memory from the driver or give it back.

    Args:
        calls: HOST_CALLS of the process. operators: HOST_OPERATORS of the process.
        threads: those that train.

    Returns:
        `thread`, `t0`, `t1`, `gives` (memory back), and `for_room`: it is given back to make room
        for what is being allocated.
    """
    matches = {i: _API.fullmatch(names[i]) for i in calls["name"].unique().to_list()}
    gives = {i: bool(found["gives"]) for i, found in matches.items() if found is not None}
    if not gives:
        times = dict.fromkeys(("thread", "t0", "t1"), pl.Int64)
        return pl.DataFrame(schema={**times, "gives": pl.Boolean, "for_room": pl.Boolean})
    found = (
        calls.select("thread", "t0", "t1", "name")
        .filter(pl.col("name").is_in(list(gives)) & pl.col("thread").is_in(list(threads)))
        .sort("thread", "t0", maintain_order=True)
    )
    found = found.with_columns(
        gives=pl.col("name").is_in([i for i, back in gives.items() if back])
    ).drop("name")
    rows = launching_rows(found.rename({"t0": "launch_t0"}), operators)
    found = found.with_columns(operator=pl.Series(rows, dtype=pl.Int64))
    allocating = _allocating(found, operators, names)
    return found.with_columns(for_room=allocating & found["gives"]).drop("operator")


def _allocating(found: pl.DataFrame, operators: pl.DataFrame, names: Sequence[str]) -> pl.Series:
    """Whether memory is being allocated in the midst of each call.

    Args:
        found: with `operator`, the row of the innermost one.
    """
    if not len(operators):
        return _before_allocation(found)
    name = operators["name"]
    aten = [i for i in name.unique().to_list() if names[i].startswith(_ALLOCATES)]
    rows = name.is_in(aten).arg_true().cast(pl.Int64)
    inside = found["operator"] != UNKNOWN
    return found["operator"].is_in(rows.implode()) | (inside & _before_allocation(found))


def _before_allocation(found: pl.DataFrame) -> pl.Series:
    """Whether the next call that takes memory follows at once, others that give it back between.

    Args:
        found: sorted by thread and start; with `operator`: both are in the same one, or in none.
    """
    same = pl.all_horizontal(
        pl.col(column) == pl.col(column).shift(-1) for column in ("thread", "operator")
    )
    near = (pl.col("t0").shift(-1) - pl.col("t1") <= ROOM_NS) & same
    # Calls that follow each other at once are one chain, and its last one tells.
    chained = found.with_columns(near=near.fill_null(value=False))
    chain = (~pl.col("near").shift(1, fill_value=False)).cum_sum()
    ends = chained.with_columns(chain=chain).select((~pl.col("gives")).last().over("chain"))
    return ends.to_series()
