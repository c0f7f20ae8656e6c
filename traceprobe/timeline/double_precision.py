"""Kernels of forward and backward pass that compute with numbers of 64 bits.

An operator says so where its sizes were recorded: one of its tensors has such elements, more than
one of them. PyTorch notes that of compiled kernels too (Triton's, from 2.6). It says nothing of
kernels that name another type, nor of one kernel of a compiled graph, unless most of
what that reads is such. Names do, too:
PyTorch's kernels begin the arguments of their templates with the type that they compute in, or end
a lambda with it, libraries write `dgemm` or `d884`. Types further on, and in lists and options, are
of numbers that a kernel was launched with, as the learning rate of an optimizer in any precision.
Compiled kernels have no types in their names: without operators, what a recording noted of their
texts tells, and nothing is known of them where it noted none.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from math import prod
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from traceprobe.model.codes import UNKNOWN, Bools
from traceprobe.model.kernel_classes import kernel_class
from traceprobe.model.numbering import numbered
from traceprobe.model.operands import Operand, Operands
from traceprobe.timeline.operators import launching_rows, model_kernels

if TYPE_CHECKING:
    import polars as pl

_TYPES = ("double", "c10::complex<double>")
_NAMED = re.compile(
    # Numbers before the type are `2` in Kineto's names and `(int)2` in those of Nsight Systems.
    r"(?<!optional)(?<!ArrayRef)(?<!vector)(?<!complex)"
    r"<(?:(?:\(int\))?\d+, )*(?:c10::complex<)?double[,>]|lambda\(double[,)]"
    r"|(?<![a-z])dgem[mv]|d884gemm|f64f64",
)
_OTHERWISE = re.compile(
    r"<(?:(?:\(int\))?\d+, )*(?:c10::complex<)?"
    r"(?:float|c10::Half|c10::BFloat16|__half|__nv_bfloat16)[,>]|lambda\((?:float|c10::Half|c10::BFloat16)[,)]"
    r"|(?<![a-z])[sh]gem[mv]|[sh](?:884|1688|16816)gemm|tf32f32|(?<!f)f16f16|bf16bf16",
)
"""Names of kernels that compute with fewer bits."""
_GRAPH = re.compile(r"CompiledFunction|Torch-Compiled")


class DoubleKernels(msgspec.Struct, frozen=True):
    """Kernels that compute in double precision, of some operations.

    Args:
        ns: durations by class of kernel.
        names: of kernels that always do, as indices into the names; those of most time first.
        typed: operators tell, or compiled kernels were noted, so that these are all.
    """

    ns: dict[str, int]
    names: list[int]
    typed: bool = False


def double_kernels(
    ops: pl.DataFrame,
    operators: pl.DataFrame,
    names: Sequence[str],
    operands: Sequence[Operands],
    noted: Collection[str] | None = None,
) -> DoubleKernels:
    """What computes in double precision among operations of one device.

    Args:
        ops: with columns kind, phase, thread, launch_t0, name, t0, t1.
        operators: of the same process, `HOST_OPERATORS`.
        names, operands: of the trace.
        noted: compiled kernels of which the recording knows that they do; None of none that knows.
    """
    rows = model_kernels(ops)
    distinct, of_row = numbered(rows["name"].to_numpy())
    known = frozenset(noted or ())
    each = [names[number] for number in distinct.tolist()]
    named = [name in known or _NAMED.search(name) is not None for name in each]
    other = np.array([_OTHERWISE.search(name) is not None for name in each], dtype=np.bool_)
    called = _called(rows, operators, operands, names) & ~other[of_row]
    double = np.array(named, dtype=np.bool_)[of_row] | called
    if not double.any():
        return DoubleKernels({}, [])
    typed = noted is not None or bool((operators["operands"] != UNKNOWN).any())
    length = (rows["t1"] - rows["t0"]).to_numpy()
    spent = np.bincount(of_row[double], length[double], len(distinct)).astype(np.int64)
    ns: dict[str, int] = {}
    for name, took in zip(each, spent.tolist(), strict=True):
        kind = kernel_class(name)
        ns[kind] = ns.get(kind, 0) + took
    always = np.bincount(of_row[double], minlength=len(distinct)) == np.bincount(of_row)
    order = np.argsort(-spent, kind="stable")
    chosen = distinct[order[(always & (spent > 0))[order]]]
    by_class = {kind: ns[kind] for kind in sorted(ns) if ns[kind]}
    return DoubleKernels(by_class, chosen.tolist(), typed)


def _called(
    rows: pl.DataFrame,
    operators: pl.DataFrame,
    operands: Sequence[Operands],
    names: Sequence[str],
) -> Bools:
    """Which kernels were launched by operators with tensors of 64 bits."""
    found = {number for number, each in enumerate(operands) if _doubles(each)}
    if not found:
        return np.zeros(len(rows), dtype=np.bool_)
    mostly = {
        number for number in found if 2 * _doubles(operands[number]) > _typed(operands[number])
    }
    at = launching_rows(rows, operators)
    graphs = [n for n in operators["name"].unique().to_list() if _GRAPH.match(names[n])]
    given = operators["operands"].to_numpy()
    double = np.isin(given, list(found))
    double &= ~np.isin(operators["name"].to_numpy(), graphs) | np.isin(given, list(mostly))
    called: Bools = (at != UNKNOWN) & double[np.maximum(at, 0)]
    return called


def _doubles(operands: Operands) -> int:
    """Tensors of more than one number of 64 bits."""
    return sum(operand.type in _TYPES for operand in operands if _is_many(operand))


def _typed(operands: Operands) -> int:
    """Tensors of more than one number."""
    return sum(map(_is_many, operands))


def _is_many(operand: Operand) -> bool:
    return any(prod(sizes) > 1 for sizes in operand.dims)
