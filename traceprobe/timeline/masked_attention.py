"""Fused attention that reads a mask of all queries and keys, and computes the scores that it hides.

A causal mask can be said instead (`is_causal=True`): then no mask is read, and of the scores that
it hides none are computed. A tensor may hide anything, so every score is computed and masked.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from traceprobe.model.codes import UNKNOWN
from traceprobe.model.kernel_classes import ATTENTION, multiplies
from traceprobe.model.numbering import numbered
from traceprobe.model.operands import Operand, Operands
from traceprobe.timeline.operators import launching_rows, model_kernels
from traceprobe.timeline.score_masks import CAUSAL

if TYPE_CHECKING:
    import polars as pl

_FUSED = re.compile(ATTENTION, re.IGNORECASE)


class MaskedAttention(msgspec.Struct, frozen=True):
    """Kernels of fused attention that read such a mask.

    Args:
        ns: their durations.
        hidden_ns: of that, what the mask hides.
    """

    ns: int
    hidden_ns: int


def masked_attention(
    ops: pl.DataFrame, operators: pl.DataFrame, names: Sequence[str], operands: Sequence[Operands]
) -> MaskedAttention | None:
    """Those of one device; None where there are none, or no shapes tell.

    Args:
        ops: with columns kind, phase, thread, launch_t0, name, t0, t1.
        operators: of the same process, `HOST_OPERATORS`.
        names, operands: of the trace.
    """
    if not operands or not len(operators):
        return None
    rows = model_kernels(ops)
    distinct, of_row = numbered(rows["name"].to_numpy())
    fused = np.array([_is_fused(names[number]) for number in distinct.tolist()], dtype=np.bool_)
    rows = rows.filter(fused[of_row]) if len(rows) else rows
    if not len(rows):
        return None
    at = launching_rows(rows, operators)
    given = np.where(at == UNKNOWN, UNKNOWN, operators["operands"].to_numpy()[np.maximum(at, 0)])
    ns = (rows["t1"] - rows["t0"]).to_numpy()
    total, hidden = 0, 0.0
    for number in np.unique(given[given != UNKNOWN]).tolist():
        part = _hidden_by(operands[number])
        own = int(ns[given == number].sum()) if part else 0
        total, hidden = total + own, hidden + part * own
    return MaskedAttention(total, round(hidden)) if total else None


def _is_fused(name: str) -> bool:
    return bool(_FUSED.search(name)) and multiplies(name)


def _hidden_by(operands: Operands) -> float:
    """Part of the scores that the mask among them hides; 0 without one.

    Queries come first, and a mask has as many rows and columns as they have tokens.
    """
    tensors = [each for each in operands if len(each.dims) == 1 and len(each.dims[0]) > 1]
    if not tensors or len(tensors[0].dims[0]) != 4:
        return 0.0
    queries = tensors[0].dims[0]
    return max((_hides(each, queries) for each in tensors[1:]), default=0.0)


def _hides(mask: Operand, queries: Sequence[int]) -> float:
    """Half for one square for all samples and heads; half of that where samples have their own."""
    rows, columns = mask.dims[0][-2:]
    # Libraries order heads and tokens differently.
    square = rows == columns > 1 and rows in queries[1:3] and tuple(mask.dims[0]) != tuple(queries)
    if not square:
        return 0.0
    stored, samples = mask.stored[0], queries[0]
    if stored == rows * columns:
        # An expanded mask of padding has as many elements as all samples have keys.
        return 0.0 if stored == samples * columns else CAUSAL
    return CAUSAL / 2 if stored == samples * rows * columns else 0.0
