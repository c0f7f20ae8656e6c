"""Damage as it is found in the wild, applied to good files.

A Kineto fault takes the bytes of a trace and returns the damaged bytes and how many events it
touches. Most hurt the first kernel event only.
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Outcome = Literal["intact", "repaired", "lost"]
Edit = Callable[[bytes], bytes]

_KERNEL = re.compile(rb'"cat"\s*:\s*"kernel"')


@dataclass(frozen=True)
class Fault:
    """A kind of damage and what a tolerant reader makes of the events that it touches."""

    name: str
    outcome: Outcome
    apply: Callable[[bytes], tuple[bytes, int]]

    def __str__(self) -> str:
        return self.name


def spans(data: bytes) -> list[tuple[int, int]]:
    """Where each event of an intact trace starts and ends."""
    text = data.decode()
    found = re.search(r'"traceEvents"\s*:\s*\[', text)
    at = found.end() if found else text.index("[") + 1
    decoder, events = json.JSONDecoder(), []
    while text[at:].lstrip(", \n")[:1] == "{":
        at = text.index("{", at)
        _, end = decoder.raw_decode(text, at)
        events.append((len(text[:at].encode()), len(text[:end].encode())))
        at = end
    return events


def _in_kernel(edit: Edit) -> Callable[[bytes], tuple[bytes, int]]:
    def apply(data: bytes) -> tuple[bytes, int]:
        for start, end in spans(data):
            event = data[start:end]
            if _KERNEL.search(event):
                return data[:start] + edit(event) + data[end:], 1
        raise ValueError("the trace has no kernel")

    return apply


def _argument(text: str) -> Edit:
    """A further argument in front of the others."""
    return lambda event: re.sub(rb'("args"\s*:\s*\{)', rb"\1" + text.encode() + b", ", event)


def _name(text: bytes) -> Edit:
    """Raw bytes at the start of the name."""
    return lambda event: re.sub(rb'("name"\s*:\s*")', lambda m: m[1] + text, event, count=1)


def _value(key: str, value: str) -> Edit:
    """Another value for a number."""
    number = rf'("{key}"\s*:\s*)(-?[\d.]+)'.encode()
    return lambda event: re.sub(
        number, lambda m: m[1] + value.encode().replace(b"*", m[2]), event, count=1
    )


def _without(pattern: str) -> Edit:
    return lambda event: re.sub(pattern.encode(), b"", event, count=1)


def _trailing_comma(data: bytes) -> tuple[bytes, int]:
    end = spans(data)[-1][1]
    return data[:end] + b"," + data[end:], 0


def _log_text_in_tail(data: bytes) -> tuple[bytes, int]:
    end = data.rindex(b"}")
    message = b',\n  "WARNING": ["Out-of-range = 3829 "Buffers" dropped\n"]\n'
    return data[:end].rstrip() + message + data[end:], 0


def _cut_in_middle(data: bytes) -> tuple[bytes, int]:
    """Cut inside the middle one of the kernels."""
    events = spans(data)
    kernels = [n for n, (a, b) in enumerate(events) if _KERNEL.search(data[a:b])]
    number = kernels[len(kernels) // 2]
    start, end = events[number]
    return data[: (start + end) // 2], len(events) - number


def _cut_in_last(data: bytes) -> tuple[bytes, int]:
    start, end = spans(data)[-1]
    return data[: (start + end) // 2], 1


def _cut_after_last(data: bytes) -> tuple[bytes, int]:
    """No closing bracket: a process that died before it could write one."""
    return data[: spans(data)[-1][1]], 0


def truncated_gzip(data: bytes, fraction: float = 0.5) -> tuple[bytes, int]:
    """The first part of the gzipped bytes, and how many events no longer decode."""
    packed = gzip.compress(data, mtime=0)
    packed = packed[: int(len(packed) * fraction)]
    left = len(zlib.decompressobj(wbits=31).decompress(packed))
    return packed, sum(end > left for _, end in spans(data))


KINETO: tuple[Fault, ...] = (
    Fault("bare-inf", "repaired", _in_kernel(_argument('"memory bandwidth (GB/s)": inf'))),
    Fault("bare-nan", "repaired", _in_kernel(_argument('"memory bandwidth (GB/s)": nan'))),
    Fault("bare-minus-nan", "repaired", _in_kernel(_argument('"memory bandwidth (GB/s)": -nan'))),
    Fault("python-nan", "repaired", _in_kernel(_argument('"memory bandwidth (GB/s)": NaN'))),
    Fault("python-infinity", "repaired", _in_kernel(_argument('"bandwidth": -Infinity'))),
    Fault("bare-na", "repaired", _in_kernel(_argument('"est. achieved occupancy %": N/A'))),
    Fault("unescaped-quote", "repaired", _in_kernel(_name(b'<eval "f">\n'))),
    Fault("control-character", "repaired", _in_kernel(_name(b"\x01"))),
    Fault("raw-newline", "repaired", _in_kernel(_name(b"line\nbreak "))),
    Fault("bad-utf8", "repaired", _in_kernel(_name(b"\xff\xfe "))),
    Fault("backslash", "repaired", _in_kernel(_name(rb"C:\work\Users\x "))),
    Fault("empty-argument", "repaired", _in_kernel(lambda e: _last_brace(e, b", "))),
    Fault("uint64", "intact", _in_kernel(_argument('"Comms Id": 18446744073709551615'))),
    Fault("beyond-uint64", "intact", _in_kernel(_argument('"Comms Id": 184467440737095516150'))),
    Fault("duplicate-key", "intact", _in_kernel(_argument('"correlation": 0'))),
    Fault("string-time", "intact", _in_kernel(_value("ts", '"*"'))),
    Fault("string-number", "intact", _in_kernel(_value("correlation", '"*"'))),
    Fault("trailing-comma", "intact", _trailing_comma),
    Fault("log-text-in-tail", "intact", _log_text_in_tail),
    Fault("cut-after-last", "intact", _cut_after_last),
    Fault("missing-quote", "lost", _in_kernel(_without('"(?=tid")'))),
    Fault("missing-duration", "lost", _in_kernel(_without(r'"dur"\s*:\s*[\d.]+,\s*'))),
    Fault("negative-duration", "lost", _in_kernel(_value("dur", "-1"))),
    Fault("zero-time", "lost", _in_kernel(_value("ts", "0"))),
    Fault("cut-in-last", "lost", _cut_in_last),
    Fault("cut-in-middle", "lost", _cut_in_middle),
)


def _last_brace(event: bytes, text: bytes) -> bytes:
    """Text in front of the brace that closes the arguments."""
    at = event.rindex(b"}", 0, event.rindex(b"}"))
    return event[:at].rstrip() + text + event[at:]


LFS_POINTER = (
    b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 12345\n"
)
NSYS_REPORT = b"QuadDReport\0" + bytes(range(256)) * 8
"""A report's bytes: no export, whatever follows the name."""
PFTRACE = b"\x0a\x10\x08\x01\x12\x0c" + b"\x50\x01" * 64
HDF5 = b"\x89HDF\r\n\x1a\n" + bytes(512)
PARQUET = b"PAR1" + bytes(64) + b"PAR1"
EMPTY = b""


def truncated_sqlite(data: bytes, fraction: float = 0.6) -> bytes:
    """An export whose copy broke off; the header still promises all pages."""
    return data[: int(len(data) * fraction)]


def overwritten_sqlite(data: bytes, page: int = 4096) -> bytes:
    """An export whose pages after the first hold nothing usable."""
    return data[:page] + b"\xa5" * (len(data) - page)


HALF_WRITTEN = (
    'CREATE TABLE "StringIds" ("id" INTEGER, "value" TEXT NOT NULL)',
    'CREATE TABLE "ProcessStreams" ("globalPid" INTEGER, "filenameId" INTEGER)',
    "INSERT INTO StringIds VALUES (0, '[Unknown]')",
)
"""What a failed `nsys export` leaves behind."""
TEXT_IN_INTEGERS = (
    "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET start = 'not a number' WHERE rowid = 1",
    "UPDATE CUPTI_ACTIVITY_KIND_RUNTIME SET correlationId = 'none' WHERE rowid = 1",
)
"""SQLite lets any column hold any value: one kernel and one call are unusable."""
