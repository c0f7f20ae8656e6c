"""Damage to Chrome traces: one field of all or of some events, or what is around the events."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from random import Random
from typing import Any

from tests.damage.bytewise import ANY, Damage

Event = dict[str, Any]


def _events(change: Callable[[Event, Random], Event | None], every: int = 1) -> Damage:
    """Change every so-manieth event; None leaves it out."""

    def damage(data: bytes, random: Random) -> bytes:
        body = _body(data)
        rows = body["traceEvents"]
        kept = [change(e, random) if n % every == 0 else e for n, e in enumerate(rows)]
        return json.dumps(body | {"traceEvents": [e for e in kept if e is not None]}).encode()

    return damage


def _body(data: bytes) -> dict[str, Any]:
    try:
        body = json.loads(data)
    except ValueError:  # a base may be damaged already
        return {"traceEvents": []}
    return body if isinstance(body, dict) else {"traceEvents": body}


def _set(key: str, value: Callable[[Any, Random], Any]) -> Callable[[Event, Random], Event]:
    return lambda e, random: e | {key: value(e[key], random)} if key in e else e


def _argument(key: str, value: Callable[[Any, Random], Any]) -> Callable[[Event, Random], Event]:
    def change(event: Event, random: Random) -> Event:
        arguments = event.get("args")
        if not isinstance(arguments, dict) or key not in arguments:
            return event
        return event | {"args": arguments | {key: value(arguments[key], random)}}

    return change


def _without(key: str) -> Callable[[Event, Random], Event]:
    return lambda event, random: {k: v for k, v in event.items() if k != key}


def _times(value: Any, factor: float) -> Any:
    return value * factor if isinstance(value, (int, float)) else value


def _text(pattern: bytes, replacement: bytes, every: int) -> Damage:
    """Replace every so-manieth match of an expression."""

    def damage(data: bytes, random: Random) -> bytes:
        counter = iter(range(1 << 62))
        return re.sub(pattern, lambda m: replacement if next(counter) % every == 0 else m[0], data)

    return damage


def _top(**changes: Any) -> Damage:
    return lambda data, random: json.dumps(_body(data) | changes).encode()


def _reversed(data: bytes, random: Random) -> bytes:
    body = _body(data)
    return json.dumps(body | {"traceEvents": body["traceEvents"][::-1]}).encode()


def _merged(data: bytes, random: Random) -> bytes:
    """The file and another of a process with other ids, merged into one list."""
    body = _body(data)
    again = [
        e | {"pid": e["pid"] + 1} for e in body["traceEvents"] if isinstance(e.get("pid"), int)
    ]
    return json.dumps(body | {"traceEvents": body["traceEvents"] + again}).encode()


DAMAGE: dict[str, Damage] = {
    **ANY,
    **{f"without-{k}": _events(_without(k), 3) for k in ("ph", "cat", "name", "ts", "dur", "args")},
    **{f"without-all-{k}": _events(_without(k)) for k in ("cat", "pid", "tid", "args", "dur")},
    "text-times": _events(_set("ts", lambda v, r: str(v))),
    "text-names": _events(_set("name", lambda v, r: 7), 5),
    "negative-durations": _events(_set("dur", lambda v, r: -1), 4),
    "zero-durations": _events(_set("dur", lambda v, r: 0), 2),
    "zero-times": _events(_set("ts", lambda v, r: 0), 9),
    "endless-durations": _events(_set("dur", lambda v, r: _times(v, 1e5)), 500),
    "same-times": _events(_set("ts", lambda v, r: 1000.0)),
    "shuffled-times": _events(_set("ts", lambda v, r: _times(v, r.random()))),
    "no-correlation": _events(_argument("correlation", lambda v, r: 0)),
    "text-correlation": _events(_argument("correlation", lambda v, r: str(v))),
    "huge-correlation": _events(_argument("correlation", lambda v, r: (1 << 64) + v), 3),
    "streams": _events(_argument("stream", lambda v, r: r.randrange(1 << 40)), 50),
    "devices": _events(_argument("device", lambda v, r: r.randrange(8)), 2),
    "other-categories": _events(_set("cat", lambda v, r: str(v).upper()), 2),
    "no-kernels": _events(lambda e, r: None if e.get("cat") == "kernel" else e),
    "no-calls": _events(lambda e, r: None if "runtime" in str(e.get("cat")) else e),
    "lists-for-events": _events(lambda e, r: [e], 10),  # type: ignore[arg-type,return-value]
    "not-a-number": _text(rb'"dur": ?[\d.]+', b'"dur": NaN', 100),
    "not-available": _text(rb'"dur": ?[\d.]+', b'"dur": N/A', 7),
    "quotes": _text(rb'"name": ?"', b'"name": "a "quoted" ', 50),
    "controls": _text(rb'"name": ?"', b'"name": "\x01\x1b[2J', 20),
    "no-utf8": _text(rb'"name": ?"', b'"name": "\xff\xfe', 20),
    "commas": _text(rb"\}(?=\s*,)", b",}", 30),
    "no-key": _text(rb'"traceEvents"', b'"events"', 1),
    "no-brace": _text(rb"\}", b"", 1_000),
    "empty-distributed": _top(distributedInfo={}),
    "odd-distributed": _top(distributedInfo={"rank": "x", "world_size": -3}),
    "odd-base": _top(baseTimeNanoseconds="never"),
    "reversed": _reversed,
    "merged": _merged,
    "utf16": lambda data, random: data.decode("utf-8", "replace").encode("utf-16"),
    "byte-order-mark": lambda data, random: b"\xef\xbb\xbf" + data,
}
"""Name to damage of a Chrome trace."""
