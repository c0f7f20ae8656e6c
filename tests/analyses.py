"""Reports of trace files as they lie there, each analysed once in a test run."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import traceprobe
from tests.conftest import ROOT

REFUSED = (traceprobe.EmptyTrace, traceprobe.UnsupportedInput)
"""Errors of files of the corpus that are no traces of a training run, or of another tool."""
SAMPLES = sorted((ROOT / "sample_traces").glob("*.gz"))


@cache
def trace_of(path: Path):
    """The trace of one file."""
    return traceprobe.load(path)


@cache
def report_of(*paths: Path):
    """The report of one file, or of the ranks of one run, without options.

    Raises:
        EmptyTrace: a file holds nothing to analyse; not cached.
    """
    return traceprobe.analyze([trace_of(path) for path in paths])


def runs() -> dict[str, list[Path]]:
    """Name to files of each sample: those of several ranks belong together."""
    found: dict[str, list[Path]] = {}
    for path in SAMPLES:
        found.setdefault(re.sub(r"\.rank\d+\.", ".", path.name), []).append(path)
    return found
