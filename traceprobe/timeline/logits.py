"""What output layer and loss cost that tell many classes apart, told by recorded shapes.

A language model has a score (logit) of every word of its vocabulary for every position, and a loss
that reads all of them. The last dimension of what `log_softmax` reads is the classes. Operators
with a tensor that has as many in a dimension are output layer, loss, and the gradients of both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import prod

import msgspec
import numpy as np
import polars as pl

from traceprobe.model.codes import UNKNOWN, Int64s, Kind
from traceprobe.model.kernel_classes import multiplies
from traceprobe.model.operands import Operands
from traceprobe.model.taxonomy import Phase
from traceprobe.timeline.operators import launching_rows

MANY_CLASSES = 10_000
"""Classes from which on scores of them are looked at: vocabularies have some ten thousand words."""
_SCORED = "aten::_log_softmax"
_LOOKUP = "embedding"
"""In names of operators that read rows of a table with as many, and compute no scores."""
_PHASES = [int(Phase.FORWARD), int(Phase.BACKWARD), int(Phase.RECOMPUTE)]


class Logits(msgspec.Struct, frozen=True):
    """Kernels of output layer and loss.

    Args:
        classes: that are told apart. positions: that are scored, in all calls together.
        ns: durations. products_ns: of that, of products of matrices.
    """

    classes: int
    positions: int
    ns: int
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
    if not operands or not len(operators):
        return None
    rows = ops.select("kind", "phase", "thread", "launch_t0", "name", "t0", "t1").filter(
        (pl.col("kind") == int(Kind.KERNEL)) & pl.col("phase").is_in(_PHASES)
    )
    at = launching_rows(rows, operators)
    rows, at = rows.filter(at != UNKNOWN), at[at != UNKNOWN]
    given = operators["operands"].to_numpy()[at]
    called = operators["name"].to_numpy()[at]
    scored = _scored(at, called, given, names, operands)
    if not scored:
        return None
    (classes, positions), *_ = scored.most_common(1)
    known = np.unique(given[given != UNKNOWN]).tolist()
    having = [number for number in known if _has(operands[number], classes)]
    lookups = [number for number in np.unique(called).tolist() if _LOOKUP in names[number]]
    chosen = np.isin(given, having) & ~np.isin(called, lookups)
    took = (rows["t1"] - rows["t0"]).to_numpy()[chosen]
    product = np.array([multiplies(names[n]) for n in rows["name"].to_numpy()[chosen]], dtype=bool)
    return Logits(classes, positions, int(took.sum()), int(took[product].sum()))


def _scored(
    at: Int64s, called: Int64s, given: Int64s, names: Sequence[str], operands: Sequence[Operands]
) -> Counter[int]:
    """Positions by the number of classes, of each call once."""
    found = Counter[int]()
    first = np.unique(at, return_index=True)[1]
    for name, number in zip(called[first].tolist(), given[first].tolist(), strict=True):
        if number == UNKNOWN or names[name] != _SCORED:
            continue
        shape = operands[number][0].dims[0] if operands[number][0].dims else ()
        if shape and shape[-1] >= MANY_CLASSES:
            found[shape[-1]] += prod(shape[:-1])
    return found


def _has(operands: Operands, classes: int) -> bool:
    return any(classes in dims for operand in operands for dims in operand.dims)
