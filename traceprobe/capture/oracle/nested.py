"""Batches of any make: tensors in dictionaries, sequences and objects."""

from __future__ import annotations

import copy
from collections.abc import Iterator, MutableMapping
from typing import Any

_DEEPEST = 8


def tensors(batch: Any, depth: int = 0) -> Iterator[Any]:
    """The tensors of a nested batch."""
    import torch

    if isinstance(batch, torch.Tensor):
        yield batch
    elif depth < _DEEPEST:
        for part in _parts(batch):
            yield from tensors(part, depth + 1)


def rebuilt(batch: Any) -> Any:
    """The same tensors in containers of their own: programs take entries out of theirs."""
    import torch

    if isinstance(batch, (torch.Tensor, str, bytes, int, float, type(None))):
        return batch
    if isinstance(batch, tuple):
        parts = map(rebuilt, batch)
        return type(batch)(*parts) if hasattr(batch, "_fields") else tuple(parts)
    if type(batch) is list:
        return [rebuilt(part) for part in batch]
    other = copy.copy(batch)
    if isinstance(other, MutableMapping):
        for key, value in batch.items():
            other[key] = rebuilt(value)
    return other


def version_of(tensor: Any) -> int:
    """How often a tensor was changed in place; 0 where PyTorch does not count."""
    try:
        return int(tensor._version)
    except RuntimeError:  # made in inference mode
        return 0


def _parts(batch: Any) -> Iterator[Any]:
    if isinstance(batch, MutableMapping):
        yield from batch.values()
    elif isinstance(batch, (list, tuple)):
        yield from batch
    elif not isinstance(batch, (str, bytes, type)):
        yield from getattr(batch, "__dict__", {}).values()
