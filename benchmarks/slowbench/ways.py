"""A way in which a cause gets into a program: other options, or a line that is put in."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Range:
    """A number that is drawn evenly between two; a whole one where both are, and of `step`."""

    low: float
    high: float
    step: int = 1

    def draw(self, source: random.Random) -> float:
        """One of them."""
        if isinstance(self.low, int) and isinstance(self.high, int):
            return source.randrange(self.low, self.high + 1, self.step)
        return round(source.uniform(self.low, self.high), 3)


def drawn(options: Mapping[str, Any], source: random.Random) -> dict[str, Any]:
    """Options with a number for each range."""
    return {k: v.draw(source) if isinstance(v, Range) else v for k, v in options.items()}


@dataclass(frozen=True)
class Way:
    """A way in which a cause gets into a program.

    Args:
        options: of the slow form, beside the healthy ones.
        both: of both forms.
        lines: what is put in, each with the beginning of the statement that it goes before; {level}
            is drawn from `level`, {pass} is the program's forward pass with a share of a batch.
        helpers: lines that both forms get, before the model is made.
        level: how strong it is. small: the same on a CPU; options, where there are `options`.
        period: steps after which the slow form repeats itself.
        on_cpu: whether a CPU feels it.
        neighbour: whether another process computes beside the slow form.
        rank: the one that has it; None where all have.
    """

    cause: str
    options: Mapping[str, Any] = field(default_factory=dict)
    both: Mapping[str, Any] = field(default_factory=dict)
    lines: tuple[tuple[str, str], ...] = ()
    helpers: tuple[str, ...] = ()
    level: Range | None = None
    small_level: Range | None = None
    small: Mapping[str, Any] = field(default_factory=dict)
    period: int = 1
    on_cpu: bool = False
    neighbour: bool = False
    rank: int | None = None


def option(cause: str, **options: Any) -> Way:
    """Other options, on a GPU alone."""
    return Way(cause, options)


EAGER = {"compiled": False}
"""Both forms without `torch.compile`, which would take the cause away."""
PIECEWISE = option("piecewise-optimizer", fused=False, foreach=False)
RETRIES = Way(
    "allocator-retries",
    lines=(("loss.backward()", "torch.empty(next(sizes), dtype=torch.uint8, device=device)"),),
    helpers=(
        "import itertools",
        "whole = torch.cuda.get_device_properties(0).total_memory",
        "torch.cuda.set_per_process_memory_fraction({level})",
        "torch.cuda.memory._set_allocator_settings('max_split_size_mb:1024')",
        "sizes = itertools.cycle((int(0.5 * {level} * whole), int(0.55 * {level} * whole)))",
    ),
    level=Range(0.12, 0.16),
)
"""Two sizes, of which the allocator's cache can hold one: for the other it has to be emptied.

Neither is handed out in pieces, for a block that is partly in use cannot be given back.
"""
