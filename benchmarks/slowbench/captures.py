"""Cases as they were recorded: their rows, and the files of each."""

from __future__ import annotations

import json
import lzma
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

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


def packed(trace: bytes) -> bytes:
    """A trace as it is kept: steps are alike, which gzip does not notice so far apart."""
    return lzma.compress(trace, preset=9)


@contextmanager
def unpacked(bundle: Path, names: Sequence[str]) -> Iterator[list[Path]]:
    """The traces of a case in a folder of their own, in the order of their ranks."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        with tarfile.open(bundle) as tar:
            for member in dict.fromkeys(names):
                tar.extract(member, folder, filter="data")
        traces = sorted(folder.rglob("*.xz"))
        for trace in traces:
            trace.with_suffix("").write_bytes(lzma.decompress(trace.read_bytes()))
            trace.unlink()
        yield [trace.with_suffix("") for trace in traces]


def machines(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The machines that the cases were recorded on, each once."""
    each = {json.dumps(row.get("machine"), sort_keys=True): row.get("machine") for row in rows}
    return [machine for machine in each.values() if machine]
