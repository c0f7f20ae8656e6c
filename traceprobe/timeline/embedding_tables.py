"""Tables of embeddings that get dense gradients, told by recorded shapes.

The backward pass of a lookup makes a gradient as large as the table, zero but for the rows that
were looked up (`aten::embedding_dense_backward`), unless the table is made with `sparse=True`. The
optimizer then reads and writes all of it. A table that a product reads as well, as the output layer
of many language models, has a gradient of all rows in any case.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import prod

import msgspec
import polars as pl

from traceprobe.model.codes import UNKNOWN
from traceprobe.model.kernel_classes import multiplies
from traceprobe.model.operands import Operands

_LOOKUPS = ("aten::embedding", "aten::_embedding_bag")
_DENSE = ("aten::embedding_dense_backward", "aten::_embedding_bag_dense_backward")
_ACCUMULATES = "torch::autograd::AccumulateGrad"
"""The node that ends a backward pass for a parameter; its operand is the gradient."""


class EmbeddingTable(msgspec.Struct, frozen=True):
    """A table, or several of one shape.

    Args:
        rows, width: of each. tables: how many.
        looked_up: rows that are looked up for each gradient of one, repeated ones too; mean.
        part: of all elements of gradients that are theirs, 0 to 1.
    """

    rows: int
    width: int
    tables: int
    looked_up: float
    part: float


def embedding_tables(
    operators: pl.DataFrame, names: Sequence[str], operands: Sequence[Operands]
) -> list[EmbeddingTable]:
    """Those of a process with dense gradients and no other use, the largest part first.

    Args:
        operators: of the process, `HOST_OPERATORS`. names, operands: of the trace.
    """
    if not operands or not len(operators):
        return []
    noted = operators.select("name", "operands").filter(pl.col("operands") != UNKNOWN)
    calls = noted.group_by("name", "operands").len()
    looked_up, gradients = Counter[tuple[int, ...]](), Counter[tuple[int, ...]]()
    widths, multiplied = set[int](), set[tuple[int, ...]]()
    for number, which, count in calls.rows():
        name, shapes = names[number], _shapes(operands[which])
        if name == _ACCUMULATES:
            gradients.update(dict.fromkeys(shapes[:1], count))
        elif name in _LOOKUPS and len(shapes) > 1:
            looked_up[shapes[0]] += count * prod(shapes[1])
        elif name in _DENSE:
            widths |= {shape[-1] for shape in shapes[:1] if shape}
        elif multiplies(name):
            multiplied |= {tuple(sorted(n for n in shape if n > 1)) for shape in shapes}
    passes = _passes(gradients)
    everything = sum(count * prod(shape) for shape, count in gradients.items())
    found = [
        EmbeddingTable(
            rows=shape[0],
            width=shape[1],
            tables=max(round(gradients[shape] / passes), 1),
            looked_up=rows / gradients[shape],
            part=gradients[shape] * prod(shape) / everything,
        )
        for shape, rows in looked_up.items()
        if len(shape) == 2
        and min(shape) > 1
        and shape[1] in widths
        and gradients[shape]
        and tuple(sorted(shape)) not in multiplied
    ]
    return sorted(found, key=lambda table: (-table.part, table.rows))


def _passes(gradients: Mapping[tuple[int, ...], int]) -> int:
    """Backward passes: how often gradients of most shapes are summed up, at least."""
    times = Counter(gradients.values())
    return min((each for each in times if times[each] == max(times.values())), default=1)


def _shapes(operands: Operands) -> list[tuple[int, ...]]:
    """Sizes of the arguments that are one tensor each."""
    return [each.dims[0] for each in operands if len(each.dims) == 1]
