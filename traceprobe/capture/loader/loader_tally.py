"""What it takes to make batches: time in items and in collating, and the lines that take it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

from traceprobe.capture.blame.own_code import OwnCode, own_code

LONGEST_NAME = 200
"""Characters of the name of a line."""
_INSTALLED = ("site-packages/", "dist-packages/")
ITEM, COLLATE = "item", "collate"
WAITING = ""
MOST_LINES = 200
"""Lines that a tally passes on: those with most of the time."""
_MOST_KEPT = 5_000
"""Lines that a tally holds; a program has a few dozen that it is found in."""
_DEEPEST = 200
"""Frames of a stack that are looked at."""
_MACHINERY = "/torch/utils/data/"
"""PyTorch's own part of a loader; named only where nothing else runs."""

Line = tuple[str, str, int, str]
"""Part of the work, file, line, function."""


class Tally:
    """Of one process; the first batch, which opens files and fills caches, only counts alone.

    `part` says what is done now, for whoever samples it from another thread.
    """

    def __init__(self) -> None:
        self.part = WAITING
        self.batches = self.items = self.fetch_ns = self.collate_ns = self.samples = 0
        self.lines: dict[Line, int] = {}
        self._warm = False

    def begin(self) -> None:
        """A batch begins."""
        if self.batches and not self._warm:
            self.batches = self.items = self.fetch_ns = self.collate_ns = self.samples = 0
            self.lines = {}
            self._warm = True
        self.part = ITEM

    def end(self, items: int, fetch_ns: int, collate_ns: int) -> None:
        """A batch is complete."""
        self.batches += 1
        self.items += items
        self.fetch_ns += fetch_ns
        self.collate_ns += collate_ns

    def sample(self, frame: FrameType | None, ns: int) -> None:
        """What runs now has run for so long."""
        part = self.part
        if part == WAITING or frame is None:
            return
        file, line, function = place(frame)
        key = (part, file, line, function)
        if key in self.lines or len(self.lines) < _MOST_KEPT:
            self.lines[key] = self.lines.get(key, 0) + ns
            self.samples += 1

    def plain(self) -> dict[str, Any]:
        """The same as JSON can hold it, with names for lines."""
        lines = [
            (part, line_name(file, line, function), ns)
            for (part, file, line, function), ns in list(self.lines.items())
        ]
        return {
            **{name: getattr(self, name) for name in _COUNTS},
            "lines": sorted(lines, key=lambda line: -line[2])[:MOST_LINES],
            "sampled_ns": sum(ns for _, _, ns in lines),
        }


def line_name(file: str, line: int, function: str) -> str:
    """A line as Kineto writes one, `data/pictures.py(57): decode`.

    Files of the program are called as everywhere, those of a library by what it is imported as.
    """
    name = _own().name(file) or _library_name(Path(file).as_posix())
    return f"{name}({line}): {function}"[-LONGEST_NAME:]


def _library_name(file: str) -> str:
    for folder in _INSTALLED:
        if folder in file:
            return file.rpartition(folder)[2]
    return "/".join(Path(file).parts[-2:]).lstrip("/")


@cache
def _own() -> OwnCode:
    return own_code()


_COUNTS = ("batches", "items", "fetch_ns", "collate_ns", "samples")


def means(tallies: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Times of a batch in ms, mean over those of all tallies; empty without any batch."""
    tallies = list(tallies)
    batches, items, fetch_ns, collate_ns, samples = (
        sum(tally[name] for tally in tallies) for name in _COUNTS
    )
    if not batches or not items:
        return {}
    lines: dict[tuple[str, str], int] = {}
    for tally in tallies:
        for part, name, ns in tally["lines"]:
            lines[part, name] = lines.get((part, name), 0) + ns
    sampled = sum(tally["sampled_ns"] for tally in tallies)
    longest = sorted(lines.items(), key=lambda line: -line[1])[:MOST_LINES]
    each = fetch_ns / batches / 1e6
    return {
        "batches": batches,
        "items_per_batch": round(items / batches, 3),
        "item_ms": round((fetch_ns - collate_ns) / items / 1e6, 6),
        "collate_ms": round(collate_ns / batches / 1e6, 6),
        "samples": samples,
        "lines": [
            {"part": part, "name": name, "ms": round(each * ns / sampled, 6)}
            for (part, name), ns in longest
        ],
    }


def time_fetches(fetcher: Any, tally: Tally) -> None:
    """Have a fetcher of torch.utils.data count its batches in a tally."""
    collate = _TimedCollate(fetcher.collate_fn, tally, several=bool(fetcher.auto_collation))
    fetcher.collate_fn = collate
    fetcher.fetch = _TimedFetch(fetcher.fetch, collate, tally)


class _TimedCollate:
    def __init__(self, collate: Callable[[Any], Any], tally: Tally, *, several: bool) -> None:
        self._collate, self._tally, self._several = collate, tally, several
        self.items = self.ns = 0

    def __call__(self, data: Any) -> Any:
        tally = self._tally
        tally.part = COLLATE
        self.items = len(data) if self._several and hasattr(data, "__len__") else 1
        began = time.perf_counter_ns()
        try:
            return self._collate(data)
        finally:
            self.ns = time.perf_counter_ns() - began
            tally.part = ITEM


class _TimedFetch:
    def __init__(self, fetch: Callable[[Any], Any], collate: _TimedCollate, tally: Tally) -> None:
        self._fetch, self._collate, self._tally = fetch, collate, tally

    def __call__(self, index: Any) -> Any:
        tally, collate = self._tally, self._collate
        tally.begin()
        began = time.perf_counter_ns()
        try:
            batch = self._fetch(index)
        finally:
            tally.part = WAITING
        tally.end(collate.items, time.perf_counter_ns() - began, collate.ns)
        return batch


_ENTRIES = (_TimedCollate.__call__.__code__, _TimedFetch.__call__.__code__)


def place(frame: FrameType) -> tuple[str, int, str]:
    """File, line and function that the time of a stack belongs to.

    The innermost frame of the program's own code; without one, what the loader called of a library.
    """
    called = machinery = frame
    inner: FrameType | None = frame
    for _ in range(_DEEPEST):
        if inner is None or inner.f_code in _ENTRIES:
            break
        if _own().name(inner.f_code.co_filename) is not None:
            called = machinery = inner
            break
        if _MACHINERY in inner.f_code.co_filename.replace("\\", "/"):
            machinery = inner
        else:
            called = inner
        inner = inner.f_back
    if _MACHINERY in called.f_code.co_filename.replace("\\", "/"):
        called = machinery
    return called.f_code.co_filename, called.f_lineno, called.f_code.co_name
