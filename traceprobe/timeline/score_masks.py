"""What the masks of attention hide: scores that fused attention need not compute.

A causal mask hides the keys that come after each query, so half of the scores; it is the same for
all heads. A mask of padding is the same for all queries, and a bias of positions differs by head:
fused attention computes those scores all the same.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from traceprobe.model.codes import UNKNOWN
from traceprobe.model.operands import Operand, Operands
from traceprobe.timeline.operators import launching_rows

if TYPE_CHECKING:
    import polars as pl

CAUSAL = 1 / 2
"""Part of the scores that a causal mask hides."""
_MASKS = re.compile(r"masked_fill|where")
"""In names of kernels that may hide scores."""
_MASKING = frozenset(
    f"aten::{name}" for name in ("masked_fill", "masked_fill_", "where", "add", "add_")
)
"""Operators that hide scores; those that add, add -inf."""


def hidden_scores(
    ops: pl.DataFrame, operators: pl.DataFrame, names: Sequence[str], operands: Sequence[Operands]
) -> npt.NDArray[np.float64]:
    """Part of the scores that each operation hides, if it is one of attention.

    Where a recording has no shapes, a kernel that masks may hide half of them or next to none: it
    counts as half of both.

    Args:
        ops: of one device, with columns thread, launch_t0, name.
        operators: of the same process, `HOST_OPERATORS`.
        names, operands: of the trace.
    """
    masking = [number for number, name in enumerate(names) if _MASKS.search(name)]
    masks = np.isin(ops["name"].to_numpy(), masking)
    unknown = np.where(masks, CAUSAL / 2, 0.0)
    if not len(operators):
        return unknown
    at = launching_rows(ops, operators)
    name, given = (
        operators[column].to_numpy()[np.maximum(at, 0)] for column in ("name", "operands")
    )
    hiding = [number for number, each in enumerate(operands) if _has_causal_mask(each)]
    called = [number for number, each in enumerate(names) if each in _MASKING]
    causal = np.isin(name, called) & np.isin(given, hiding)
    known = (at != UNKNOWN) & (given != UNKNOWN)
    return np.where(known, np.where(causal, CAUSAL, 0.0), unknown)


def _has_causal_mask(operands: Operands) -> bool:
    """Whether scores [..., heads, queries, keys] are given a mask [..., 1, queries, keys]."""
    tensors = [each for each in operands if len(each.dims) == 1 and len(each.dims[0]) > 1]
    if len(tensors) < 2:
        return False
    scores = max(tensors, key=lambda each: prod(each.dims[0]))
    return any(_is_by_query(each, scores.dims[0]) for each in tensors if each is not scores)


def _is_by_query(mask: Operand, scores: Sequence[int]) -> bool:
    """Whether a mask differs by query and key, and not by head."""
    if len(scores) < 3:
        return False
    heads, queries, keys = scores[-3:]
    *outer, rows, columns = mask.dims[0]
    same_for_heads = not outer or (outer[-1] == 1 and heads > 1)
    by_query = rows == queries > 1 and columns == keys and mask.stored[0] % (queries * keys) == 0
    return same_for_heads and by_query
