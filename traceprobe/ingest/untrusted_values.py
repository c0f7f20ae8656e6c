"""Values from files that may hold anything: what does not fit is missing, and nothing is raised."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from traceprobe.model.codes import UNKNOWN
from traceprobe.model.sidecar import MAX_RANKS

NAME_LENGTH = 4_096
"""Characters of a name that count: kernels differ in fewer, and some names are whole programs."""
LONGEST_TEXT = 256
"""Characters of what a file says of itself: of a device, a thread, a version, a reason."""
_LONGEST_NUMBER = 40
"""Characters of a number: to make one of many digits takes long, and none of ours has more."""
_INT64 = 1 << 63
_DIGIT = re.compile(r"[0-9]")
HALF = re.compile("[\ud800-\udfff]")
"""Half of a character, which no encoding writes."""
MOST_BYTES = 1 << 44
"""No copy and no message has 16 TiB."""
FARTHEST_NS = 3_600_000_000_000_000_000
"""The farthest that a time or the base of a clock may be from zero: a century and a bit."""
LONGEST_NS = 1_000_000_000_000_000_000
"""No event takes 30 years; with it, a time and a base still add up to an int64."""
_LARGEST = 1 << 50
"""No device has a petabyte, or as many of anything else."""
_VERSION = re.compile(r"[0-9]{1,9}(\.[0-9]{1,6}){0,3}(-[0-9]{1,15}(v[0-9])?)?")


def rank_number(value: object) -> int | None:
    """A rank, or a number of ranks: a whole number that a run can have; None for anything else."""
    if isinstance(value, str) and value.isdecimal():
        value = int(value) if len(value) < 12 else None
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 <= value < MAX_RANKS else None


def device_amount(value: object) -> int | None:
    """How much a device says it has of something; None for anything that none can have."""
    return value if type(value) is int and 0 < value < _LARGEST else None


def compute_capability(major: object, minor: object) -> str | None:
    """A compute capability, e.g. "9.0"; None where it is none."""
    known = all(type(number) is int and number in range(100) for number in (major, minor))
    return f"{major}.{minor}" if known else None


def bounded_text(value: object, longest: int = LONGEST_TEXT) -> str:
    """A value as text of bounded length that can be encoded."""
    # What is cut off is not even written where the value is a text already.
    try:
        written = value[:longest] if isinstance(value, str) else str(value)[:longest]
    except (ValueError, RecursionError):  # a number of too many digits, lists in lists in lists
        return ""
    return HALF.sub("\ufffd", written)


def integer(value: Any) -> int:
    """A number or a numeric text as an int64; UNKNOWN for what is none."""
    if type(value) is int:
        return value if -_INT64 < value < _INT64 else UNKNOWN
    if isinstance(value, str):
        try:
            found = int(value) if len(value) <= _LONGEST_NUMBER else UNKNOWN
        except ValueError:
            return UNKNOWN
        return integer(found)
    if isinstance(value, float) and abs(value) < _INT64:  # which NaN is not
        return int(value)
    return UNKNOWN


def real(value: Any) -> float:
    """A number or a numeric text as a double; NaN for what is none, and for what none can hold."""
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return float("nan")


def bounded_int(digits: str) -> int | None:
    """The integer of a JSON text, None for one of so many digits that nothing counts so far."""
    return int(digits) if len(digits) <= _LONGEST_NUMBER else None


def digits(value: str) -> int | None:
    """The number that the digits of a text make together, "stream 7" is 7; None without any."""
    found = "".join(_DIGIT.findall(value[:NAME_LENGTH]))
    return int(found[:18]) if found else None


def tool_version(value: object) -> str | None:
    """A version of a tool as it stands in a file; None for anything that is none."""
    text = str(value) if isinstance(value, (str, int)) and not isinstance(value, bool) else ""
    return text if _VERSION.fullmatch(text) else None


JSON_ERRORS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What `msgspec.json` raises on bytes that are no JSON of the wanted type, or nested too deeply."""


def json_object(text: bytes) -> dict[str, Any] | None:
    """The JSON object in a text; None where it holds none."""
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except JSON_ERRORS:
        return None
