"""A file that the benchmarks read."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Input:
    """One file to read.

    Args:
        factor: how often it repeats the events of its source.
        events: events of a Kineto trace, rows of an Nsight export.
        bytes: size of the file.
        plain_bytes: its size without compression.
    """

    factor: int
    path: str
    events: int
    bytes: int
    plain_bytes: int
