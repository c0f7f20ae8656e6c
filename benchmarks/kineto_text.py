"""A Kineto trace as text: what is before the events, each event, what is after them.

Events keep their text, so that a copy with other times and numbers is the same in all else.
"""

from __future__ import annotations

import gzip
import re
from dataclasses import dataclass
from pathlib import Path

GZIP = b"\x1f\x8b"
_EVENTS = re.compile(r'"traceEvents": \[\s*\n')
_BETWEEN = re.compile(r",\s*\n(?=(?:  )?\{)")
_END = re.compile(r"\n\s*\](?=\s*[,}])")


@dataclass(frozen=True)
class KinetoText:
    """`head` + `events` joined by a comma and a line feed + `tail` is the file."""

    head: str
    events: list[str]
    tail: str


def read(path: Path) -> KinetoText:
    """Split a trace, plain or gzipped, as `torch.profiler` or `traceprobe slice` lays it out.

    Raises:
        ValueError: it is laid out in another way.
    """
    data = path.read_bytes()
    text = (gzip.decompress(data) if data.startswith(GZIP) else data).decode()
    start = _EVENTS.search(text)
    ends = list(_END.finditer(text, start.end())) if start else []
    if start is None or not ends:
        raise ValueError(f"{path} is not laid out as PyTorch does")
    end = ends[-1].start()
    return KinetoText(text[: start.end()], _BETWEEN.split(text[start.end() : end]), text[end:])
