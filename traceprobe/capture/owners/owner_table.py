"""Owners as the sidecar holds them: every text once, every owner once, all of it bounded."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from traceprobe.model.owner_limits import LONGEST_OWNER, MOST_OWNERS

_NONE = -1


@dataclass(frozen=True)
class Owner:
    """What a kernel does something for.

    Args:
        modules: from the outermost on, as Kineto names their calls. line: `train.py(57): step`.
        operator: `aten::mm`, or those of a fused kernel. None and empty where not known.
    """

    modules: tuple[str, ...] = ()
    line: str | None = None
    operator: str | None = None


class OwnerTable:
    """Numbers for texts and owners."""

    def __init__(self) -> None:
        self._texts: dict[str, int] = {}
        self._owners: dict[tuple[int, ...], int] = {}

    def text(self, text: str | None) -> int:
        """The number of a text; -1 for none, and for one more than there is room for."""
        if text is None:
            return _NONE
        short = shortened(text)
        if short not in self._texts and len(self._texts) >= MOST_OWNERS:
            return _NONE
        return self._texts.setdefault(short, len(self._texts))

    def owner(self, owner: Owner) -> int:
        """The number of an owner; -1 for one of which nothing is known."""
        if owner == Owner():
            return _NONE
        parts = (owner.operator, owner.line, *owner.modules)
        numbers = tuple(self.text(part) for part in parts)
        if numbers not in self._owners and len(self._owners) >= MOST_OWNERS:
            return _NONE
        return self._owners.setdefault(numbers, len(self._owners))

    def record(self) -> dict[str, Any]:
        """`texts` and `owners` of `traceprobe.model.sidecar.KernelOwners`."""
        return {"texts": list(self._texts), "owners": [list(each) for each in self._owners]}


def shortened(text: str) -> str:
    """A text as it is, or a digest of a long one: names of kernels may be whole programs."""
    if len(text) <= LONGEST_OWNER:
        return text
    return "#" + hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=12).hexdigest()
