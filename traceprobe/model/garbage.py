"""Ranges around collections of garbage: Python's collector stops the thread that it runs on.

No profiler shows them. `traceprobe profile` writes a range around each; so may a program that
collects by itself.
"""

from __future__ import annotations

import re

_NAME = "Python garbage collection"
_COLLECTS = re.compile(r"garbage[ _-]?collect|\bgc\.collect\b", re.IGNORECASE)
_FIRST = 80
"""Characters of a name that are looked at."""


def collection_name(generation: int) -> str:
    """Name of the range around a collection of that generation."""
    return f"{_NAME} (generation {generation})"


def is_collecting(name: str) -> bool:
    """Whether a range is around a collection, by its name."""
    return _COLLECTS.search(name[:_FIRST]) is not None
