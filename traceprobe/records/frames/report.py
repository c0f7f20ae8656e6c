"""The tables of a report: of its findings, and of what was measured beside the time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from traceprobe.records.critical_path import PathOperator, PathPart, Slack
from traceprobe.records.frames import rank
from traceprobe.records.frames.columns import Frame, columns_of, known, values_of
from traceprobe.records.headroom import Floor
from traceprobe.records.loader import LoaderLine
from traceprobe.records.memory import PARTS, Memory
from traceprobe.records.operator_work import OperatorWork
from traceprobe.records.prediction import PredictedSaving
from traceprobe.records.report import Finding, Report
from traceprobe.records.roofline import PhaseWork
from traceprobe.records.site import Site

_NESTED = ("sites", "predicted")
_PREDICTED = columns_of(PredictedSaving, prefix="predicted_")


def _findings(report: Report) -> Iterator[list[object]]:
    for finding in report.findings:
        predicted = known(finding.predicted)
        numbers = [None] * len(_PREDICTED) if predicted is None else values_of(predicted)
        yield [*values_of(finding, _NESTED), *numbers]


def _sites(report: Report) -> Iterator[list[object]]:
    for finding in report.findings:
        for site in known(finding.sites) or ():
            yield [finding.id, *values_of(site)]


def _path(struct: type[PathPart | PathOperator | Slack], field: str) -> Frame:
    def rows(report: Report) -> Iterator[list[object]]:
        path = known(report.critical_path)
        yield from map(values_of, [] if path is None else getattr(path, field))

    return Frame(columns_of(struct), rows)


def _floors(report: Report) -> Iterator[list[object]]:
    headroom = known(report.headroom)
    yield from map(values_of, [] if headroom is None else headroom.floors)


def _phase_work(report: Report) -> Iterator[list[object]]:
    roofline = known(report.roofline)
    for phase in [] if roofline is None else roofline.phases:
        yield [*values_of(phase, ("flops",)), sum(phase.flops.values())]


def _operator_work(report: Report) -> Iterator[list[object]]:
    roofline = known(report.roofline)
    operators = None if roofline is None else known(roofline.operators)
    yield from map(values_of, [] if operators is None else operators.rows)


def _loader_lines(report: Report) -> Iterator[list[object]]:
    loader = known(report.loader)
    yield from map(values_of, [] if loader is None else loader.lines)


def _memory(report: Report) -> Iterator[list[object]]:
    memory = known(report.memory) or Memory()
    for kind, step in (("measured", memory.measured), ("predicted", memory.predicted)):
        if step is not None:
            moments = zip(
                step.timeline.position,
                step.timeline.phase,
                *(step.timeline.parts[name] for name in PARTS),
                strict=True,
            )
            for position, phase, *parts in moments:
                yield [kind, position, phase, sum(parts), *parts]


FRAMES: Mapping[str, Frame] = {
    **rank.FRAMES,
    "findings": Frame({**columns_of(Finding, _NESTED), **_PREDICTED}, _findings),
    "sites": Frame({"finding": "str", **columns_of(Site)}, _sites),
    "critical_path": _path(PathPart, "parts"),
    "path_operators": _path(PathOperator, "operators"),
    "slack": _path(Slack, "slack"),
    "floors": Frame(columns_of(Floor), _floors),
    "phase_work": Frame({**columns_of(PhaseWork, ("flops",)), "flops": "int"}, _phase_work),
    "operator_work": Frame(columns_of(OperatorWork), _operator_work),
    "memory": Frame(
        {
            "step": "str",
            "position": "float",
            "phase": "str",
            "total_bytes": "int",
            **{f"{name}_bytes": "int" for name in PARTS},
        },
        _memory,
    ),
    "loader_lines": Frame(columns_of(LoaderLine), _loader_lines),
}
"""By name."""
