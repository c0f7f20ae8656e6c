"""Attention whose scores are written to memory: its softmax, its matrix products and all between.

Two products make attention, one of queries and keys, which are the scores, and one of their softmax
and the values. So what runs on the stream of a softmax from the product before it to the product
after it belongs to attention: scales, masks, dropout, casts and copies of the scores. Backward each
product takes two, and both come on either side of the softmax's own gradient. Copies of strided
tensors right beside the products turn queries, keys, values or results to where the products want
them, which fused attention does itself. A softmax without such products is of something else, and
so is one beside which the largest values are chosen (`topk`, a sort): it routes tokens to experts,
or draws the next one. Where every softmax of the forward pass is such, so is every gradient.

Fused attention does the same products, backward one more since it computes the scores again (Dao,
FlashAttention-2, arXiv:2307.08691), and reads and writes no scores. Of scores that a causal mask
hides it computes none: they are half.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec
import numpy as np
import polars as pl

from traceprobe.model.codes import Bools, Int64s, Kind
from traceprobe.model.kernel_classes import kernel_class
from traceprobe.model.numbering import numbered
from traceprobe.model.operands import Operands
from traceprobe.model.taxonomy import Phase
from traceprobe.timeline.operators import MODEL_PHASES
from traceprobe.timeline.score_masks import hidden_scores

FARTHEST = 16
"""Operations from the softmax to the farthest of its products; written out with a mask, a dropout
and autocast's copies there are up to 7 (measured: GPT, ViT)."""
BACKWARD_PRODUCTS = 5 / 4
"""Products of fused attention backward, over those of attention that keeps its scores."""
COPIES = "memory"
"""Stands for the class of copies inside the device."""
_CHOOSES = re.compile(r"top_?k|sort|multinomial", re.IGNORECASE)


class AttentionKernels(msgspec.Struct, frozen=True):
    """Attention that is not fused, in some operations.

    Args:
        count: of softmax kernels that have products.
        ns: durations of all that belongs to it, by class of kernel, or `COPIES`.
        fused_ns: of fused attention with products at the same rate.
        hidden_ns: of that, what masks hide.
    """

    count: int
    ns: dict[str, int]
    fused_ns: int
    hidden_ns: int = 0


def unfused_attention(
    ops: pl.DataFrame, operators: pl.DataFrame, names: Sequence[str], operands: Sequence[Operands]
) -> AttentionKernels:
    """What belongs to attention that is not fused, among operations of one device.

    Args:
        ops: with columns kind, phase, stream, thread, launch_t0, name, t0, t1.
        operators: of the same process, `HOST_OPERATORS`.
        names, operands: of the trace.
    """
    wanted = [int(Kind.KERNEL), int(Kind.D2D)]
    rows = ops.select("kind", "phase", "stream", "thread", "launch_t0", "name", "t0", "t1").filter(
        pl.col("kind").is_in(wanted) & pl.col("phase").is_in(MODEL_PHASES)
    )
    distinct, of_row = numbered(rows["name"].to_numpy())
    classes = [kernel_class(names[number]) for number in distinct]
    if "softmax" not in classes:  # as in most runs, some of which have millions of operations
        return AttentionKernels(0, {}, 0)
    order = rows.select(pl.arg_sort_by("stream", "t0", maintain_order=True)).to_series().to_numpy()
    rows, of_row = rows[order], of_row[order]
    kernel = rows["kind"].to_numpy() == int(Kind.KERNEL)
    label = np.where(kernel, np.array(classes)[of_row], COPIES)
    softmax, product = np.flatnonzero(label == "softmax"), np.char.startswith(label, "matmul")
    products = np.flatnonzero(product)
    strided = np.array([_is_strided_copy(names[number]) for number in distinct])[of_row] & kernel
    chosen = np.array([bool(_CHOOSES.search(names[n])) for n in distinct])[of_row] & kernel
    of_part = _parts(rows)
    hides = hidden_scores(rows, operators, names, operands)
    length = (rows["t1"] - rows["t0"]).to_numpy()
    belongs, count = np.zeros(len(rows), bool), 0
    fused, forward, hidden = 0.0, 0.0, 0.0
    gradient = rows["phase"].to_numpy() == int(Phase.BACKWARD)
    routed = 0
    for at in sorted(softmax.tolist(), key=lambda at: gradient[at]):  # the forward pass first
        backward = gradient[at]
        found = _around(at, 2 if backward else 1, products, of_part)
        if found is None or (backward and routed and not count):
            continue
        low, high = found
        if chosen[low : high + 1].any():
            routed += 1
            continue
        mine = np.arange(low, high + 1)
        work = float(length[mine[product[mine] & ~belongs[mine]]].sum())
        fused += work * (BACKWARD_PRODUCTS if backward else 1.0)
        if not backward:
            forward += work
            hidden += work * hides[low : high + 1].max()
        low, high = (_with_copies(row, to, strided, of_part) for row, to in ((low, -1), (high, 1)))
        belongs[low : high + 1] = True
        count += 1
    spent = {
        name: int(length[belongs & (label == name)].sum())
        for name in sorted(set(label[belongs].tolist()))
    }
    # What is added to scores has no kernel backward: as much is hidden there as forward.
    share = hidden / forward if forward else 0.0
    return AttentionKernels(count, spent, round(fused), round(share * fused))


def _parts(rows: pl.DataFrame) -> Int64s:
    """Number of the stretch of one stream and one phase that each row is in."""
    columns = [rows[name].to_numpy() for name in ("stream", "phase")]
    breaks = np.any([column[1:] != column[:-1] for column in columns], axis=0)
    return np.concatenate([[0], np.cumsum(breaks)]).astype(np.int64)


def _around(at: int, count: int, products: Int64s, part: Int64s) -> tuple[int, int] | None:
    """Rows of the outermost of so many products on both sides of a row; None without them."""
    after = int(np.searchsorted(products, at))
    first, last = after - count, after + count - 1
    if first < 0 or last >= len(products):
        return None
    low, high = int(products[first]), int(products[last])
    near = at - low <= FARTHEST and high - at <= FARTHEST
    return (low, high) if near and part[low] == part[at] == part[high] else None


def _with_copies(row: int, step: int, strided: Bools, part: Int64s) -> int:
    """The farthest row in a direction up to which its part has only copies of strided tensors."""
    ahead = row + step
    while 0 <= ahead < len(strided) and strided[ahead] and part[ahead] == part[row]:
        row, ahead = ahead, ahead + step
    return row


def _is_strided_copy(name: str) -> bool:
    """Whether a kernel copies a strided tensor, as `contiguous()`, and does not cast it."""
    return "direct_copy_kernel" in name and "unrolled_elementwise" not in name
