"""A report with what playing its iterations says of them."""

from __future__ import annotations

from msgspec.structs import replace

from traceprobe.errors import ImpossibleChange
from traceprobe.records.report import Report
from traceprobe.replay.path_record import path_record
from traceprobe.replay.predict import prepare


def with_critical_path(report: Report) -> Report:
    """The report with its critical path, where its iterations can be played."""
    try:
        return replace(report, critical_path=path_record(prepare(report)))
    except ImpossibleChange:
        return report
