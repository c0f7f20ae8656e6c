"""What the changes of a ladder gained, from the reports in the folders of its rungs."""

from __future__ import annotations

from traceprobe.capture.recording.recording_files import REPORT
from traceprobe.compare.compare import compare
from traceprobe.compare.ladder import ladder
from traceprobe.compare.run import NothingToCompare, Observed, observe
from traceprobe.errors import UsageError
from traceprobe.records.comparison import Comparison
from traceprobe.records.ladder import Ladder, Missing
from traceprobe.records.report import Report
from traceprobe.records.sweep import Sweep
from traceprobe.render.save import save
from traceprobe.sweep.results import UNREADABLE
from traceprobe.sweep.settings import SweepSettings
from traceprobe.system.reading import read_saved

LADDER = ("ladder.html", "ladder.json")
COMPARISON = ("compare.html", "compare.json")
"""Of a side rung with the rung that it builds on, in its folder."""


def save_ladder(settings: SweepSettings, sweep: Sweep) -> Ladder | None:
    """Write what the changes gained, of the rungs that are no side rungs.

    A rung that was not measured is in the ladder with the reason, and its change is part of that of
    the next one.

    Returns:
        The ladder; None where not a rung of it was measured.

    Raises:
        UsageError: a report is missing or damaged, or a file cannot be written.
    """
    measured = _measured(sweep)
    names: list[str] = []
    changes: list[str] = []
    pending: list[str] = []
    for rung in settings.ladder.rungs:
        if rung.side:
            continue
        pending.append(rung.change)
        if rung.name in measured:
            changes.append("; ".join(pending) if names else rung.change)
            names.append(rung.name)
            pending = []
    if not names:
        return None
    record = ladder(
        [_observed(settings, name) for name in names],
        changes,
        [
            Missing(change=result.change, label=result.name, reason=result.reason)
            for result in sweep.rungs
            if result.reason is not None
        ],
        settings.ladder.name,
    )
    save(record, [settings.folder / name for name in LADDER], replace=True)
    return record


def save_side_comparisons(settings: SweepSettings, sweep: Sweep) -> dict[str, Comparison]:
    """Compare each side rung with the rung that it builds on, where both were measured.

    Returns:
        The comparisons, by the name of the side rung; each is also left in its folder.
    """
    measured = _measured(sweep)
    comparisons = {}
    for result in sweep.rungs:
        if result.side and {result.name, result.base} <= measured:
            base, new = (_observed(settings, name) for name in (result.base, result.name))
            comparisons[result.name] = record = compare(base, new)
            folder = settings.folder / result.name
            save(record, [folder / name for name in COMPARISON], replace=True)
    return comparisons


def _measured(sweep: Sweep) -> set[str]:
    return {result.name for result in sweep.rungs if result.run is not None}


def _observed(settings: SweepSettings, name: str) -> Observed:
    """The run of a rung, from the report in its folder."""
    path = settings.folder / name / REPORT[-1]
    try:
        return observe(Report.from_json(read_saved(path)), name)
    except (*UNREADABLE, NothingToCompare) as error:
        raise UsageError(
            f"{path}: is not the report of this rung ({error}); run it again"
        ) from error
