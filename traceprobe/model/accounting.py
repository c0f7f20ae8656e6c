"""Numbers that decide what counts and as what, listed by `analyze --thresholds`.

The accounting applies them and knows no other threshold.
"""

from __future__ import annotations

MIN_COVERAGE = 0.99
"""Launches with a GPU row, as a share, below which the capture was cut in an iteration."""
LAUNCHED_BEFORE = 0.05
"""Part of the device's busy time in a first iteration from which on work without a launch row is
that of a step before the capture, if the others have no more of it than `MIN_COVERAGE` leaves."""
SKIPPED_AS_BEGUN = "begins with work launched before the capture"
"""How the reason begins for which such an iteration is left out."""
UNRECORDED = 0.05
"""Part of an iteration, as a median, that goes by before its first kernel and after all that the
earlier ones launched, from which on the last of few would miss too much of the next."""
WARM_UP = 3.0
"""Medians of the others that a first iteration lasts at least if it is warm-up."""
STRAGGLER = 2 / 3
"""Part of the waiting for which a rank must have come last, to be the one that is waited for. Of
two ranks that take turns, each is last for half of it."""
FEW_LATE = 1 / 3
"""Part of the ranks that may together be waited for. Where all take turns, two thirds of them are
last for as much of the waiting as `STRAGGLER`."""

LONG_NS = 1_000_000
LONG_INTERVALS = 20
"""A stretch without calls and operators that is long needs a cause: 1 ms, and twenty times the
median time between launches."""
SLACK_NS = 3_000
"""Starts on a stream that are late by less need no explanation."""
HELD_NS = 1_000_000
HELD_LATENCIES = 20
"""What work that was launched starts late by, at least, if it is not the launch that takes so long:
1 ms, and twenty times the median latency of launches to an idle device. A launch reaches an idle
device within some µs, 7 to 14 in public captures; where the clocks of host and device disagree, all
seem to take as long as these differ."""
BATCH_BYTES = 256
"""Copies to the device from this size on bring input; smaller ones are scalars."""
SCALAR_BYTES = 64
"""Copies to the host up to this size are a loss or a flag; larger ones are results."""
RECURS = 3
"""Copies of one size that make it that of a batch."""
TAIL = 0.1
"""Part of what a forward pass launched so far that the end of its loss launches at most. Another
pass over the network launches about as much again."""

LONG_ITERATION = 1.5
"""Medians that an iteration lasts at least, its waiting for data left out, if it does more than the
others."""
SKIPPED_AS_EMPTY = "no GPU work"
"""The reason for which an iteration is left out in which nothing is launched."""
SKIPPED_AS_LONG = "long"
"""How the reason begins for which such an iteration is left out of what is said of the others."""
AS_LONG = 3.0
"""Ratio of what two steps last beyond regular ones up to which they are long for one reason. A
checkpoint of a loop on a CPU took 200 ms under the profiler and 74 to 84 ms without."""
MOST_LONG = 3
"""One iteration in so many may be long; where more are, being long is usual."""
FEWEST_REGULAR = 3
"""Long iterations at one distance from each other that make a period of it."""
LONE_WAIT = 10
"""Medians that a wait for data lasts at least, if it is no burst of a loader's."""
LENGTHS_DIFFER = 1.25
"""Ratio of the operations of regular iterations from which on iterations are of any length."""
ALIKE_PACE = 1.25
"""Ratio of what an operation takes, up to which long iterations do the same more often. Episodes of
a policy gradient on a CPU took 0.60 to 0.74 ms an action."""
ALIKE = 0.1
"""By how much a class's part of the operations differs at most where iterations do the same."""
SET_UP_NS = 200_000
"""What a call lasts at least to be one of set-up. Loading a kernel's code takes 0.3 ms and more."""
SET_UP_MEDIANS = 10.0
"""Medians of the calls of its name that it lasts at least."""
ROOM_NS = 100_000
"""Pause up to which an allocation follows at once on memory that was given back: in recordings of
an allocator that makes room 4 to 8 µs, and up to 60 µs where a profiler records its calls; where
Python comes between them half a millisecond."""
HELD_UP_ERROR = 0.4
"""Standard error of how long pauses and stalls of the host last in other steps, relative;
docs/slowbench.md has how much causes differ between rounds."""
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
SLICE_NS = 100_000
"""What another process's slice of a GPU lasts at least: 0.28 and 0.56 ms were seen (H100, H200)."""
SLICES_ALIKE = 1.15
"""Ratio of the quartiles of slices up to which they are of one length: 1.02 to 1.09 beside a
neighbour, 1.3 and more where work depends on data."""
FEWEST_SLICES = 6
"""Kernels that are stopped by one, at least: fewer may be alike by chance."""
SLICE_KERNELS = 3
"""Kernels of so many names among them, at least: a slice stops any of them."""
SLICES_SHARE = 0.05
"""Part of the time of all kernels that slices are, at least."""
ENDS_TOGETHER = 0.1
"""Deviation of the differences between the ends of collectives on two ranks, in intervals between
two collectives, up to which they are the same ones: half would be as near to the next one, and
several may come that near by chance."""
FEWEST_ALIGNED = 4
"""Collectives that two captures must have in common to be aligned by them."""
