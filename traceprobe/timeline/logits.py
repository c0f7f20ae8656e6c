"""What output layer and loss cost that tell many classes apart, told by recorded shapes.

A language model has a score (logit) of every word of its vocabulary for every position, and a loss
that reads all of them. The last dimension of what `log_softmax` reads is the classes. Operators
with a tensor that has as many in a dimension are output layer, loss, and the gradients of both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from math import prod
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from traceprobe.model.codes import UNKNOWN, Int64s
from traceprobe.model.events import rows_named
from traceprobe.model.kernel_classes import multiplies
from traceprobe.model.numbering import numbered
from traceprobe.model.operands import Operands
from traceprobe.timeline.operators import launching_rows, model_kernels

if TYPE_CHECKING:
    import polars as pl

MANY_CLASSES = 10_000
"""Classes from which on scores of them are looked at: vocabularies have some ten thousand words."""
_SCORED = "aten::_log_softmax"
_LOOKUP = "embedding"
"""In names of operators that read rows of a table with as many, and compute no scores."""


class Logits(msgspec.Struct, frozen=True):
    """Kernels of output layer and loss.

    Args:
        classes: that are told apart. positions: that are scored, in all calls together.
        total_ns: durations. products_ns: of that, of products of matrices.
    """

    classes: int
    positions: int
    total_ns: int
    products_ns: int


def logits(
    ops: pl.DataFrame, operators: pl.DataFrame, names: Sequence[str], operands: Sequence[Operands]
) -> Logits | None:
    """Those of one device; None without such a loss, or where no shapes tell.

    Args:
        ops: of the judged iterations, with columns kind, phase, thread, launch_t0, name, t0, t1.
        operators: of the same process, `HOST_OPERATORS`.
        names, operands: of the trace.
    """
    many = _many(operators, names, operands)
    if not many:
        return None
    rows = model_kernels(ops)
    at = launching_rows(rows, operators)
    rows, at = rows.filter(at != UNKNOWN), at[at != UNKNOWN]
    given = operators["operands"].to_numpy()[at]
    called = operators["name"].to_numpy()[at]
    losses = called == names.index(_SCORED)
    scored = _scored(at[losses], given[losses], many, operands)
    if not scored:
        return None
    (classes, positions), *_ = scored.most_common(1)
    known = np.unique(given[given != UNKNOWN]).tolist()
    having = [number for number in known if _has(operands[number], classes)]
    lookups = [number for number in np.unique(called).tolist() if _LOOKUP in names[number]]
    chosen = np.isin(given, having) & ~np.isin(called, lookups)
    took = (rows["t1"] - rows["t0"]).to_numpy()[chosen]
    distinct, of_row = numbered(rows["name"].to_numpy()[chosen])
    product = np.array([multiplies(names[n]) for n in distinct.tolist()], dtype=np.bool_)[of_row]
    return Logits(classes, positions, int(took.sum()), int(took[product].sum()))


def _many(
    operators: pl.DataFrame, names: Sequence[str], operands: Sequence[Operands]
) -> frozenset[int]:
    """Numbers of the operands with which a loss over many classes is called."""
    calls = rows_named(operators.select("name", "operands"), names, lambda name: name == _SCORED)
    known = calls["operands"].unique().to_list()
    return frozenset(n for n in known if n != UNKNOWN and _scores(operands[n]))


def _scores(operands: Operands) -> tuple[int, ...]:
    """Shape of what a loss over many classes reads; empty of another, and of no positions."""
    shape = operands[0].dims[0] if operands and operands[0].dims else ()
    return shape if shape and shape[-1] >= MANY_CLASSES and all(shape) else ()


def _scored(
    at: Int64s, given: Int64s, many: Collection[int], operands: Sequence[Operands]
) -> Counter[int]:
    """Positions by the number of classes, of each call once.

    Args:
        at: rows of the losses that launch kernels. given: what they are called with.
    """
    found = Counter[int]()
    for number in given[np.unique(at, return_index=True)[1]].tolist():
        if number in many:
            *positions, classes = _scores(operands[number])
            found[classes] += prod(positions)
    return found


def _has(operands: Operands, classes: int) -> bool:
    return any(classes in dims for operand in operands for dims in operand.dims)
