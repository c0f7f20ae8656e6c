"""What the processes of a watched run noted, as columns."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from traceprobe.capture.watch.rows import FACTS, READINGS, ROW, SUFFIX, Kind

Column = npt.NDArray[np.float64]
Whole = npt.NDArray[np.int64]
_ROW = np.dtype(
    {
        "names": ["kind", "count", "number", "end_ns", "ns", "wait_ns", "longest_ns"],
        "formats": ["<u1", "<u2", "<u4", "<i8", "<i8", "<i8", "<i8"],
        "offsets": [0, 2, 4, 8, 16, 24, 32],
        "itemsize": ROW.size,
    }
)


class _Facts(msgspec.Struct, frozen=True):
    """What a process says of itself."""

    rank: int
    began_ns: int
    device: str | None = None
    workers: int | None = None
    ended: bool = False


class Process(msgspec.Struct, frozen=True):
    """One process that trained.

    Args:
        rank: of it. device: name of its GPU. workers: of its loader.
        ended: whether it came to its own end.
        number, count, end_ns, ms, wait_ms, longest_ms: steps, or groups of `count` of them; times
            are means of one.
        events: by kind, rows of number, count, end and duration in ns.
        readings: by name, each as long as `at_ns`, NaN where there was none; texts apart.
        throttled: reasons for a lower clock, a set for each reading.
    """

    rank: int
    device: str | None
    workers: int | None
    ended: bool
    began_ns: int
    number: Whole
    count: Whole
    end_ns: Whole
    ms: Column
    wait_ms: Column
    longest_ms: Column
    events: Mapping[Kind, Whole]
    readings: Mapping[str, Column]
    throttled: list[frozenset[str]]

    @property
    def steps(self) -> int:
        """How many it made; the first, whose beginning nobody saw, is in no row."""
        return 1 + int(self.count.sum())

    def row_of(self, number: Whole) -> Whole:
        """Row of each step number; numbers before the first and after the last are on the edge."""
        return np.clip(np.searchsorted(self.number, number, "right") - 1, 0, self.number.size - 1)


NO_STEP = "no step"


def steps_without_a_length(folder: Path) -> str:
    """How many steps were made where none has a known length, in words."""
    ended = [_facts(path).ended for path in folder.glob(f"*{FACTS}")]
    if not ended:
        return NO_STEP
    return "1 step" if all(ended) else "less than a second of steps"


def read_processes(folder: Path) -> list[Process]:
    """Those that made steps, by rank; of several of one rank the one that made most."""
    found = [_read(path) for path in sorted(folder.glob(f"*{FACTS}"))]
    best: dict[int, Process] = {}
    for process in found:
        if process is not None and (
            process.rank not in best or process.steps > best[process.rank].steps
        ):
            best[process.rank] = process
    return [best[rank] for rank in sorted(best)]


def _read(path: Path) -> Process | None:
    facts = _facts(path)
    content = path.with_suffix(SUFFIX).read_bytes()
    rows = np.frombuffer(content[: len(content) // ROW.size * ROW.size], dtype=_ROW)
    steps = rows[rows["kind"] == Kind.STEP]
    if not steps.size:
        return None
    count = steps["count"].astype(np.int64)
    return Process(
        rank=facts.rank,
        device=facts.device,
        workers=facts.workers,
        ended=facts.ended,
        began_ns=facts.began_ns,
        number=steps["number"].astype(np.int64),
        count=count,
        end_ns=steps["end_ns"].astype(np.int64),
        ms=steps["ns"] / count / 1e6,
        wait_ms=steps["wait_ns"] / count / 1e6,
        longest_ms=steps["longest_ns"] / 1e6,
        events={kind: _events(rows[rows["kind"] == kind]) for kind in Kind if kind != Kind.STEP},
        **_readings(path.with_suffix(READINGS)),
    )


def _facts(path: Path) -> _Facts:
    return msgspec.json.decode(path.read_bytes(), type=_Facts)


def _events(rows: npt.NDArray[Any]) -> Whole:
    columns = [rows[name].astype(np.int64) for name in ("number", "count", "end_ns", "ns")]
    return np.stack(columns, axis=1) if rows.size else np.empty((0, 4), np.int64)


def _readings(path: Path) -> dict[str, Any]:
    """The columns of the readings; a line that a kill cut off is left out."""
    content = path.read_bytes() if path.exists() else b""
    rows: list[dict[str, Any]] = [
        msgspec.json.decode(line) for line in content.split(b"\n")[:-1] if line
    ]
    names = {name for row in rows for name, value in row.items() if isinstance(value, (int, float))}
    columns = {
        name: np.array([row.get(name, np.nan) for row in rows], np.float64)
        for name in sorted(names | {"at_ns"})
    }
    return {
        "readings": columns,
        "throttled": [frozenset(map(str, row.get("throttled", ()))) for row in rows],
    }
