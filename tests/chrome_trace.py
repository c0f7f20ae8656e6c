"""Chrome traces read without the project's own reader: every event with its text."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from decimal import Decimal

_DECODE = json.JSONDecoder(strict=False, parse_float=Decimal).raw_decode


def events_of(path):
    """(event, its text) of each event of a whole file, in order; numbers are exact."""
    stored = path.read_bytes()
    text = (gzip.decompress(stored) if stored[:2] == b"\x1f\x8b" else stored).decode("utf-8-sig")
    begin = 0 if text.lstrip()[0] == "[" else text.index('"traceEvents"')
    at = text.index("[", begin) + 1
    found = []
    while True:
        while text[at] in " \t\r\n,":
            at += 1
        if text[at] == "]":
            return found
        event, end = _DECODE(text, at)
        found.append((event, text[at:end]))
        at = end


def is_ours(event):
    return event.get("cat") in ("traceprobe", "traceprobe_view")


def ours(path):
    return [event for event, _ in events_of(path) if is_ours(event)]


def theirs(path):
    return [text for event, text in events_of(path) if not is_ours(event)]


def note(path):
    """What the file says of how it was made."""
    (found,) = (e for e in ours(path) if e["ph"] == "M" and e["name"] == "traceprobe")
    return found["args"]


def nanoseconds(microseconds):
    found = Decimal(microseconds) * 1000
    assert found == int(found)
    return int(found)


def tracks(events):
    """Slices (t0, t1, name, arguments) in ns of each track, by process and name of the track."""
    processes = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    threads = {
        (e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"
    }
    found = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            start = nanoseconds(event["ts"])
            slice_ = (start, start + nanoseconds(event["dur"]), event["name"], event["args"])
            key = event["pid"], event["tid"]
            found[processes[event["pid"]], threads[key]].append(slice_)
    return found


def counters(events):
    """(time in ns, value) of each counter, by name."""
    found = defaultdict(list)
    for event in events:
        if event["ph"] == "C":
            (value,) = event["args"].values()
            found[event["name"]].append((nanoseconds(event["ts"]), value))
    return found


def crossing(slices):
    """Slices of a track of which one begins in another and ends after it."""
    found, open_until = [], []
    for start, end, *_ in sorted(slices, key=lambda each: (each[0], -each[1])):
        while open_until and open_until[-1] <= start:
            open_until.pop()
        if open_until and end > open_until[-1]:
            found.append((start, end))
        open_until.append(end)
    return found
