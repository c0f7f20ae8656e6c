"""The traces in a folder, told by their content."""

from __future__ import annotations

import re
from pathlib import Path

from traceprobe.errors import DamagedInput, UnsupportedInput
from traceprobe.ingest.detect_format import detect_format

_MARKS = (b'"traceEvents"', b'"schemaVersion"', b'"deviceProperties"', b'"ph"')
"""What the first part of a Chrome trace has and other JSON has not."""

_RANK = re.compile(r"rank[-_.]?(\d{1,6})(?!\d)", re.IGNORECASE)


def find_traces(folder: Path) -> tuple[list[Path], list[Path]]:
    """Files of a folder that are traces, and everything else but hidden files.

    Both are in natural order: `rank2` before `rank10`. Folders in it are not looked into. A file
    that cannot be read may be a trace: it is for who reads it to say that a rank is lost.

    Raises:
        OSError: the folder cannot be read.
    """
    entries = sorted((p for p in folder.iterdir() if p.name[0] != "."), key=natural_order)
    traces = [path for path in entries if path.is_file() and is_trace(path)]
    taken = set(traces)
    return traces, [path for path in entries if path not in taken]


def named_rank(name: str) -> int | None:
    """The rank in the name of a file, where it is called so."""
    match = _RANK.search(name)
    return None if match is None else int(match[1])


def natural_order(path: Path) -> list[tuple[int, str]]:
    """Sort key by which numbers in a path count as numbers."""
    words = re.split(r"(\d+)", str(path))
    return [(int(word), "") if word.isdecimal() else (0, word) for word in words]


def is_trace(path: Path) -> bool:
    """Whether a file begins as a trace does, or may be one for all that can be read of it."""
    try:
        detected = detect_format(path)
        return detected.format == "nsys" or any(mark in detected.head for mark in _MARKS)
    except (UnsupportedInput, DamagedInput):
        return False
    except OSError:
        return True
