"""The files of a recording in their folder, and how a new recording takes an old one's place."""

from __future__ import annotations

import re
from pathlib import Path

from traceprobe.capture.plan import sidecar_name, trace_name

NSYS_STEM = "run"
KEPT = (".json.gz", ".traceprobe.json", ".sqlite", ".nsys-rep")
REPORT = ("report.html", "report.json")
BENCH = "bench.json"
_SIDECAR = re.compile(re.escape(sidecar_name(0)).replace("0", r"([0-9]{1,8})"))
_OF_ALL = (f"{NSYS_STEM}.sqlite", f"{NSYS_STEM}.nsys-rep", *REPORT, BENCH)


def ranks(folder: Path) -> list[int]:
    """The ranks whose sidecars lie in a folder, in order."""
    names = (_SIDECAR.fullmatch(path.name) for path in folder.iterdir())
    return sorted({int(name[1]) for name in names if name})


def files(folder: Path) -> list[Path]:
    """What a recording left in a folder, report included; empty where none was made there.

    A rank's sidecar tells: without one, a trace in the folder is not ours.
    """
    found = ranks(folder)
    if not found:
        return []
    names = [name for rank in found for name in (sidecar_name(rank), trace_name(rank))]
    paths = (folder / name for name in (*names, *_OF_ALL))
    return [path for path in paths if path.is_file() and not path.is_symlink()]


def replace(folder: Path, work: Path) -> None:
    """Move a complete recording from its workspace into the folder, in place of an older one."""
    old = files(folder)
    new = {path.name: path for path in sorted(work.iterdir()) if path.name.endswith(KEPT)}
    for name, path in new.items():
        path.replace(folder / name)
    for path in old:
        if path.name not in new:
            path.unlink()
