"""Numbers that decide which iterations and ranks count, listed by `analyze --thresholds`.

The accounting applies them and knows no other threshold.
"""

from __future__ import annotations

MIN_COVERAGE = 0.99
"""Launches with a GPU row, as a share, below which the capture was cut in an iteration."""
WARM_UP = 3.0
"""Medians of the others that a first iteration lasts at least if it is warm-up."""
STRAGGLER = 2 / 3
"""Part of the waiting for which a rank must have come last, to be the one that is waited for. Of
two ranks that take turns, each is last for half of it."""
FEW_LATE = 1 / 3
"""Part of the ranks that may together be waited for. Where all take turns, two thirds of them are
last for as much of the waiting as `STRAGGLER`."""
ENDS_TOGETHER = 0.1
"""Deviation of the differences between the ends of collectives on two ranks, in intervals between
two collectives, up to which they are the same ones: half would be as near to the next one, and
several may come that near by chance."""
FEWEST_ALIGNED = 4
"""Collectives that two captures must have in common to be aligned by them."""
