"""The library: load traces, analyse them, get a report."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from traceprobe.ingest import Progress
    from traceprobe.ingest.limits import Limits
    from traceprobe.model import Trace
    from traceprobe.report.ablation import Ablation
    from traceprobe.report.peaks import MeasuredPeaks
    from traceprobe.report.result import Report
    from traceprobe.verdict.thresholds import Thresholds


def _default_thresholds() -> Thresholds:
    from traceprobe.verdict.thresholds import Thresholds

    return Thresholds()


def _default_limits() -> Limits:
    from traceprobe.ingest.limits import Limits

    return Limits()


@dataclass(frozen=True)
class Options:
    """How to analyse.

    Args:
        step: regular expression of the step ranges; None looks for them.
        phases: phase name to regular expression, before the built-in table
            (`traceprobe.timeline.phases.RANGE_NAMES` lists the names).
        steps: use only iterations with first <= index < last.
        rank: use only this rank.
        unprofiled_step_ms: step time without a profiler, in ms; corrects the observer effect.
        thresholds: the numbers that the verdict depends on.
        limits: what a file may hold before it is refused.
        ablation: what `traceprobe bench` measured of the same run; becomes part of the report.
        flops_per_step: operations of the model in a step of all ranks, where the recording does not
            say.
        peaks: what `traceprobe roofline --measure` measured of the device.
    """

    step: str | None = None
    phases: Mapping[str, str] = field(default_factory=dict)
    steps: tuple[int, int] | None = None
    rank: int | None = None
    unprofiled_step_ms: float | None = None
    thresholds: Thresholds = field(default_factory=_default_thresholds)
    limits: Limits = field(default_factory=_default_limits)
    ablation: Ablation | None = None
    flops_per_step: float | None = None
    peaks: MeasuredPeaks | None = None


def load(
    path: str | Path,
    progress: Progress | None = None,
    cache: str | Path | None = None,
    limits: Limits | None = None,
) -> Trace:
    """Read one trace file: a Kineto Chrome trace or an Nsight Systems SQLite export, plain or gz.

    Args:
        progress: called with (bytes of the file consumed, bytes of the file).
        cache: folder with columns of files that were read before. Those of this file are taken from
            it, or kept in it; a warning where that fails.
        limits: what the file may hold before it is refused.

    Returns:
        The trace as typed columns in int64 ns; see `traceprobe.model`.

    Raises:
        UnsupportedInput: the content is neither format; the message names the remedy.
        DamagedInput: too little of the file survives, or it exceeds a limit.
        EmptyTrace: neither GPU work nor host phases.
        OSError: the file cannot be opened.
    """
    if cache is None:
        from traceprobe.ingest import load as read

        return read(path, progress, limits or _default_limits())
    from traceprobe.cache import load as cached

    trace, use = cached(Path(path), Path(cache), progress, limits or _default_limits())
    if use.failed:
        warnings.warn(f"{Path(path).name}: {use.text}", stacklevel=2)
    return trace


def analyze(traces: Trace | Sequence[Trace], options: Options | None = None) -> Report:
    """Analyse one trace, or the rank files of one run.

    Returns:
        The report, as described in `docs/report-json.md`: times in ns, shares as fractions.

    Raises:
        UsageError: an option is invalid, or two inputs claim the same rank.
    """
    from traceprobe.analysis import run
    from traceprobe.model import Trace

    return run([traces] if isinstance(traces, Trace) else list(traces), options or Options())
