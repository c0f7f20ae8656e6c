"""Names into a recording: the timed trace again, with what the second capture knows of it.

Events are copied as they are, text for text; only operators get arguments, and stretches of the
category `blame` follow the last event. What fails here leaves the trace as it was.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from traceprobe.capture.blame.carry_over import Named, NoNames, named_recording
from traceprobe.capture.blame.host_events import event_chunks
from traceprobe.capture.blame.recorder import heavy_trace_name, instants_name, names_name
from traceprobe.capture.recording.recording_plan import METADATA_KEY, sidecar_name, trace_name
from traceprobe.ingest.kineto.chunks import EventSplitter

CATEGORY = "blame"
FACTS = "blame"
"""Field of the sidecar that says how names were carried over."""
_ARGS = re.compile(rb'"args"\s*:\s*\{\s*(?=")')
_LEVEL = 6
_EARLY = "the program was ended before they were recorded"


def embed_names(folder: Path, rank: int) -> str | None:
    """Carry the names of a rank over into its trace and its sidecar.

    Returns:
        Why there are none, None where there are.
    """
    light, sidecar = folder / trace_name(rank), folder / sidecar_name(rank)
    heavy, noted = folder / heavy_trace_name(rank), folder / names_name(rank)
    instants = folder / instants_name(rank)
    named, reason = None, None
    try:
        if not noted.exists():
            raise NoNames(_EARLY)
        named = named_recording(light, heavy, noted, instants)
        _rewrite(light, named)
    except NoNames as error:
        reason = str(error)
    except Exception as error:  # the timed trace is whole without names
        reason = f"they could not be carried over ({type(error).__name__}: {error})"
    facts = {"reason": reason} if named is None or reason else named.facts
    recorded = json.loads(sidecar.read_text())
    _replace(sidecar, json.dumps({**recorded, FACTS: facts}, indent=1, sort_keys=True) + "\n")
    for path in (heavy, noted, instants):
        path.unlink(missing_ok=True)
    return reason


def _rewrite(light: Path, named: Named) -> None:
    temporary = light.with_name(f".{light.name}.tmp")
    splitter = EventSplitter()
    try:
        with gzip.open(temporary, "wb", compresslevel=_LEVEL) as file:
            row = 0
            for chunk in event_chunks(light, splitter):
                if not row:
                    head = _with_facts(splitter.head, named.facts)
                    file.write(head + b'"traceEvents": [\n')
                events = msgspec.json.decode(b"[" + chunk + b"]", type=list[msgspec.Raw])
                for n, event in enumerate(map(bytes, events), row):
                    file.write(b",\n" if n else b"")
                    file.write(_with_shapes(event, named.shapes.get(n)))
                row += len(events)
            for event in _blamed(named):
                file.write(b",\n" + event)
            file.write(b"\n]" + splitter.tail)
        temporary.replace(light)
    finally:
        temporary.unlink(missing_ok=True)


def _with_shapes(event: bytes, shapes: bytes | None) -> bytes:
    return event if shapes is None else _ARGS.sub(lambda m: m[0] + shapes + b", ", event, count=1)


def _with_facts(head: bytes, facts: dict[str, Any]) -> bytes:
    """What precedes the events, with the facts in the sidecar that is there."""
    before = head.rstrip().rstrip(b",") + b"}"
    values = msgspec.json.decode(before, type=dict[str, msgspec.Raw])
    recorded = bytes(values[METADATA_KEY])
    merged = {**json.loads(recorded), FACTS: facts}
    return head.replace(recorded, json.dumps(merged, sort_keys=True).encode(), 1)


def _blamed(named: Named) -> Iterator[bytes]:
    found = named.stretches
    names = [json.dumps(name).encode() for name in found.names]
    rows = zip(found.t0.tolist(), found.t1.tolist(), found.name.tolist(), strict=True)
    for t0, t1, name in rows:
        yield (
            b'{"ph":"X","cat":"%s","name":%s,"pid":%d,"tid":%d,"ts":%s,"dur":%s}'
            % (
                CATEGORY.encode(),
                names[name],
                *named.thread,
                _microseconds(t0),
                _microseconds(t1 - t0),
            )
        )


def _microseconds(ns: int) -> bytes:
    return b"%d.%03d" % divmod(ns, 1000)


def _replace(path: Path, text: str) -> None:
    temporary = path.with_suffix(".tmp")
    temporary.write_text(text)
    temporary.replace(path)
