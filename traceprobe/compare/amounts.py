"""How much work runs of several world sizes do: weak scaling, strong scaling, or neither.

Weak scaling keeps the work of a rank, strong scaling that of all ranks together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from traceprobe.compare.run import NothingToCompare, Observed
from traceprobe.formatting import plain
from traceprobe.records.scaling import Mode, Work

SAME = 0.01
"""Relative difference up to which two amounts of work are the same."""


class Amounts(msgspec.Struct, frozen=True):
    """Work of all ranks in a step, by world size, and what it says of the runs."""

    unit: Work
    of: Mapping[int, float]
    mode: Mode
    why: str
    even: bool

    def at(self, ranks: int) -> float:
        """The same for a world size without a run: of the largest run, as the mode has it."""
        largest = max(self.of)
        scale = ranks / largest if self.mode == "weak" else 1.0
        return self.of.get(ranks, self.of[largest] * scale)

    def of_rank(self, ranks: int) -> float:
        """Work of one rank in a step."""
        return self.at(ranks) / ranks


def amounts_of(runs: Mapping[int, Observed], asked: Mode | None) -> Amounts:
    """Work of the runs, and whether that is weak or strong scaling.

    Args:
        runs: by world size.
        asked: the mode, where the runs do not tell.

    Raises:
        NothingToCompare: the runs do not tell and nobody said, or what was said contradicts them.
    """
    units: tuple[Work, Work] = ("samples", "tokens")
    for unit in units:
        known = {n: value for n, run in runs.items() if (value := run.per_step(unit)) is not None}
        if len(known) == len(runs):
            return _told(unit, known, asked)
    if asked is None:
        raise NothingToCompare(
            "not all runs record how many samples a step holds; say with --mode whether each rank "
            "had the same number of them (weak) or all ranks together (strong)"
        )
    said = f"--mode {asked}; the runs do not record how many samples a step holds"
    if asked == "weak":
        return Amounts("rank steps", {n: float(n) for n in runs}, "weak", said, True)
    return Amounts("steps", dict.fromkeys(runs, 1.0), "strong", said, True)


def _told(unit: Work, known: Mapping[int, float], asked: Mode | None) -> Amounts:
    each = [amount / n for n, amount in known.items()]
    amounts = ", ".join(f"{plain(amount)} on {n}" for n, amount in known.items())
    mode: Mode
    if _same(each):
        mode, why = "weak", f"each rank has {plain(each[0])} {unit} in a step"
    elif _same(list(known.values())):
        whole = next(iter(known.values()))
        mode, why = "strong", f"all ranks together have {plain(whole)} {unit} in a step"
    elif asked is not None:
        return Amounts(unit, known, asked, f"--mode {asked}; {unit} of a step: {amounts}", False)
    else:
        raise NothingToCompare(
            f"neither weak nor strong scaling: {unit} of a step are {amounts} ranks, the same "
            "neither for each rank nor for all together; say with --mode weak or --mode strong "
            "what to look ahead with"
        )
    if asked not in (None, mode):
        raise NothingToCompare(f"--mode {asked}: in all runs {why}, which is {mode} scaling")
    return Amounts(unit, known, mode, why, True)


def _same(values: Sequence[float]) -> bool:
    return max(values) - min(values) <= SAME * max(values)
