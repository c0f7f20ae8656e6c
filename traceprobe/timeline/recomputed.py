"""Forward kernels that the backward pass launches again, where no operator tells.

Compiled graphs and Nsight's recordings do not say which kernels of a backward pass are activation
checkpointing's. Fused attention does: forward and backward it has kernels of different names
(`flash_fwd_kernel`, `flash_bwd_…`), and no gradient needs the forward one. Beside it products of
matrices tell: the gradients of a layer have their operands in another layout than its own product,
and so other kernels. What the backward pass launches of the forward pass's own kernels, with as
many blocks, is a forward pass, and so is all that runs between two of them: wherever gradients are
made, there is a product or attention of their own. What sets or copies memory of the device goes
with the kernel that its thread launches next, as libraries clear their workspace before a product.

Without fused attention nothing is told. Attention in parts multiplies gradients by the kernels that
made its scores, and the gradient of a transposed convolution is a convolution.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import polars as pl

from traceprobe.model.codes import UNKNOWN, Bools, Int64s, Kind
from traceprobe.model.kernel_classes import kernel_class
from traceprobe.model.numbering import numbered
from traceprobe.model.taxonomy import Phase

MOST = 1.5
"""Launches of a kernel in backward passes over those in forward passes, at most: checkpointing runs
a layer again once, and a recording may begin amid a step. What gradients launch more often than the
forward pass is theirs, for whatever else the forward pass has it."""
_PREPARING = [int(Kind.MEMSET), int(Kind.D2D)]
"""What prepares the memory of a kernel."""
_ATTENTION = "(flash|fmha|sdpa|attn|attention)"
_FORWARD = re.compile(rf"{_ATTENTION}.*(fwd|fprop|forward)|fmha_cutlassF", re.IGNORECASE)
_BACKWARD = re.compile(rf"{_ATTENTION}.*(bwd|bprop|backward)|fmha_cutlassB", re.IGNORECASE)


def computed_again(
    ops: pl.DataFrame, names: Sequence[str], phase: Int64s, step_thread: int
) -> Bools:
    """Which operations of one process compute activations for the backward pass again.

    Looked at are threads other than the step's that launch the gradients of fused attention, and
    their kernels of the backward pass; the forward pass is what other threads launched on the same
    device.

    Args:
        ops: with columns kind, device, thread, launch_t0, name and grid.
        names: of the trace.
        phase: of each operation, where no kernel tells.
    """
    again = np.zeros(len(ops), dtype=np.bool_)
    thread = ops["thread"].to_numpy()
    kind = ops["kind"].to_numpy()
    launched = (kind == int(Kind.KERNEL)) & (thread != UNKNOWN)
    passes_back = (phase == int(Phase.BACKWARD)) & (thread != step_thread)
    backward = launched & passes_back
    prepares = np.isin(kind, _PREPARING) & passes_back
    distinct = np.unique(ops["name"].to_numpy()[backward]).tolist()
    attention = {n: _attention(names[n]) for n in distinct}
    if not {Phase.FORWARD, Phase.BACKWARD} <= set(attention.values()):
        return again
    device, forward = ops["device"].to_numpy(), launched & (phase == int(Phase.FORWARD))
    at = ops["launch_t0"].to_numpy()
    where = np.unique(np.stack([device[backward], thread[backward]]), axis=1)
    for of_device, of_thread in where.T.tolist():
        here, own = device == of_device, thread == of_thread
        rows = np.flatnonzero(backward & here & own)
        rows = rows[np.argsort(at[rows], kind="stable")]
        theirs = np.flatnonzero(forward & here & ~own)
        told = _told(ops[rows], ops[theirs], names, attention)
        again[rows[told]] = True
        before = np.flatnonzero(prepares & here & own)
        again[before] = np.append(told, False)[np.searchsorted(at[rows], at[before])]
    return again


def _told(
    backward: pl.DataFrame,
    forward: pl.DataFrame,
    names: Sequence[str],
    attention: dict[int, Phase | None],
) -> Bools:
    """Which kernels that a thread launches backward, in their order, are of a forward pass.

    Args:
        forward: kernels of the forward pass.
        attention: what the kernels' names say of attention.
    """
    both = pl.concat([backward.select("name", "grid"), forward.select("name", "grid")])
    number = both.select(pl.struct("name", "grid").rank("dense")).to_series().to_numpy() - 1
    own, others = number[: len(backward)], number[len(backward) :]
    mine, theirs = (np.bincount(part, minlength=len(both)) for part in (own, others))
    usual = (theirs > 0) & (mine <= MOST * theirs)
    distinct, of_row = numbered(backward["name"].to_numpy())
    products = [kernel_class(names[n]).startswith("matmul") for n in distinct.tolist()]
    product, passes = np.array(products)[of_row], [attention[n] for n in distinct.tolist()]
    again: Bools = product & usual[own]
    anchors = again & np.array([each is Phase.FORWARD for each in passes])[of_row]
    if not anchors.any() or Phase.BACKWARD not in passes:
        return np.zeros(len(backward), dtype=np.bool_)
    # Of the nearest products before and after each kernel; at the ends there is none.
    padded = np.concatenate([[False], again[product], [False]])
    count = np.cumsum(product)
    return np.where(product, again, padded[count] & padded[count + 1])


def _attention(name: str) -> Phase | None:
    """The pass that a kernel of fused attention is for; None for other kernels."""
    if not kernel_class(name).startswith("matmul"):
        return None
    if _BACKWARD.search(name):
        return Phase.BACKWARD
    return Phase.FORWARD if _FORWARD.search(name) else None
