"""Forward kernels that the backward pass launches again, where no operator tells.

Compiled graphs and Nsight's recordings do not say which kernels of a backward pass are activation
checkpointing's. Some kernels do: fused attention, normalisation and softmax have other ones forward
(`flash_fwd_kernel`, `batch_norm_collect_statistics_kernel`, `softmax_warp_forward`) than backward,
and no gradient needs the forward ones. Beside them products of matrices tell: the gradients of a
layer have their operands in another layout than its own product, and so other kernels. What the
backward pass launches of the forward pass's own kernels, with as many blocks, is a forward pass.
So is all that runs between two of them: wherever gradients are made, there is a product, or a
gradient by its name. What sets or copies memory of the device goes with the kernel that its thread
launches next, as libraries clear their workspace before a product, and conversions of the layout
with the convolution that they are for.

A convolution tells less: the gradient of a transposed one is a convolution as of the forward pass.
It runs again where what comes next of those that say their pass does.

Without a forward kernel of that kind nothing is told. Attention in parts multiplies gradients by
the kernels that made its scores.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import polars as pl

from traceprobe.model.codes import UNKNOWN, Bools, Int64s, Kind
from traceprobe.model.kernel_classes import ATTENTION, is_compiled, kernel_class, multiplies
from traceprobe.model.numbering import numbered
from traceprobe.model.taxonomy import Phase

MOST = 1.5
"""Launches of a kernel in backward passes over those in forward passes, at most: checkpointing runs
a layer again once, and a recording may begin amid a step. What gradients launch more often than the
forward pass is theirs, for whatever else the forward pass has it."""
_PREPARING = [int(Kind.MEMSET), int(Kind.D2D)]
"""What prepares the memory of a kernel."""
_SAYS_FORWARD = re.compile(
    rf"({ATTENTION}).{{0,200}}?(fwd|fprop|forward)|fmha_cutlassF", re.IGNORECASE
)
_SAYS_BACKWARD = re.compile(
    rf"({ATTENTION}).{{0,200}}?(bwd|bprop|backward)|fmha_cutlassB|wgrad", re.IGNORECASE
)
"""Words far from each other are not looked for: in a long name that would take a long time."""
_CONVOLUTION = re.compile(r"conv|fprop|dgrad|implicit_gemm|winograd", re.IGNORECASE)
_CONVERTED_BACK = re.compile(r"nhwc_?(to_?|2)nchw", re.IGNORECASE)
_OF_ROWS = r"(norm|softmax|(?<![a-z])[bl]n)\w{0,40}?"
_FORWARD_OF_ROWS = re.compile(
    rf"{_OF_ROWS}(fwd|forward|fw_tr|fwtr)|batch_norm_(collect_statistics|transform_input)"
    r"|layer_norm_kernel|RowwiseMoments",
    re.IGNORECASE,
)
_BACKWARD_OF_ROWS = re.compile(
    rf"{_OF_ROWS}(bwd|backward|bw_|bwtr|grad)|GammaBetaBackward", re.IGNORECASE
)
"""Normalisation and softmax, of PyTorch, cuDNN, MIOpen and libraries of fused kernels."""


def computed_again(
    ops: pl.DataFrame, names: Sequence[str], phase: Int64s, step_thread: int
) -> Bools:
    """Which operations of one process compute activations for the backward pass again.

    Looked at are threads other than the step's that launch both kinds of kernels that say their
    pass, and their kernels of the backward pass; the forward pass is what other threads launched on
    the same device.

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
    says = {n: _pass(names[n]) for n in distinct}
    if not {Phase.FORWARD, Phase.BACKWARD} <= set(says.values()):
        return again
    device, forward = ops["device"].to_numpy(), launched & (phase == int(Phase.FORWARD))
    at = ops["launch_t0"].to_numpy()
    where = np.unique(np.stack([device[backward], thread[backward]]), axis=1)
    for of_device, of_thread in where.T.tolist():
        here, own = device == of_device, thread == of_thread
        rows = np.flatnonzero(backward & here & own)
        rows = rows[np.argsort(at[rows], kind="stable")]
        theirs = np.flatnonzero(forward & here & ~own)
        told = _told(ops[rows], ops[theirs], names, says)
        again[rows[told]] = True
        before = np.flatnonzero(prepares & here & own)
        again[before] = np.append(told, False)[np.searchsorted(at[rows], at[before])]
    return again


def _told(
    backward: pl.DataFrame,
    forward: pl.DataFrame,
    names: Sequence[str],
    says: dict[int, Phase | None],
) -> Bools:
    """Which kernels that a thread launches backward, in their order, are of a forward pass.

    Args:
        forward: kernels of the forward pass.
        says: the pass that each kernel's name is of.
    """
    both = pl.concat([backward.select("name", "grid"), forward.select("name", "grid")])
    number = both.select(pl.struct("name", "grid").rank("dense")).to_series().to_numpy() - 1
    own, others = number[: len(backward)], number[len(backward) :]
    mine, theirs = (np.bincount(part, minlength=len(both)) for part in (own, others))
    usual = ((theirs > 0) & (mine <= MOST * theirs))[own]
    distinct, of_row = numbered(backward["name"].to_numpy())
    kinds = [_kind(names[n], says[n]) for n in distinct.tolist()]
    kind = {field: np.array([getattr(k, field) for k in kinds])[of_row] for field in _Kind._fields}
    if not (usual & kind["forward"]).any() or not kind["backward"].any():
        return np.zeros(len(backward), dtype=np.bool_)
    certain = kind["forward"] | kind["backward"]
    again = usual & (kind["forward"] | kind["product"]) & ~kind["backward"]
    _, following = _nearest(certain, again)
    again &= ~kind["convolution"] | following
    telling = certain | kind["product"]
    before, after = _nearest(telling, again)
    alike = [telling, kind["precedes"], kind["succeeds"]]
    return np.select(alike, [again, after, before], before & after)


class _Kind(NamedTuple):
    """What a kernel's name says of it.

    Args:
        convolution: one that says no pass.
        forward, backward: the pass that it says.
        precedes, succeeds: converts the layout for a convolution, or of what one made.
    """

    product: bool
    convolution: bool
    forward: bool
    backward: bool
    precedes: bool
    succeeds: bool


def _kind(name: str, says: Phase | None) -> _Kind:
    product = multiplies(name)
    converts = kernel_class(name) == "layout"
    made = bool(_CONVERTED_BACK.search(name))
    return _Kind(
        product=product,
        convolution=product and says is None and bool(_CONVOLUTION.search(name)),
        forward=says is Phase.FORWARD,
        backward=says is Phase.BACKWARD,
        precedes=converts and not made,
        succeeds=converts and made,
    )


def _nearest(which: Bools, value: Bools) -> tuple[Bools, Bools]:
    """Values of the nearest of those rows before and after each other row; at the ends false."""
    padded = np.concatenate([[False], value[which], [False]])
    count = np.cumsum(which)
    return padded[count], padded[count + 1]


def _pass(name: str) -> Phase | None:
    """The pass that a kernel is for; None for one that does not say so."""
    if is_compiled(name):
        return None
    if multiplies(name):
        backward, forward = _SAYS_BACKWARD, _SAYS_FORWARD
    else:
        backward, forward = _BACKWARD_OF_ROWS, _FORWARD_OF_ROWS
    if backward.search(name):
        return Phase.BACKWARD
    return Phase.FORWARD if forward.search(name) else None
