"""Inputs as the user gives them to files that the library reads."""

from __future__ import annotations

import glob
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from traceprobe.cli.console import note
from traceprobe.errors import DamagedRecord, OtherVersion, UsageError
from traceprobe.ingest.detect_format import SQLITE_MAGIC
from traceprobe.ingest.trace_folder import is_trace, natural_order
from traceprobe.system.reading import read_saved

if TYPE_CHECKING:
    from traceprobe.records.base import Saved

Result = TypeVar("Result", bound="Saved")

JOURNALS = ("-wal", "-shm", "-journal")
_LONGEST_STEM = 200
"""Bytes; a name may have 255."""
MAX_NAMED = 8
"""Names in a message."""
SAVED = {
    "Ablation": ("an ablation as `traceprobe bench -o` writes it", "run traceprobe bench again"),
    "Causal": ("probes as `traceprobe bench --causal -o` writes them", "probe the program again"),
    "MeasuredPeaks": ("what `traceprobe roofline --measure -o` writes", "measure again"),
    "Report": (
        "a report.json as `traceprobe analyze TRACE -o report.json` writes it",
        "analyse the trace again",
    ),
}
"""Class of a record to what its file is expected to be, and what to do where it is of no use."""


def expand(arguments: Sequence[str], *, quiet: bool) -> list[Path]:
    """Files, folders and patterns as files; says what is left out of a folder.

    Raises:
        UsageError: nothing has that name, no file fits the pattern, or no trace is in the folder.
    """
    files: list[Path] = []
    for argument in arguments:
        if not argument:  # which would be the current folder
            raise UsageError("an input has no name; is a variable of the script empty?")
        path = Path(argument)
        if path.is_dir():
            files += _traces_in(path, quiet=quiet)
        elif path.exists() or not glob.has_magic(argument):
            if not path.exists():
                raise UsageError(_absent(argument))
            files.append(path)
        else:
            fitting = [Path(name) for name in glob.glob(argument)]  # noqa: PTH207 - may be absolute
            if not fitting:
                raise UsageError(f"{argument}: no file fits this pattern")
            files += sorted(fitting, key=natural_order)
    return files


def _absent(argument: str) -> str:
    from traceprobe.pipeline.dask import is_remote

    if is_remote(argument):
        return f"{argument}: is a URL; download the file first, or read it with --dask local:1"
    return f"{Path(argument)}: is absent; there is no such file or folder"


def named(names: Sequence[str]) -> str:
    """Names in a message: the first of them, and how many there are more."""
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return ", ".join(names[:MAX_NAMED]) + more


def _traces_in(folder: Path, *, quiet: bool) -> list[Path]:
    from traceprobe.capture.process.nsys_tool import installed_nsys
    from traceprobe.capture.recording.recording_files import recording_files
    from traceprobe.ingest.trace_folder import find_traces

    traces_here, others = find_traces(folder)
    stems = {path.name.split(".")[0] for path in traces_here}
    reports = [
        path
        for path in others
        # A report whose export lies beside it would be the same run twice.
        if path.suffix == ".nsys-rep" and installed_nsys() and path.name.split(".")[0] not in stems
    ]
    ours = {*reports, *recording_files(folder)}
    left = [path for path in others if path not in ours]
    if not traces_here and not reports:
        raise UsageError(
            f"{folder}: is a directory without a trace; name the files, or their folder"
        )
    if left:
        text = named([path.name for path in left])
        note(f"{folder}: left out, as they are no traces: {text}", quiet=quiet)
    return sorted([*traces_here, *reports], key=natural_order)


def expand_anywhere(arguments: Sequence[str], *, quiet: bool) -> list[str]:
    """As `expand`, and URLs too: absolute paths and URLs of files, for workers elsewhere.

    Raises:
        UsageError: as `expand` and `check_inputs`.
    """
    from traceprobe.pipeline.dask import expand as expand_url
    from traceprobe.pipeline.dask import is_remote

    files: list[str] = []
    for argument in arguments:
        if is_remote(argument):
            files += expand_url(argument)
        else:
            paths = expand([argument], quiet=quiet)
            check_inputs(paths)
            files += [str(path.resolve()) for path in paths]
    twice = next((name for name in files if files.count(name) > 1), None)
    if twice is not None:
        raise UsageError(f"{twice}: is given twice")
    return files


def check_inputs(paths: list[Path]) -> None:
    """Refuse inputs that cannot be told apart, or read from their start more than once.

    Raises:
        UsageError: a pipe or device, or the same file twice.
    """
    seen: set[Path] = set()
    for path in paths:
        if not path.is_file():
            raise UsageError(f"{path}: is not a regular file; save the trace to one first")
        if path.resolve() in seen:
            raise UsageError(f"{path}: is given twice")
        seen.add(path.resolve())


def companions(path: Path) -> list[Path]:
    """What belongs to an input, there or not, and must not be overwritten any more than that.

    SQLite finds its journals by the name of the file. The calibrations that `traceprobe profile`
    left are read with a report of Nsight Systems.
    """
    real = Path(os.path.realpath(path))
    journals = [Path(f"{name}{suffix}") for name in {path, real} for suffix in JOURNALS]
    recorded = real.parent.glob("rank*.traceprobe.json") if real.suffix == ".nsys-rep" else ()
    return [*journals, *recorded]


def saved(path: Path, record: type[Result]) -> Result:
    """A result of that class, one of `SAVED`.

    Raises:
        UsageError: it is something else, of another major version, or contradicts itself.
    """
    import msgspec

    what, remedy = SAVED[record.__name__]
    text = read_saved(path)
    try:
        return record.from_json(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(not_saved(path, text, what, error)) from error
    except (DamagedRecord, OtherVersion) as error:
        raise UsageError(f"{path.name}: {error}; {remedy}") from error


def not_saved(path: Path, text: bytes, what: str, error: Exception) -> str:
    """That a file with this text is not what is wanted, and what else it is if that is known."""
    if text.startswith(SQLITE_MAGIC):
        found = "an export of Nsight Systems"
    elif text.lstrip().startswith(b"<"):
        found = "an HTML page"
    elif is_trace(path):
        found = "a trace"
    else:
        return f"{path.name}: is not {what} ({error})"
    return f"{path.name}: is {found}, not {what}"


@contextmanager
def readable(paths: list[Path]) -> Iterator[list[Path]]:
    """The same files; an Nsight Systems report becomes its export where nsys is installed."""
    from traceprobe.ingest.detect_format import is_nsight_report

    with tempfile.TemporaryDirectory(prefix="traceprobe-") as folder:
        yield [
            _exported(path, Path(folder) / str(position) / f"{short(path.stem)}.sqlite")
            if is_nsight_report(path)
            else path
            for position, path in enumerate(paths)
        ]


def short(stem: str) -> str:
    """The beginning of a name, to which suffixes can be added, those of SQLite's journals too."""
    return os.fsdecode(os.fsencode(stem)[:_LONGEST_STEM])


def _exported(report: Path, target: Path) -> Path:
    """The export of a report, with the calibration that `traceprobe profile` left beside it.

    Without nsys it is the report itself, which is refused with how to export it.
    """
    from traceprobe.capture.process.nsys_tool import (
        embed_sidecars,
        export_sqlite,
        installed_nsys,
        read_sidecars,
    )

    if not installed_nsys():
        return report
    target.parent.mkdir()
    export_sqlite(report, target)
    recorded = read_sidecars(report.parent)
    if recorded:
        embed_sidecars(target, recorded)
    return target
