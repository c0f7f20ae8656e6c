"""What playing its iterations again adds to a report: the critical path, and what is saved."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from traceprobe.errors import ImpossibleChange
from traceprobe.records.report import Report
from traceprobe.render.ranking import first_fixes
from traceprobe.replay.forecast import forecast
from traceprobe.replay.path_record import path_record
from traceprobe.replay.predict import Playable, prepare
from traceprobe.replay.scenario import Changes


def with_predictions(report: Report, regular: Report, changes: Mapping[str, Changes]) -> Report:
    """The report with its critical path and predicted savings, as far as it can be played.

    Args:
        regular: the report with the ranks that the findings are about, where not all iterations
            are; else the same.
        changes: what mending a finding changes, by id.
    """
    run = _playable(report)
    if run is not None:
        report = replace(report, critical_path=path_record(run))
    usual = run if regular is report else _playable(regular)
    return report if usual is None else forecast(report, usual, changes, first_fixes)


def _playable(report: Report) -> Playable | None:
    try:
        return prepare(report)
    except ImpossibleChange:
        return None
