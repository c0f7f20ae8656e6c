"""Reading and writing Kineto traces event by event, as copies of them need it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from traceprobe.ingest.detect_format import detect_format
from traceprobe.ingest.kineto.chunks import BOUNDARY, BlockReader, EventSplitter
from traceprobe.ingest.untrusted_values import JSON_ERRORS, json_object

Event = TypeVar("Event")


def readable_events(
    source: Path, decode: Callable[[bytes], Event]
) -> Iterator[tuple[Event, bytes]]:
    """Each event of a trace, decoded and as its JSON text; damaged ones are left out."""
    for text in _event_texts(source):
        try:
            event = decode(text)
        except JSON_ERRORS:
            continue
        yield event, text


def _event_texts(source: Path) -> Iterator[bytes]:
    reader = BlockReader(source, detect_format(source).gzipped, lambda done, total: None)
    for chunk in EventSplitter().chunks(reader.blocks()):
        start = 0
        for match in [*BOUNDARY.finditer(chunk), None]:
            yield chunk[start : match.start() + 1 if match else len(chunk)].strip(b", \t\r\n")
            start = match.end() if match else len(chunk)


def read_metadata(source: Path) -> dict[str, Any]:
    """What stands before and after the events of a trace, by key."""
    reader = BlockReader(source, detect_format(source).gzipped, lambda done, total: None)
    splitter = EventSplitter()
    for _ in splitter.chunks(reader.blocks()):
        pass
    head = splitter.head.strip().rstrip(b", \t\r\n") + b"}"
    tail = b"{" + splitter.tail.strip().removeprefix(b",")
    return {**(json_object(head) or {}), **(json_object(tail) or {})}


def write_trace(
    target: Path, metadata: Mapping[str, Any], events: Iterable[Mapping[str, Any]]
) -> None:
    """Write a trace, its metadata on the first line and one event on each after that."""
    with target.open("w", encoding="utf-8", newline="\n") as file:
        file.write(json.dumps(metadata, sort_keys=True)[:-1] + ', "traceEvents": [')
        separator = "\n"
        for event in events:
            file.write(separator + json.dumps(event))
            separator = ",\n"
        file.write("\n]}\n")
