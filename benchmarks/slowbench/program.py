"""A training program with nothing left to mend, and the ways in which causes get into it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.saving.catalog import PROGRAMS
from benchmarks.slowbench.anywhere import ANYWHERE
from benchmarks.slowbench.ways import Way


@dataclass(frozen=True)
class Program:
    """A program.

    Args:
        healthy: its options on a GPU. small: beside those, on a CPU.
        forward: the beginning of the statement with the forward pass, and that pass with a share of
            the batch.
        ways: those of this program alone. without: causes whose usual line is not for it.
        needs: modules that it imports, beside PyTorch and NumPy.
        ranks: processes that train together.
    """

    name: str
    healthy: Mapping[str, Any]
    small: Mapping[str, Any]
    forward: tuple[str, str]
    ways: tuple[Way, ...] = ()
    without: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    ranks: int = 1

    @property
    def source(self) -> str:
        """Its text."""
        return (PROGRAMS / f"{self.name}.py").read_text(encoding="utf-8")

    @property
    def all_ways(self) -> tuple[Way, ...]:
        """Its own, and the lines that go into any program of one process."""
        lines = ANYWHERE if self.ranks == 1 else ()
        return (*self.ways, *(way for way in lines if way.cause not in self.without))
