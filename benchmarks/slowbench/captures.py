"""Cases as they were recorded: their rows, and the files of each."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.slowbench.columns import SUFFIX, unpack

ROWS = "rows.jsonl"


def rows_of(folder: Path) -> list[dict[str, Any]]:
    """The rows of the cases of a folder, the latest of each, in the order of their ids.

    A last line that was cut while it was written is left out.
    """
    latest: dict[str, dict[str, Any]] = {}
    for line in (folder / ROWS).read_text(encoding="utf-8").splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if "program" in row:
            latest[row["id"]] = row
    return [latest[name] for name in sorted(latest)]


def members(folder: Path) -> dict[str, tuple[Path, list[str]]]:
    """Where the files of each case are: the bundle, and their names in it."""
    found: dict[str, tuple[Path, list[str]]] = {}
    for bundle in sorted(folder.glob("*.tar")):
        with tarfile.open(bundle) as tar:
            each: dict[str, list[str]] = {}
            for member in tar.getmembers():
                if member.isfile() and "/" in member.name:
                    each.setdefault(member.name.rpartition("/")[0], []).append(member.name)
        # A case that was recorded again lies in a later bundle.
        found.update({Path(case).name: (bundle, names) for case, names in each.items()})
    return found


@contextmanager
def unpacked(bundle: Path, names: Sequence[str]) -> Iterator[list[Path]]:
    """The traces of a case in a folder of their own, in the order of their ranks."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        with tarfile.open(bundle) as tar:
            for member in dict.fromkeys(names):
                tar.extract(member, folder, filter="data")
        kept = sorted(folder.rglob(f"*{SUFFIX}"))
        traces = [path.with_name(path.name.removesuffix(SUFFIX)) for path in kept]
        for path, trace in zip(kept, traces, strict=True):
            unpack(path.read_bytes(), trace)
            path.unlink()
        yield traces


def machines(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The machines that the cases were recorded on, each once."""
    each = {json.dumps(row.get("machine"), sort_keys=True): row.get("machine") for row in rows}
    return [machine for machine in each.values() if machine]
