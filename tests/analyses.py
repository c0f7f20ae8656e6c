"""Reports of trace files as they lie there, each analysed once in a test run."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import traceprobe
from tests.conftest import ROOT
from traceprobe.options import Options
from traceprobe.pipeline import merge as analysis
from traceprobe.pipeline.trace_part import part_of

REFUSED = (traceprobe.EmptyTrace, traceprobe.UnsupportedInput)
"""Errors of files of the corpus that are no traces of a training run, or of another tool."""
SAMPLES = sorted((ROOT / "sample_traces").glob("*.gz"))


@cache
def trace_of(path: Path):
    """The trace of one file."""
    return traceprobe.load(path)


@cache
def part_of_file(path: Path):
    """What the report of a run has from one file."""
    return part_of(trace_of(path), Options())


@cache
def report_of(*paths: Path):
    """The report of one file, or of the ranks of one run, without options.

    Raises:
        EmptyTrace: a file holds nothing to analyse; not cached.
    """
    return analysis.merge([part_of_file(path) for path in paths], Options())


def runs() -> dict[str, list[Path]]:
    """Name to files of each sample: those of several ranks belong together."""
    found: dict[str, list[Path]] = {}
    for path in SAMPLES:
        found.setdefault(re.sub(r"\.rank\d+\.", ".", path.name), []).append(path)
    return found
