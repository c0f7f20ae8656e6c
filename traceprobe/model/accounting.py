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
CLOCK_CHANGED = 1.10
"""Ratio of how long the same kernels take from which on the GPU's speed changed. Steady public
captures stay below 1.02."""
CLOCK_LONG_NS = 10_000
"""What a kernel lasts at least to be compared: shorter ones are mostly latency."""
CLOCK_KERNELS = 10
"""Kernels of an iteration that are compared at least."""
CLOCK_SHARE = 0.5
"""Share of all kernel time that they make up at least."""
FEWEST_STEADY = 3
"""Iterations that have to be left where those of another speed are left out."""
