"""`traceprobe doctor`: what is wrong with a machine or a trace, and which number that touches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from traceprobe.records.diagnosis import Diagnosis, Outcome, Section
from traceprobe.version import __version__

if TYPE_CHECKING:
    from traceprobe.doctor.facts import Facts
    from traceprobe.ingest.read_trace import Progress
    from traceprobe.options import Options
    from traceprobe.pipeline.trace_part import TracePart

__all__ = ["examine", "examine_machine"]


def examine_machine(facts: Facts) -> Diagnosis:
    """The checks of a machine."""
    from traceprobe.doctor.machine import CHECKS

    return _diagnosis([Section(subject="environment", checks=CHECKS.run(facts))])


def examine(
    paths: Sequence[Path], progress: Callable[[int], Progress] = lambda _: lambda done, total: None
) -> Diagnosis:
    """The checks of the inputs of one run: of each alone, then of all together.

    Args:
        progress: position of an input to the callback of `traceprobe.load`.

    Raises:
        TraceprobeError: an input cannot be read, or the inputs are not those of one run.
        OSError: an input cannot be opened.
    """
    from traceprobe.doctor import whole
    from traceprobe.doctor.evidence import Whole
    from traceprobe.options import Options
    from traceprobe.pipeline.merge import merge

    options = Options()
    sections, parts = [], []
    for position, path in enumerate(paths):
        part, outcomes = _input(path, options, progress(position))
        sections.append(Section(subject=part.input.name, checks=outcomes))
        parts.append(part)
    report = merge(parts, options)
    whole_run = Whole(
        report=report,
        profiled=frozenset().union(*(part.profiled for part in parts)),
        calibrated=any(part.sidecar is not None for part in parts),
    )
    sections.append(Section(subject="run", checks=whole.CHECKS.run(whole_run)))
    return _diagnosis(sections)


def _input(path: Path, options: Options, progress: Progress) -> tuple[TracePart, list[Outcome]]:
    """One input, of which only the part stays in memory."""
    from traceprobe.doctor import recorded, written
    from traceprobe.doctor.evidence import Evidence
    from traceprobe.ingest.read_trace import read_audit, read_trace
    from traceprobe.pipeline.trace_part import part_of

    trace = read_trace(path, progress)
    part = part_of(trace, options)
    evidence = Evidence(trace, part, read_audit(path))
    return part, [*written.CHECKS.run(evidence), *recorded.CHECKS.run(evidence)]


def _diagnosis(sections: list[Section]) -> Diagnosis:
    return Diagnosis(
        schema_version=Diagnosis.SCHEMA_VERSION, traceprobe_version=__version__, sections=sections
    )
