"""Make a Kineto trace longer.

    python -m benchmarks.grow_kineto SOURCE.json[.gz] TARGET.json[.gz] FACTOR

The events are repeated later in time, with new correlation ids, flow ids and step numbers, so that
the file stays a valid trace of more steps. Memory is bounded by the source, however large the
target becomes.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import re
from dataclasses import asdict
from pathlib import Path

import numpy as np

from benchmarks.kineto_text import read
from benchmarks.measured_input import Input

_NUMBER = re.compile(
    r'(?P<time>"ts": )'
    r'|(?P<id>"(?:correlation|[Ee]xternal id|id|Sequence number|Ev Idx)": )'
    r'|(?P<step>"name": "(?:ProfilerStep#|[Ss]tep |[Ii]teration ))'
)
_DIGITS = re.compile(r"\d+")


class _Body:
    """The repeated events, taken apart at the numbers that differ between the copies."""

    def __init__(self, text: str, span: int) -> None:
        literals, numbers, kinds, at = [], [], [], 0
        for found in _NUMBER.finditer(text):
            digits = _DIGITS.match(text, found.end())
            if digits is None:
                continue
            literals.append(text[at : digits.start()])
            numbers.append(int(digits[0]))
            kinds.append(found.lastgroup)
            at = digits.end()
        self._literals = [*literals, text[at:]]
        self._numbers = np.array(numbers, dtype=np.int64)
        kind = np.array(kinds)
        ids, steps = self._numbers[kind == "id"], self._numbers[kind == "step"]
        self._stride = np.select(
            [kind == "time", kind == "id"],
            [span, 1 + int(ids.max(initial=0))],
            1 + int(steps.max() - steps.min()) if len(steps) else 0,
        )

    def copy(self, k: int) -> str:
        """Times in whole microseconds later, numbers out of the way of the other copies'."""
        pieces = [""] * (2 * len(self._literals) - 1)
        pieces[::2] = self._literals
        pieces[1::2] = map(str, (self._numbers + k * self._stride).tolist())
        return "".join(pieces)


def grow(source: Path, target: Path, factor: int) -> Input:
    """Write `source` repeated `factor` times to `target`, gzipped if it is named `.gz`.

    Raises:
        ValueError: `source` is not laid out as PyTorch does.
    """
    text = read(source)
    events = [json.loads(event) for event in text.events]
    work = [e for e in events if e["ph"] == "X" and e.get("cat") != "Trace"]
    span = math.ceil(max(e["ts"] + e["dur"] for e in work) - min(e["ts"] for e in work)) + 1
    repeated = {id(e) for e in work} | {id(e) for e in events if e["ph"] in "sf"}
    body = _Body(
        ",\n".join(t for t, e in zip(text.events, events, strict=True) if id(e) in repeated), span
    )
    first = ",\n".join(
        _Body(t, (factor - 1) * span).copy(1) if e["name"] == "Record Window End" else t
        for t, e in zip(text.events, events, strict=True)
    )
    with gzip.open(target, "wt") if target.suffix == ".gz" else target.open("w") as out:
        size = out.write(text.head + first)
        for k in range(1, factor):
            size += out.write(",\n" + body.copy(k))
        size += out.write(text.tail)
    count = len(events) + (factor - 1) * len(repeated)
    return Input(factor, str(target), count, target.stat().st_size, size)


def plain_bytes(source: Path) -> int:
    """Size of the source without compression."""
    text = read(source)
    return sum(len(e) + 2 for e in text.events) + len(text.head) + len(text.tail)


def main() -> None:
    """Grow one trace and print what it is."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("factor", type=int)
    options = parser.parse_args()
    print(json.dumps(asdict(grow(options.source, options.target, options.factor))))


if __name__ == "__main__":
    main()
