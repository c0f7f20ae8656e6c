"""Numbers that decide what counts and as what, listed by `analyze --thresholds`.

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
SET_UP_NS = 200_000
"""What a call lasts at least to be one of set-up. Loading a kernel's code takes 0.3 ms and more."""
SET_UP_MEDIANS = 10.0
"""Medians of the calls of its name that it lasts at least."""
