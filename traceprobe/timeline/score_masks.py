"""What the masks of attention hide: scores that fused attention need not compute.

A causal mask hides the keys that come after each query, so half of the scores; it is one square for
all samples and heads. A mask of padding is the same for all queries, and a bias of positions
differs by head: fused attention computes those scores all the same. A square for each sample may be
both, causal and of padding, or padding alone that was written out.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from traceprobe.model.codes import UNKNOWN
from traceprobe.model.numbering import numbered
from traceprobe.model.operands import Operand, Operands
from traceprobe.timeline.operators import launching_rows

if TYPE_CHECKING:
    import polars as pl

CAUSAL = 1 / 2
"""Part of the scores that a causal mask hides."""
_MASKS = re.compile(r"masked_fill|where")
"""In names of kernels that may hide scores."""
_CAUSAL = re.compile(r"upper_\w+_masked_softmax")
"""In names of kernels that hide what comes after each query, as of Megatron and Apex: that of a
triangle, a word that a copy without the program's names may have lost."""
_MASKING = frozenset(
    f"aten::{name}" for name in ("masked_fill", "masked_fill_", "where", "add", "add_")
)
"""Operators that hide scores; those that add, add -inf."""


def hidden_scores(
    ops: pl.DataFrame, operators: pl.DataFrame, names: Sequence[str], operands: Sequence[Operands]
) -> npt.NDArray[np.float64]:
    """Part of the scores that each operation hides, if it is one of attention.

    Where shapes do not tell, a kernel that masks may hide half of them or next to none: it counts
    as half of both. A square that is added may be a bias that all heads share: it counts as a mask.

    Args:
        ops: of one device, with columns thread, launch_t0, name.
        operators: of the same process, `HOST_OPERATORS`.
        names, operands: of the trace.
    """
    distinct, of_row = numbered(ops["name"].to_numpy())
    hides = [_by_name(names[number]) for number in distinct.tolist()]
    found = np.array(hides, dtype=np.float64)[of_row]
    if not len(operators):
        return found
    at = launching_rows(ops, operators)
    row = np.maximum(at, 0)
    name, given = (operators[column].to_numpy()[row] for column in ("name", "operands"))
    # A fused operator does more than its own name and operands tell.
    aten = [number for number, each in enumerate(names) if each.startswith("aten::")]
    told = (at != UNKNOWN) & (given != UNKNOWN) & (found != CAUSAL) & np.isin(name, aten)
    found[told] = 0.0
    masking = told & np.isin(name, [number for number in aten if names[number] in _MASKING])
    for each in np.unique(given[masking]).tolist():
        found[masking & (given == each)] = _by_operands(operands[each])
    return found


def _by_name(kernel: str) -> float:
    """Part of the scores that a kernel hides, as far as its name tells."""
    if _CAUSAL.search(kernel):
        return CAUSAL
    return CAUSAL / 2 if _MASKS.search(kernel) else 0.0


def _by_operands(operands: Operands) -> float:
    """Part that a mask [..., 1, queries, keys] hides of scores [..., heads, queries, keys]."""
    tensors = [each for each in operands if len(each.dims) == 1 and len(each.dims[0]) > 1]
    if len(tensors) < 2:
        return 0.0
    scores = max(tensors, key=lambda each: prod(each.dims[0]))
    masks = [each for each in tensors if each is not scores]
    return max(_hidden_by(each, scores.dims[0]) for each in masks)


def _hidden_by(mask: Operand, scores: Sequence[int]) -> float:
    """Half for one square for all samples and heads; half of that where samples have their own."""
    if len(scores) < 3:
        return 0.0
    heads, queries, keys = scores[-3:]
    *outer, rows, columns = mask.dims[0]
    square = rows == queries == keys == columns > 1
    same_for_heads = not outer or (outer[-1] == 1 and heads > 1)
    if not (square and same_for_heads) or mask.stored[0] < rows * columns:
        return 0.0
    # An expanded mask of padding has as many elements as all samples have keys.
    padding = mask.stored[0] == prod(outer) * columns
    return CAUSAL if mask.stored[0] == rows * columns and not padding else CAUSAL / 2
