"""Shapes, types and scalars that operators were called with, each distinct list of them once."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from math import prod
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np

from traceprobe.ingest.kineto.event import Args, Number
from traceprobe.ingest.untrusted_values import JSON_ERRORS, bounded_text
from traceprobe.model.codes import UNKNOWN, Int64s
from traceprobe.model.operands import Operand, Operands

MOST = 1 << 16
"""Distinct lists that are kept: a model has some hundreds."""
LONGEST = 1 << 12
"""Bytes of one argument list; PyTorch itself names at most 30 tensors of a list."""
_LARGEST, _MOST_DIMS, _LONGEST_TYPE, _LONGEST_VALUE = 1 << 50, 64, 64, 128
_VALUED = re.compile(r"conv|attention|index_select", re.IGNORECASE)
"""Operators whose work depends on their scalars. Those of others may differ in every call."""
_DIMS = attrgetter("dims")
Texts = tuple[bytes, ...]
"""Of a call, in JSON: sizes, types, strides, and scalars where these count."""


class OperandTexts:
    """Distinct operands of a chunk's operators, as they are in the file.

    `found` are those that are not too long, in order of their first appearance.
    """

    def __init__(self) -> None:
        self.found: dict[Texts, int] = {}
        self._valued: dict[Number, bool] = {}

    def numbers(self, names: Iterable[Number], args: Sequence[Args]) -> Int64s:
        """Number of the operands of each call; UNKNOWN where none are noted, or long ones."""
        numbers = np.full(len(args), UNKNOWN, dtype=np.int64)
        if not any(map(_DIMS, args)):
            return numbers
        found, valued = self.found, self._valued
        for row, (name, noted) in enumerate(zip(names, args, strict=True)):
            # Once a call: what is rare is looked at only where a list is new.
            texts: Texts = (bytes(noted.dims), bytes(noted.types), bytes(noted.strides))
            if valued[name] if name in valued else self._look(name):
                texts = (*texts, bytes(noted.values))
            numbers[row] = found[texts] if texts in found else self._add(texts)
        return numbers

    def _look(self, name: Number) -> bool:
        valued = self._valued[name] = bool(_VALUED.search(str(name)[:LONGEST]))
        return valued

    def _add(self, texts: Texts) -> int:
        if max(map(len, texts)) > LONGEST:
            return UNKNOWN
        number = self.found[texts] = len(self.found)
        return number


class OperandTable:
    """Distinct operands of a trace by number.

    `found` are those that could be read, in order of their first appearance.
    """

    def __init__(self) -> None:
        self.found: list[Operands] = []
        self._numbers: dict[Texts, int] = {}

    def numbers(self, texts: Iterable[Texts]) -> Int64s:
        """The number of each of some texts; UNKNOWN of what are no operands, or too many."""
        return np.array([self._number(each) for each in texts], dtype=np.int64)

    def _number(self, texts: Texts) -> int:
        if texts in self._numbers:
            return self._numbers[texts]
        if len(self._numbers) >= MOST:
            return UNKNOWN
        operands = read_operands(*texts)
        number = self._numbers[texts] = UNKNOWN if operands is None else len(self.found)
        if operands is not None:
            self.found.append(operands)
        return number


def read_operands(
    dims: bytes, types: bytes, strides: bytes = b"", values: bytes = b""
) -> Operands | None:
    """The operands in the JSON texts of a call; None where these are anything else.

    Args:
        dims, types, strides, values: `Input Dims`, `Input type`, `Input Strides` and
            `Concrete Inputs` of an event.
    """
    sizes, kinds, steps, texts = map(_list, (dims, types, strides, values))
    if not sizes or len(kinds) != len(sizes):
        return None
    steps = steps if len(steps) == len(sizes) else [None] * len(sizes)
    texts = texts if len(texts) == len(sizes) else [""] * len(sizes)
    found = tuple(map(_operand, sizes, kinds, steps, texts))
    return None if None in found else found  # type: ignore[return-value]


def _list(text: bytes) -> list[Any]:
    try:
        return msgspec.json.decode(text, type=list[Any]) if text else []
    except JSON_ERRORS:
        return []


def _operand(dims: Any, kind: Any, strides: Any, value: Any) -> Operand | None:
    if not isinstance(dims, list) or not isinstance(kind, str):
        return None
    nested = bool(dims) and all(isinstance(each, list) for each in dims)
    tensors = dims if nested else [dims]
    steps = strides if nested else [strides]
    if not isinstance(steps, list) or len(steps) != len(tensors):
        steps = [None] * len(tensors)
    if not all(map(_is_shape, tensors)):
        return None
    text = bounded_text(value, _LONGEST_VALUE) if isinstance(value, str) else ""
    kind = bounded_text(kind, _LONGEST_TYPE)
    if not nested and not dims and kind in ("", "Scalar", "ScalarList", "TensorList"):
        return Operand(kind, value=text)
    stored = tuple(map(_stored, tensors, steps))
    return Operand(kind, tuple(map(tuple, tensors)), stored, text)


def _is_shape(dims: list[Any]) -> bool:
    """Whether these are sizes of a tensor that can be."""
    known = len(dims) <= _MOST_DIMS and all(type(n) is int and 0 <= n < _LARGEST for n in dims)
    return known and prod(dims) < _LARGEST


def _stored(dims: list[int], strides: Any) -> int:
    known = isinstance(strides, list) and len(strides) == len(dims)
    if not known or not all(dims):
        return prod(dims)
    return prod(n for n, step in zip(dims, strides, strict=True) if step != 0)
