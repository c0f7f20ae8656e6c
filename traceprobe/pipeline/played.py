"""What playing its iterations again adds to a report: the critical path, and what is saved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import UNSET
from msgspec.structs import replace

from traceprobe.errors import ImpossibleChange
from traceprobe.records.headroom import Floor
from traceprobe.records.report import Report
from traceprobe.render.ranking import ATTENTION, first_fixes
from traceprobe.replay.forecast import forecast, within_reach_ms
from traceprobe.replay.path_record import path_record
from traceprobe.replay.predict import Playable, prepare
from traceprobe.replay.scenario import Changes
from traceprobe.verdict.headroom import OTHER_PRECISION, headroom


def with_predictions(
    report: Report, regular: Report, changes: Mapping[str, Changes], floors: Sequence[Floor]
) -> Report:
    """The report with its critical path, predicted savings and headroom, as far as they are known.

    Args:
        regular: the report with the ranks that the findings are about, where not all iterations
            are; else the same.
        changes: what mending a finding changes, by id.
        floors: what no step is shorter than.
    """
    run = _playable(report)
    if run is not None:
        report = replace(report, critical_path=path_record(run))
    usual = run if regular is report else _playable(regular)
    gained = 0.0
    if usual is not None:
        report = forecast(report, usual, changes, first_fixes)
        asking = [f for f in report.findings if f.status in ATTENTION]
        kept = [f for f in asking if f.id not in OTHER_PRECISION]
        gained = within_reach_ms(usual, kept, changes)
    return _with_headroom(report, gained, floors)


def _with_headroom(report: Report, gained_ms: float, floors: Sequence[Floor]) -> Report:
    now = report.step_ms
    found = None if now is None else headroom(now, now - gained_ms, floors)
    return replace(report, headroom=UNSET if found is None else found)


def _playable(report: Report) -> Playable | None:
    try:
        return prepare(report)
    except ImpossibleChange:
        return None
