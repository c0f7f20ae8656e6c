"""The files of a recording in their folder, and how a new recording takes an old one's place."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping
from pathlib import Path

from traceprobe.capture.recording.recording_plan import sidecar_name, trace_name
from traceprobe.errors import UsageError
from traceprobe.system import shell
from traceprobe.system.atomic_write import place

NSYS_STEM = "run"
KEPT = (".json.gz", ".traceprobe.json", ".sqlite", ".nsys-rep")
REPORT = ("report.html", "report.json")
BENCH = "bench.json"
_SIDECAR = re.compile(re.escape(sidecar_name(0)).replace("0", r"([0-9]{1,8})"))
_OF_ALL = (f"{NSYS_STEM}.sqlite", f"{NSYS_STEM}.nsys-rep", *REPORT, BENCH)


def recorded_ranks(folder: Path) -> list[int]:
    """The ranks whose sidecars lie in a folder, in order."""
    names = (_SIDECAR.fullmatch(path.name) for path in folder.iterdir())
    return sorted({int(name[1]) for name in names if name})


def recording_files(folder: Path) -> list[Path]:
    """What a recording left in a folder, report included; empty where none was made there.

    A rank's sidecar tells: without one, a trace in the folder is not ours.
    """
    ranks = recorded_ranks(folder)
    if not ranks:
        return []
    names = [name for rank in ranks for name in (sidecar_name(rank), trace_name(rank))]
    paths = (folder / name for name in (*names, *_OF_ALL))
    return [path for path in paths if path.is_file() and not path.is_symlink()]


def deliver_recording(folder: Path, work: Path, *, replace: bool) -> None:
    """Move a complete recording from its workspace into the folder.

    Where that cannot be it stays in a folder of its own, inside this one.

    Args:
        replace: whether it takes the place of an older one, and of files of the same names.

    Raises:
        UsageError: it cannot; the message says why, and where the recording is.
    """
    new = {path.name: path for path in sorted(work.iterdir()) if path.name.endswith(KEPT)}
    old = recording_files(folder) if replace else []
    try:
        _move(new, folder, replace=replace)
    except OSError as error:
        apart = Path(tempfile.mkdtemp(prefix="recording-", dir=folder))
        for name, path in new.items():
            path.replace(apart / name)
        why = (
            "a file of that name was written by something else meanwhile"
            if isinstance(error, FileExistsError)
            else error.strerror or str(error)
        )
        where = error.filename2 or error.filename
        raise UsageError(
            f"{where}: {why}, and it is left as it is; the recording is complete and lies in "
            f"{apart}: traceprobe analyze {shell.file(str(apart))}"
        ) from error
    for path in old:
        if path.name not in new:
            path.unlink()


def _move(new: Mapping[str, Path], folder: Path, *, replace: bool) -> None:
    """All or none, but for what replaces a file."""
    placed: list[tuple[Path, Path]] = []
    try:
        for name, path in new.items():
            if replace:
                path.replace(folder / name)
            else:
                place(path, folder / name)
                placed.append((path, folder / name))
    except OSError:
        for path, target in placed:
            if path.exists():  # under both names
                target.unlink(missing_ok=True)
            else:
                target.replace(path)
        raise
