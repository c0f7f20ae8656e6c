"""Names of ranges that count the loop, such as `step 7` or `ProfilerStep#12`."""

from __future__ import annotations

import re

_COUNTER = re.compile(r"(step|iter|batch|epoch)\w{0,40}[ _#:]{0,8}\d{1,20}$", re.IGNORECASE)
_END = 80
"""Characters at the end of a name that the expression can fit; elsewhere it would try in vain."""


OURS = r"step \d+"
"""Ranges that recordings have around their steps, see `step_name`."""
OF_PROFILER = r"ProfilerStep#\d+"
"""Those that PyTorch's profiler has."""
OWN_MARKS = frozenset({OF_PROFILER, OURS})
"""Patterns of the ranges that recordings have around their steps."""


def step_name(number: int) -> str:
    """Name of the range around a step of a recording."""
    return f"step {number}"


def counts_the_loop(name: str) -> bool:
    """Whether a name is a word for a step and a number."""
    return _COUNTER.search(name[-_END:]) is not None
