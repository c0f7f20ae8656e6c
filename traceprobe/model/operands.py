"""What an operator was called with, as a profiler that records shapes notes it."""

from __future__ import annotations

import msgspec


class Operand(msgspec.Struct, frozen=True, array_like=True):
    """One argument of an operator.

    Args:
        type: as PyTorch writes it: of the elements of a tensor ("float", "c10::BFloat16"), else
            "Scalar", "ScalarList", "TensorList" or nothing.
        dims: sizes of the tensor, or of each tensor of a list; none for other arguments, and for
            lists that are too long to be noted.
        stored: elements of each in memory, where those of an expanded tensor are there once.
        value: a scalar or a list of them as text, of the few operators whose work depends on it.
    """

    type: str
    dims: tuple[tuple[int, ...], ...] = ()
    stored: tuple[int, ...] = ()
    value: str = ""


Operands = tuple[Operand, ...]
"""The arguments of a call, in the order of the operator's signature."""
