"""Cut some steps out of a Kineto trace, to make a small sample of it.

    python scripts/slice_kineto.py trace.json.gz sample_traces/name.json.gz 0:6

`A:B` counts the ProfilerStep ranges of the trace from 0; B is left out. Host events are kept by
their start, GPU work by its launch (what was launched before the capture began is kept by its
start), flow arrows with their sources. Events are copied as text, so the sample keeps the layout
and the digits that PyTorch wrote. Paths in `traceName` are cut to the sample's own name, and the
result depends on the input alone.
"""

from __future__ import annotations

import gzip
import json
import math
import re
import sys
from pathlib import Path
from typing import Any

Event = dict[str, Any]

GPU_WORK = {"kernel", "gpu_memcpy", "gpu_memset"}
LAUNCHES = {"cuda_runtime", "cuda_driver"}
BETWEEN_EVENTS = re.compile(r",\n(?=  \{)")


def split(text: str) -> tuple[str, list[str], str]:
    """The head of a trace as PyTorch lays it out, the text of each event, and the tail."""
    start = re.search(r'"traceEvents": \[\n', text)
    end = text.rindex("\n  ]")
    if start is None:
        sys.exit("not laid out as PyTorch does")
    return text[: start.end()], BETWEEN_EVENTS.split(text[start.end() : end]), text[end:]


def window(events: list[Event], first: int, last: int) -> tuple[float, float]:
    """Host time from the start of step `first` to the start of step `last`, in trace units.

    Before the first step and after the last one everything belongs to the sample.
    """
    starts = sorted(
        e["ts"]
        for e in events
        if e.get("cat") == "user_annotation" and e["name"].startswith("ProfilerStep#")
    )
    if not 0 <= first < last <= len(starts):
        sys.exit(f"the trace has {len(starts)} steps")
    return (
        starts[first] if first else -math.inf,
        starts[last] if last < len(starts) else math.inf,
    )


def keep(events: list[Event], low: float, high: float) -> list[bool]:
    """Which events belong to the host window [low, high)."""
    inside = [low <= e["ts"] < high for e in events]
    launches = {
        e["args"]["correlation"]: i
        for e, i in zip(events, inside, strict=True)
        if e.get("cat") in LAUNCHES and "correlation" in e.get("args", {})
    }
    ranges = {
        e["args"]["External id"]
        for e, i in zip(events, inside, strict=True)
        if i and e.get("cat") == "user_annotation"
    }

    def belongs(event: Event, in_window: bool) -> bool:
        category = event.get("cat")
        if event["ph"] == "M":
            return True
        if category in GPU_WORK:
            return launches.get(event["args"].get("correlation"), in_window)
        if category == "gpu_user_annotation":
            return event["args"].get("External id") in ranges
        return in_window or category == "Trace" or event["name"] == "Record Window End"

    kept = [belongs(e, i) for e, i in zip(events, inside, strict=True)]
    arrows = {
        (e["cat"], e["id"]) if e["ph"] == "s" else ("ac2g", e["args"].get("correlation"))
        for e, k in zip(events, kept, strict=True)
        if k and (e["ph"] == "s" or e.get("cat") in LAUNCHES | GPU_WORK)
    }
    return [
        (e["cat"], e["id"]) in arrows if e["ph"] == "f" else k
        for e, k in zip(events, kept, strict=True)
    ]


def close(text: str, event: Event, high: float) -> str:
    """End the records of the whole capture where the sample ends."""
    if math.isinf(high):
        return text
    if event["name"] == "Record Window End":
        return text.replace(f'"ts": {event["ts"]}', f'"ts": {high}')
    if event.get("cat") == "Trace":
        return re.sub(r'"dur": [\d.]+', f'"dur": {high - event["ts"]:.3f}', text)
    return text


def main(source: str, target: str, steps: str) -> None:
    """Cut one trace, plain or gzipped, into a gzipped one."""
    data = Path(source).read_bytes()
    text = (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode()
    head, pieces, tail = split(text)
    events = [json.loads(piece) for piece in pieces]
    first, last = map(int, steps.split(":"))
    low, high = window(events, first, last)
    selected = keep(events, low, high)
    body = ",\n".join(
        close(piece, event, high)
        for piece, event, kept in zip(pieces, events, selected, strict=True)
        if kept
    )
    name = Path(target).name.removesuffix(".gz")
    tail = re.sub(r'"traceName": "[^"]*"', f'"traceName": "{name}"', tail)
    cut = (head + body + tail).encode()
    if len(json.loads(cut)["traceEvents"]) != sum(selected):
        sys.exit("the events were not split where they end")
    Path(target).write_bytes(gzip.compress(cut, 9, mtime=0))
    size = Path(target).stat().st_size
    print(f"{target}: {sum(selected):,} of {len(events):,} events, {size:,} bytes")


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
