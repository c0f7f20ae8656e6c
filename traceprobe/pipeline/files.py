"""From the trace files of a run to its report, one part after the other."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from traceprobe.options import Options
from traceprobe.pipeline import parallel
from traceprobe.pipeline.merge import merge
from traceprobe.pipeline.trace_part import Lost, TracePart, read_in_turn
from traceprobe.records.report import Report
from traceprobe.system.cores import cores


def analyze_files(paths: Sequence[Path], options: Options) -> Report:
    """The report of a run from the trace files of its ranks.

    Raises:
        TraceprobeError: no file can be read, or the files are not those of one run.
        OSError: the only file cannot be opened.
    """
    return merge(_parts(paths, options), options)


def _parts(paths: Sequence[Path], options: Options) -> list[TracePart | Lost]:
    jobs = cores()
    if min(jobs, len(paths)) > 1:
        return parallel.read_all(paths, options, None, jobs, lambda position, fraction: None)
    return read_in_turn(paths, options, jobs=jobs)
