"""A few small recordings of a CPU in the repository, which notice when answers get worse.

`python -m benchmarks.slowbench subset DIR` chooses them from what `record --cpu` left there, and
writes down what is said of them; without DIR it writes that down anew. Whoever makes an answer
worse says so there.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import traceprobe
from benchmarks.slowbench.captures import ROWS, members, rows_of, unpacked
from benchmarks.slowbench.marks import FIRST, class_of, mark
from benchmarks.slowbench.tools.traceprobe import read

CAPTURES = Path(__file__).with_name("captures")
EXPECTED = CAPTURES / "expected.json"
BUNDLE = "cpu-0.tar"
LEFT_OUT = ("blocks", "options", "turn_s", "finish", "steps", "twin")
MOST_BYTES = 2_000_000


def keep(folder: Path, count: int) -> None:
    """Copy recorded cases: of each cause in turn, what is felt first, then the smallest."""
    where = members(folder)
    rows = [row for row in rows_of(folder) if not row.get("failed") and row["id"] in where]
    groups: dict[str, list[tuple[int, dict[str, Any]]]] = {}
    for row in rows:
        name = "+".join(sorted(cause["id"] for cause in row["causes"])) or class_of(row)
        groups.setdefault(name, []).append((_size(*where[row["id"]]), row))
    for each in groups.values():
        each.sort(key=lambda sized: (not sized[1]["felt"], sized[0], sized[1]["id"]))
    chosen: list[dict[str, Any]] = []
    total = 0
    while len(chosen) < count and any(groups.values()):
        for name in sorted(groups):
            if groups[name] and len(chosen) < count:
                size, row = groups[name].pop(0)
                if total + size <= MOST_BYTES:
                    total += size
                    chosen.append(row)
    CAPTURES.mkdir(exist_ok=True)
    with tarfile.open(CAPTURES / BUNDLE, "w") as tar:
        for row in chosen:
            bundle, names = where[row["id"]]
            with tarfile.open(bundle) as source:
                for name in dict.fromkeys(names):
                    tar.addfile(source.getmember(name), source.extractfile(name))
    lines = [json.dumps(_lean(row), sort_keys=True) + "\n" for row in chosen]
    (CAPTURES / ROWS).write_text("".join(sorted(lines)), encoding="utf-8")


def _size(bundle: Path, names: list[str]) -> int:
    with tarfile.open(bundle) as tar:
        return sum(tar.getmember(name).size for name in set(names))


def _lean(row: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key not in LEFT_OUT}


def write_expected() -> None:
    """Write down what is said now."""
    found = {row["id"]: outcome(row) for row in rows_of(CAPTURES)}
    EXPECTED.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def outcome(row: Mapping[str, Any]) -> dict[str, Any]:
    """Whether traceprobe names the class of a case, here and now, and where it names the cause.

    A cause counts whether it was felt or not: a busy machine times badly.
    """
    bundle, names = members(CAPTURES)[row["id"]]
    with unpacked(bundle, names, plain=False) as files:
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
