"""A run of any length in a picture's width: extremes are kept, whatever the number of steps."""

from __future__ import annotations

import itertools

import numpy as np

from traceprobe.records.watch import MOST_POINTS, ReadingStrip, StepStrip
from traceprobe.watch.processes import Column, Process

READINGS = ("sm_mhz", "power_w", "temperature_c", "reserved_bytes", "rss_bytes")


def step_strip(process: Process) -> StepStrip:
    """Shortest, median and longest step of each of up to `MOST_POINTS` parts of equal steps."""
    edges = _edges(process.number.size)
    parts = [slice(a, b) for a, b in itertools.pairwise(edges)]
    return StepStrip(
        at_s=[_seconds(process, process.end_ns[part][-1]) for part in parts],
        first=[int(process.number[part][0]) for part in parts],
        least_ms=[round(float(process.ms[part].min()), 4) for part in parts],
        median_ms=[round(float(np.median(process.ms[part])), 4) for part in parts],
        most_ms=[round(float(process.longest_ms[part].max()), 4) for part in parts],
        wait_ms=[round(float(process.wait_ms[part].mean()), 4) for part in parts],
    )


def reading_strip(process: Process) -> ReadingStrip:
    """Means of equal numbers of readings; only quantities that were ever read."""
    at = process.readings["at_ns"]
    edges = _edges(at.size)
    parts = [slice(a, b) for a, b in itertools.pairwise(edges)]
    columns = {
        name: [_mean(process.readings[name][part]) for part in parts]
        for name in READINGS
        if name in process.readings
    }
    return ReadingStrip(at_s=[_seconds(process, at[part][-1]) for part in parts], **columns)


def _edges(count: int) -> list[int]:
    edges = np.linspace(0, count, min(count, MOST_POINTS) + 1).astype(int)
    return [int(edge) for edge in np.unique(edges)]


def _seconds(process: Process, at_ns: float) -> float:
    return round(max(float(at_ns) - process.began_ns, 0.0) / 1e9, 3)


def _mean(values: Column) -> float | None:
    known = values[~np.isnan(values)]
    return round(float(known.mean()), 2) if known.size else None
