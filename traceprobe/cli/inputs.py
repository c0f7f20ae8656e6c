"""Inputs as the user gives them to files that the library reads."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from traceprobe.model import UsageError

if TYPE_CHECKING:
    from traceprobe.report.ablation import Ablation


def check(paths: list[Path]) -> None:
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


def ablation(path: Path) -> Ablation:
    """What `traceprobe bench` wrote.

    Raises:
        UsageError: the file is something else, or of another major version.
    """
    import msgspec

    from traceprobe.report.ablation import SCHEMA_VERSION, Ablation

    try:
        found = Ablation.from_json(path.read_bytes())
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(
            f"{path.name}: is not an ablation as `traceprobe bench -o` writes it ({error})"
        ) from error
    if found.schema_version.split(".")[0] != SCHEMA_VERSION.split(".")[0]:
        raise UsageError(
            f"{path.name}: has schema version {found.schema_version}, this traceprobe reads "
            f"{SCHEMA_VERSION}; run traceprobe bench again"
        )
    return found


@contextmanager
def readable(paths: list[Path]) -> Iterator[list[Path]]:
    """The same files; an Nsight Systems report becomes its export where nsys is installed."""
    from traceprobe.capture.nsys_backend import installed
    from traceprobe.ingest.sniff import is_nsight_report

    with tempfile.TemporaryDirectory(prefix="traceprobe-") as folder:
        yield [
            _exported(path, Path(folder) / f"{position}-{path.stem}.sqlite")
            if is_nsight_report(path) and installed()
            else path
            for position, path in enumerate(paths)
        ]


def _exported(report: Path, target: Path) -> Path:
    """The export of a report, with the calibration that `traceprobe profile` left beside it."""
    from traceprobe.capture.nsys_backend import embed, export, sidecars

    export(report, target)
    recorded = sidecars(report.parent)
    if recorded:
        embed(target, recorded)
    return target
