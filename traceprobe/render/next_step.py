"""The command that a reader of the report would want next."""

from __future__ import annotations

from collections.abc import Sequence

from traceprobe.model.accounting import SKIPPED_AS_LONG
from traceprobe.records.picture import Picture
from traceprobe.records.report import Report
from traceprobe.system import shell

INCOMPLETE = frozenset({"gzip-checksum", "missing-pages", "truncated-file", "unfinished-write"})
"""Codes of warnings by which a file is to be copied again, rather than cut."""
REPEATED = 6
"""Steps of a slice without marks: their kernels have to repeat themselves three times and more."""


def next_command(report: Report, paths: Sequence[str] = ()) -> tuple[str, str] | None:
    """A command line and what it is for; None for a report without inputs.

    Args:
        paths: where the inputs are; the report itself knows their base names only.
    """
    if not report.inputs:
        return None
    names = _names(report, paths)
    if not any(rank.summary.iterations_used for rank in report.ranks):
        return (
            f"traceprobe inspect {shell.file(names[0])}",
            "to see what the trace holds, and what is missing for steps",
        )
    with_step = f"traceprobe analyze {' '.join(map(shell.file, names))} --unprofiled-step-ms MS"
    if any(term.name == "observer-effect" for term in report.verdict.confidence_terms):
        return with_step, "with the step time without a profiler, which decides here"
    if report.quality.observer_effect is None and _leaves_long_ones_out(report):
        return (
            with_step,
            "with the mean step time without a profiler, which tells whether the long one recurs",
        )
    cut = slice_command(report, names)
    if cut is None:
        return None
    if report.inputs[0].format == "nsys":
        return cut, "to cut out a typical step, small enough for an issue"
    return cut, "to look at a typical step in Perfetto"


def _leaves_long_ones_out(report: Report) -> bool:
    """Whether iterations are left out as they are much longer than the others, and came once."""
    reasons = (i.skip_reason for rank in report.ranks for i in rank.iterations)
    return any(reason is not None and reason.startswith(SKIPPED_AS_LONG) for reason in reasons)


def slice_command(report: Report, paths: Sequence[str] = ()) -> str | None:
    """Cuts the typical step of the first rank that has one, of the straggler before the others.

    Returns:
        None where none has, where the trace has little more, and where the file is not whole.
    """
    if INCOMPLETE.intersection(warning.code for warning in report.quality.warnings):
        return None
    names = _names(report, paths)
    straggler = report.run.straggler_rank if report.run is not None else None
    for rank in sorted(report.ranks, key=lambda rank: rank.rank != straggler):
        picture = rank.picture
        if not isinstance(picture, Picture) or not picture.windows:
            continue
        k, count = picture.windows[0].iteration, len(rank.iterations)
        by_kernels = rank.step_marker is not None and rank.step_marker.kind == "kernels"
        fewest = REPEATED if by_kernels else 2
        if k is not None and count > fewest + 1:
            ending = "sqlite.gz" if report.inputs[rank.input].format == "nsys" else "json.gz"
            # One more than is wanted: the last iteration of a slice has no end.
            first = max(min(k - (fewest - 2) // 2, count - fewest), 0)
            steps = f"{first}:{first + fewest}"
            name = shell.file(names[rank.input])
            return f"traceprobe slice {name} --steps {steps} -o step{k}.{ending}"
    return None


def _names(report: Report, paths: Sequence[str]) -> Sequence[str]:
    """The paths, unless some of their files were lost: then nothing says which."""
    if len(paths) == len(report.inputs):
        return paths
    return [source.name for source in report.inputs]
