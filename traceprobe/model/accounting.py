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

LONG_NS = 1_000_000
LONG_INTERVALS = 20
"""A stretch without calls and operators that is long needs a cause: 1 ms, and twenty times the
median time between launches."""
BATCH_BYTES = 256
"""Copies to the device from this size on bring input; smaller ones are scalars."""
SCALAR_BYTES = 64
"""Copies to the host up to this size are a loss or a flag; larger ones are results."""
RECURS = 3
"""Copies of one size that make it that of a batch."""

LONG_ITERATION = 1.5
"""Medians that an iteration lasts at least, its waiting for data left out, if it does more than the
others."""
MOST_LONG = 3
"""One iteration in so many may be long; where more are, being long is usual."""
LONE_WAIT = 10
"""Medians that a wait for data lasts at least, if it is no burst of a loader's."""
