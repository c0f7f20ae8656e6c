"""Recordings in the repository that notice when answers get worse: small of a CPU, and of GPUs.

`python -m benchmarks.slowbench subset DIR` chooses them from what `record --cpu` left there, and
writes down what is said of them; without DIR it writes that down anew. Whoever makes an answer
worse says so there.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Mapping
from dataclasses import asdict
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import traceprobe
from benchmarks.slowbench.captures import ROWS, members, rows_of, unpacked
from benchmarks.slowbench.columns import SUFFIX, pack
from benchmarks.slowbench.marks import FIRST, HEALTHY, mark
from benchmarks.slowbench.tools.traceprobe import read
from traceprobe.slicing.slice_trace import slice_trace

CAPTURES = Path(__file__).with_name("captures")
HARDWARE = CAPTURES / "h200"
"""Recordings of GPUs, as `record` left them; the folder is called after the first machine."""
EXPECTED = "expected.json"
BUNDLE = "cpu-0.tar"
LEFT_OUT = ("blocks", "options", "turn_s", "seconds", "cut", "finish", "steps", "twin")
MOST_BYTES = 2_900_000
STEPS = 3
"""Of each but those in which something comes every so many steps."""


def keep(folder: Path, count: int) -> None:
    """Copy recorded cases, cut short: of each cause in turn, felt ones first, then small ones."""
    where = members(folder)
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in rows_of(folder):
        if not row.get("failed") and row["id"] in where:
            name = row["causes"][0]["id"] if row["causes"] else HEALTHY
            groups.setdefault(name, []).append(row)
    for each in groups.values():
        each.sort(key=lambda row: (not row["felt"], _size(*where[row["id"]]), row["id"]))
    kept: list[dict[str, Any]] = []
    CAPTURES.mkdir(exist_ok=True)
    with tarfile.open(CAPTURES / BUNDLE, "w") as tar:
        while len(kept) < count and any(groups.values()):
            for name in sorted(groups):
                if groups[name] and len(kept) < count:
                    row = groups[name].pop(0)
                    kept += [row] if _add(tar, row, *where[row["id"]]) else []
    lines = [json.dumps(_lean(row), sort_keys=True) + "\n" for row in kept]
    (CAPTURES / ROWS).write_text("".join(sorted(lines)), encoding="utf-8")


def _add(tar: tarfile.TarFile, row: Mapping[str, Any], bundle: Path, names: list[str]) -> bool:
    """Add the recording of a case where there is room for it; whether there was."""
    periodic = any(cause["id"].startswith("periodic-") for cause in row["causes"])
    with unpacked(bundle, names) as files, TemporaryDirectory() as out:
        short = list(files)
        if row.get("cut", row)["steps"] > STEPS and not periodic:
            short = [Path(out) / path.name for path in files]
            for path, target in zip(files, short, strict=True):
                slice_trace(path, target, (0, STEPS + 1))
        kept = {f"{row['id']}/{path.name}{SUFFIX}": pack(path) for path in short}
        if tar.offset + sum(map(len, kept.values())) > MOST_BYTES:
            return False
        for name, content in kept.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, BytesIO(content))
    return True


def _size(bundle: Path, names: list[str]) -> int:
    with tarfile.open(bundle) as tar:
        return sum(tar.getmember(name).size for name in set(names))


def _lean(row: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key not in LEFT_OUT}


def write_expected() -> None:
    """Write down what is said now."""
    for folder in (CAPTURES, HARDWARE):
        where = members(folder)
        found = {row["id"]: outcome(row, where) for row in rows_of(folder)}
        text = json.dumps(found, indent=1, sort_keys=True) + "\n"
        (folder / EXPECTED).write_text(text, encoding="utf-8")


def outcome(row: Mapping[str, Any], where: Mapping[str, tuple[Path, list[str]]]) -> dict[str, Any]:
    """Whether traceprobe names the class of a case, here and now, and where it names the cause.

    A cause counts whether it was felt or not: a busy machine times badly.

    Args:
        where: the files of each case, from `members`.
    """
    bundle, names = where[row["id"]]
    with unpacked(bundle, names) as files:
        report = traceprobe.analyze([traceprobe.load(path) for path in files])
    felt = {**row, "felt": bool(row["causes"]), "each_felt": None}
    found = asdict(mark(felt, read(json.loads(report.to_json()))))
    if not row["causes"]:
        return {"alarms": found["alarms"]}
    return {"class": found["cls"], "place": found["place"]}


def worse(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What got worse, in words: the class, the cause in its place or in the first three, alarms."""
    found = []
    if before.get("class") and not now.get("class"):
        found.append("the class is wrong now")
    if _place(now) > _place(before):
        found.append(f"the cause was in place {before['place']}, now {now['place'] or 'nowhere'}")
    if (now.get("alarms") or 0) > (before.get("alarms") or 0):
        found.append(f"{now['alarms']} alarms of a healthy run, there were {before['alarms']}")
    return found


def _place(outcome: Mapping[str, Any]) -> int:
    """Places that nobody looks at are the same."""
    place = outcome.get("place")
    return min(place, FIRST + 1) if place else FIRST + 1
