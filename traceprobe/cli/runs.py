"""Runs to compare, as the user names them: a report.json, a trace, or a folder with either."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from traceprobe.cli.inputs import check_inputs, expand, readable, saved

if TYPE_CHECKING:
    from traceprobe.cli.outputs import Delivery
    from traceprobe.compare.run import Observed
    from traceprobe.options import Options
    from traceprobe.records.report import Report

REPORT = "report.json"
"""What `traceprobe profile` leaves beside its traces."""
_HOMES = ("/home", "/Users", "/var/home", "/export/home")
_LABEL = re.compile(r"([^=/\\]+)=(.+)", re.DOTALL)


class Source(msgspec.Struct, frozen=True):
    """Where a run is read from.

    Args:
        label: as the user gave it, or None.
        path: as the user gave it.
        saved: its report.json, if it has one; else it has `traces`.
    """

    label: str | None
    path: str
    saved: Path | None
    traces: Sequence[Path] = ()

    @property
    def files(self) -> list[Path]:
        """Every file that is read."""
        return [self.saved] if self.saved is not None else list(self.traces)


def read_all(
    arguments: Sequence[str], step: str | None, delivery: Delivery, least: int | None = None
) -> list[Observed]:
    """Several runs, told apart by their labels; of equal ones by their folders, else by a number.

    What is to be written of them is checked before any is analysed.

    Args:
        arguments: as those of `find`.
        step: pattern of the ranges that are steps, in traces.
        least: used steps of each; None for what comparing takes.

    Raises:
        UsageError: as `find`; an output could not be written; a run has too few steps.
    """
    from traceprobe.options import Options

    sources = [find(argument, quiet=delivery.quiet) for argument in arguments]
    delivery.check(file for source in sources for file in source.files)
    options = Options(step=step)
    runs = [_read(source, options, least) for source in sources]
    labels = _told_apart([run.label for run in runs], sources)
    return [replace(run, label=label) for run, label in zip(runs, labels, strict=True)]


def _told_apart(labels: Sequence[str], sources: Sequence[Source]) -> list[str]:
    """Labels of which no two are equal: a rank's file is called the same in every folder."""
    found = list(labels)
    for label in set(labels):
        alike = [n for n, other in enumerate(labels) if other == label]
        folders = {
            n: None if sources[n].label else _folder(Path(sources[n].path).parent) for n in alike
        }
        known = {name for name in folders.values() if name is not None}
        apart = len(known) == len(alike) and not known & set(labels)
        for place, n in enumerate(alike if len(alike) > 1 else [], 1):
            found[n] = (folders[n] if apart else None) or f"{label} ({place})"
    return found


def find(argument: str, *, quiet: bool) -> Source:
    """The files of a run.

    Args:
        argument: `[LABEL=]PATH`; the path of a report.json, of a trace, or of a folder with the
            traces of the ranks or with a report.json, or a pattern.

    Raises:
        UsageError: there is no such file.
    """
    label, path = _split(argument)
    report = _saved(Path(path))
    if report is not None:
        return Source(label, path, report)
    traces = expand([path], quiet=quiet)
    check_inputs(traces)
    return Source(label, path, None, traces)


def report_of(source: Source, options: Options) -> Report:
    """The report of a run: one that is saved, else of its traces.

    Args:
        options: how to analyse traces; a report.json has been analysed.

    Raises:
        UsageError: it is no report of this version.
    """
    if source.saved is not None:
        from traceprobe.records.report import Report

        return saved(source.saved, Report)
    from traceprobe.pipeline.files import analyze_files

    with readable(list(source.traces)) as exported:
        return analyze_files(exported, options)


def _read(source: Source, options: Options, least: int | None) -> Observed:
    from traceprobe.compare.run import LEAST_STEPS, observe

    report = report_of(source, options)
    return observe(report, source.label or _named(source), least or LEAST_STEPS)


def _split(argument: str) -> tuple[str | None, str]:
    match = _LABEL.fullmatch(argument)
    if match is None or Path(argument).exists():
        return None, argument
    return match[1], match[2]


def _saved(place: Path) -> Path | None:
    """The report.json that a path leads to."""
    if place.is_dir() and (place / REPORT).is_file():
        place = place / REPORT
    return place if place.is_file() and _is_report(place) else None


def _is_report(path: Path) -> bool:
    """Whether a file begins as a report.json does; traces may be large."""
    from traceprobe.records.report import Report
    from traceprobe.system.reading import open_regular

    with open_regular(path) as file:
        start = file.read(4096).lstrip()
    first = sorted(Report.__struct_fields__)[0]
    return start.startswith(b"{") and start[1:].lstrip().startswith(f'"{first}"'.encode())


def _named(source: Source) -> str | None:
    """A folder, or the report.json in it, is called after the folder; other reports by themselves.

    What has no name here is named after its first rank; that is left to whoever reads it.
    """
    place = Path(source.path)
    if place.is_dir():
        return _folder(place)
    if place.name == REPORT:
        return _folder(place.parent)
    return place.stem if source.saved is not None else None


def _folder(place: Path) -> str | None:
    """The name of a folder, if that was given and tells nothing of who works there."""
    whole = place.resolve()
    not_given = place.name in ("", "..")
    if not_given or whole == Path.cwd() or _is_home(whole) or _is_user(whole.name):
        return None
    return place.name


def _is_home(folder: Path) -> bool:
    """Whether a folder is someone's home, or leads to the home of who asks."""
    if str(folder.parent) in _HOMES:
        return True
    try:
        home = Path.home().resolve()
    except (OSError, RuntimeError):  # nobody's
        return False
    return folder == home or folder in home.parents


def _is_user(name: str) -> bool:
    return name in {os.environ.get(key) for key in ("USER", "LOGNAME", "USERNAME")}
