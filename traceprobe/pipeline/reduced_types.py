"""The type of what a reduction adds up, which the names of NCCL's kernels tell."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import polars as pl
from msgspec.structs import replace

from traceprobe.ingest.communication_kernels import own_name
from traceprobe.ingest.joins import per_name
from traceprobe.model.codes import UNKNOWN, Kind
from traceprobe.timeline.collectives import KEY, CollectiveGroup

_REDUCED = (
    r"(?i)(?:reduce_?scatter|reduce)\w*?_"
    r"(?:(f32|float)|(f16|half)|(\w*bf(?:loat)?16)|(f64|double))(?:_|$)"
)
_LONGEST = 256
"""Of NCCL's names, which say the type early; to search a name of any length takes too long."""
REDUCED_TYPES = ("float32", "float16", "bfloat16", "float64")
"""In the order of the alternatives of `_REDUCED`."""


def reduced_type(name: str) -> int:
    """Index into `REDUCED_TYPES` by the name of a kernel; UNKNOWN where it tells none of them."""
    found = re.search(_REDUCED, own_name(name)[:_LONGEST])
    return UNKNOWN if found is None or found.lastindex is None else found.lastindex - 1


def with_reduced_types(
    groups: Sequence[CollectiveGroup], ops: pl.DataFrame, names: Sequence[str]
) -> list[CollectiveGroup]:
    """The groups with the type that all kernels of each reduce.

    Args:
        ops: the GPU ops that the groups are of. names: of the trace.
    """
    rows = ops.filter(pl.col("kind") == int(Kind.COMM))
    types = per_name(rows["name"].to_numpy(), names, reduced_type).astype(np.int64)
    told = rows.select(KEY).with_columns(dtype=types).unique()
    of_key: dict[tuple[object, ...], list[int]] = {}
    for *key, dtype in told.iter_rows():
        of_key.setdefault(tuple(key), []).append(dtype)
    return [replace(group, dtype=_only(of_key.get(_key(group), []))) for group in groups]


def _key(group: CollectiveGroup) -> tuple[object, ...]:
    sizes = (UNKNOWN if size is None else size for size in (group.bytes, group.group_size))
    return (int(group.operation), *sizes)


def _only(types: Sequence[int]) -> str | None:
    return REDUCED_TYPES[types[0]] if len(types) == 1 and types[0] != UNKNOWN else None
