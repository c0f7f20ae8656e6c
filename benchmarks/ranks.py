"""Make the traces of many ranks from the trace of one.

    python -m benchmarks.ranks SOURCE.json[.gz] FOLDER COUNT

Every rank does what the source does, and its collectives end when those of the source end. What is
between two collectives is stretched at random for each rank, so that it arrives at the next one
later than the source and waits less; the straggler arrives last everywhere. Clocks are apart by
some microseconds. What the source's capture timed without a profiler says nothing of such a run,
and is left out.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
from pathlib import Path

import numpy as np

from benchmarks.kineto_text import KinetoText, read
from traceprobe.timeline.intervals import union

JITTER = 0.2
"""A rank arrives late by up to this part of each collective."""
STRAGGLER = 0.8
"""The straggler arrives late by this part of each collective."""
CLOCK_NS = 50_000
"""Clocks are ahead or behind by up to this."""
_TIMES = re.compile(r'("ts": )(\d+(?:\.\d+)?)(?:(, "dur": )(\d+(?:\.\d+)?))?')
_COLLECTIVE = re.compile(r"nccl(?:Dev)?Kernel", re.IGNORECASE)
_GROUP = re.compile(r'"(world_size|pg_size|Group size)": \d+')
_MEMBERS = re.compile(r'"Process Group Ranks": "[^"]*"')
_RANK = re.compile(r'"(rank|Rank)": \d+')
_RANKS = re.compile(r'"ranks": \[[^]]*\]')
_CALIBRATION = re.compile(r'("unprofiled_(?:step|data_wait)_ms": )[^,}]+')
_SHOWN = 30
"""PyTorch lists this many members of a group, then dots."""


class Source:
    """The trace of one rank, taken apart at its times.

    Raises:
        ValueError: it has no collectives, or is not laid out as PyTorch does.
    """

    def __init__(self, trace: Path) -> None:
        self._text: KinetoText = read(trace)
        self._pieces = _TIMES.split(",\n".join(self._text.events))
        self._starts = np.array([_ns(t) for t in self._pieces[2::5]], dtype=np.int64)
        lasting = np.array([_ns(t or "0") for t in self._pieces[4::5]], dtype=np.int64)
        self._ends = self._starts + lasting
        events = [json.loads(event) for event in self._text.events]
        collective = np.array([bool(_COLLECTIVE.match(e["name"])) for e in events if "ts" in e])
        if not collective.any():
            raise ValueError(f"{trace} has no collectives")
        begin, end = union(self._starts[collective], self._ends[collective])
        self._begin, self._end = begin, end
        self._zero = self._starts.min()
        self._knots = np.concatenate([[0], np.stack([begin, end], 1).ravel() - self._zero])

    def rank(self, rank: int, count: int, *, straggler: bool) -> str:
        """The trace of another rank of `count`; the same for the same rank."""
        random = np.random.default_rng(rank)
        late = np.full(len(self._begin), STRAGGLER)
        if not straggler:
            late = random.uniform(0, JITTER, len(self._begin))
        # What is added never falls faster than time passes: what encloses an event still does.
        added = np.stack([late * (self._end - self._begin), np.zeros(len(late))], 1).ravel()
        added = np.concatenate([[0.0], added]) + random.integers(-CLOCK_NS, CLOCK_NS + 1)
        starts, ends = (
            t + np.floor(np.interp(t - self._zero, self._knots, added)).astype(np.int64)
            for t in (self._starts, self._ends)
        )
        pieces = list(self._pieces)
        pieces[2::5] = map(_us, starts.tolist())
        pieces[3::5] = [piece or "" for piece in pieces[3::5]]
        lasting = zip(pieces[4::5], (ends - starts).tolist(), strict=True)
        pieces[4::5] = ["" if old is None else _us(ns) for old, ns in lasting]
        shown = ", ".join(map(str, range(min(count, _SHOWN)))) + ", ..." * (count > _SHOWN)
        events = _MEMBERS.sub(f'"Process Group Ranks": "[{shown}]"', "".join(pieces))
        head = _RANKS.sub(f'"ranks": {list(range(count))}', self._text.head)
        before, after = (_CALIBRATION.sub(r"\1null", part) for part in (head, self._text.tail))
        text = before + events + after
        return _RANK.sub(rf'"\1": {rank}', _GROUP.sub(rf'"\1": {count}', text))


def write(source: Path, folder: Path, count: int, straggler: int | None = None) -> list[Path]:
    """Write the traces of `count` ranks, one of them perhaps a straggler."""
    made = Source(source)
    paths = [folder / f"rank{rank:04d}.json.gz" for rank in range(count)]
    for rank, path in enumerate(paths):
        text = made.rank(rank, count, straggler=rank == straggler)
        path.write_bytes(gzip.compress(text.encode(), mtime=0))
    return paths


def _ns(us: str) -> int:
    whole, _, part = us.partition(".")
    return int(whole) * 1000 + int(part[:3].ljust(3, "0"))


def _us(ns: int) -> str:
    return f"{ns // 1000}.{ns % 1000:03d}"


def main() -> None:
    """Write the ranks; the middle one is the straggler."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("source", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("count", type=int)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    straggler = options.count // 2 if options.count > 1 else None
    write(options.source, options.folder, options.count, straggler)


if __name__ == "__main__":
    main()
