"""Cases as they were recorded: their rows, and the files of each."""

from __future__ import annotations

import gzip
import json
import shutil
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROWS = "rows.jsonl"
SIDECAR = ".traceprobe.json"


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
def unpacked(bundle: Path, names: Sequence[str], *, plain: bool) -> Iterator[list[Path]]:
    """The traces of a case in a folder of their own, in the order of their ranks.

    Args:
        plain: exports of Nsight Systems decompressed, as most tools read them.
    """
    with TemporaryDirectory() as name:
        folder = Path(name)
        with tarfile.open(bundle) as tar:
            for member in dict.fromkeys(names):
                tar.extract(member, folder, filter="data")
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        traces = [path for path in files if not path.name.endswith(SIDECAR)]
        yield [_plain(path) if plain and ".sqlite" in path.name else path for path in traces]


def _plain(path: Path) -> Path:
    if path.suffix != ".gz":
        return path
    target = path.with_suffix("")
    with gzip.open(path) as source, target.open("wb") as out:
        shutil.copyfileobj(source, out)
    path.unlink()
    return target


def machines(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The machines that the cases were recorded on, each once."""
    each = {json.dumps(row.get("machine"), sort_keys=True): row.get("machine") for row in rows}
    return [machine for machine in each.values() if machine]
