"""Runs to compare, as the user names them: a report.json, a trace, or a folder with either."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from traceprobe.cli.inputs import check, expand, parts, readable, report
from traceprobe.model import UsageError

if TYPE_CHECKING:
    from traceprobe.api import Options
    from traceprobe.comparison.run import Observed
    from traceprobe.report.result import Report

REPORT = "report.json"
"""What `traceprobe profile` leaves beside its traces."""
UNNAMED = "run"
"""Label of a run whose folder has a name that is nobody else's business."""
_HOMES = ("/home", "/Users", "/var/home", "/export/home")
_LABEL = re.compile(r"([^=/\\]+)=(.+)", re.DOTALL)


def read_all(
    arguments: Sequence[str],
    targets: Sequence[Path] = (),
    step: str | None = None,
    *,
    github_summary: bool = False,
    force: bool = False,
    quiet: bool = False,
) -> list[Observed]:
    """Several runs, told apart by their labels; equal ones get a number.

    What is to be written of them is checked before anything is read.

    Args:
        targets: outputs. step: pattern of the ranges that are steps, in traces.

    Raises:
        UsageError: as `read`; an output could not be written.
    """
    from dataclasses import replace

    from traceprobe.api import Options
    from traceprobe.cli import outputs

    if github_summary:
        outputs.job_summary()
    outputs.check(list(targets), files(arguments), force=force)
    options = Options(step=step)
    runs = [read(argument, options, quiet=quiet) for argument in arguments]
    labels = [run.label for run in runs]
    return [
        replace(run, label=f"{run.label} ({labels[: n + 1].count(run.label)})")
        if labels.count(run.label) > 1
        else run
        for n, run in enumerate(runs)
    ]


def read(argument: str, options: Options | None = None, *, quiet: bool) -> Observed:
    """A run.

    Args:
        argument: `[LABEL=]PATH`; the path of a report.json, of a trace, or of a folder with the
            traces of the ranks or with a report.json, or a pattern.
        options: how to analyse traces; a report.json has been analysed.

    Raises:
        UsageError: there is no such file, or it has too few steps to compare.
    """
    from traceprobe.comparison.run import NothingToCompare, observe

    label, path = _split(argument)
    try:
        return observe(report_of(path, options, quiet=quiet), label or _named(path))
    except NothingToCompare as error:
        raise UsageError(str(error)) from error


def files(arguments: Sequence[str]) -> list[Path]:
    """The files and folders that runs are read from; outputs must not overwrite them."""
    return [Path(_split(argument)[1]) for argument in arguments]


def _split(argument: str) -> tuple[str | None, str]:
    found = _LABEL.fullmatch(argument)
    if found is None or Path(argument).exists():
        return None, argument
    return found[1], found[2]


def is_saved(path: str) -> bool:
    """Whether a path leads to a report.json."""
    return _saved(path) is not None


def _saved(path: str) -> Path | None:
    place = Path(path)
    if place.is_dir() and (place / REPORT).is_file():
        place = place / REPORT
    return place if place.is_file() and _is_report(place) else None


def report_of(path: str, options: Options | None = None, *, quiet: bool) -> Report:
    """The report of a run: one that is saved, else of its traces.

    Raises:
        UsageError: there is no such file, or it is no report of this version.
    """
    place = _saved(path)
    if place is not None:
        return report(place)
    from traceprobe.analysis import merge
    from traceprobe.api import Options

    options = options or Options()
    paths = expand([path], quiet=quiet)
    check(paths)
    with readable(paths) as found:
        return merge(parts(found, options), options)


def _is_report(path: Path) -> bool:
    """Whether a file begins as a report.json does; traces may be large."""
    from traceprobe.report.result import Report

    with path.open("rb") as file:
        start = file.read(4096).lstrip()
    first = sorted(Report.__struct_fields__)[0]
    return start.startswith(b"{") and start[1:].lstrip().startswith(f'"{first}"'.encode())


def _named(path: str) -> str | None:
    """A folder, or the report.json in it, is called after the folder; other reports by themselves.

    A trace is named after its first rank; that is left to whoever reads it.
    """
    place = Path(path)
    if place.is_dir():
        return _folder(place)
    if place.name == REPORT:
        return _folder(place.parent)
    return place.stem if place.is_file() and _is_report(place) else None


def _folder(place: Path) -> str:
    """The name of a folder, if that was given and is nobody's; outputs show it."""
    whole = place.resolve()
    not_given = place.name in ("", "..")
    if not_given or whole == Path.cwd() or _is_home(whole) or _is_user(whole.name):
        return UNNAMED
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
