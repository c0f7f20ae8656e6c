"""Where in the program something is, in words."""

from __future__ import annotations

import re

from msgspec import UnsetType

from traceprobe.formatting import percent, shorten, significant
from traceprobe.records.report import Finding
from traceprobe.records.site import Site

_FRAME = re.compile(r"(?P<file>.+?)\((?P<line>\d+)\): (?P<function>.+)")
MAX_PART = 80
"""Characters of a name in a place."""


def place(site: Site) -> str:
    """`train.py:57 in train_step (aten::item)`, or as much as is known."""
    within = None if site.within is None else f"in {_end(site.within)}"
    parts = [text for text in (_line(site.line), within if site.line is None else None) if text]
    call = None if site.call is None else shorten(site.call, MAX_PART)
    if not parts:
        return call or ""
    return f"{parts[0]} ({call})" if call else parts[0]


def places(finding: Finding) -> list[tuple[str, str]]:
    """Where most of a finding is, and how much of it; empty where nothing tells."""
    if isinstance(finding.sites, UnsetType):
        return []
    return [(place(site), _amount(site)) for site in finding.sites]


def _line(name: str | None) -> str | None:
    if name is None:
        return None
    frame = _FRAME.fullmatch(name)
    if frame is None:  # of a redacted report
        return shorten(name, MAX_PART)
    return f"{_end(frame['file'])}:{frame['line']} in {shorten(frame['function'], MAX_PART)}"


def _end(name: str) -> str:
    """The end of a path, which says more than its beginning."""
    return name if len(name) <= MAX_PART else f"…{name[1 - MAX_PART :].lstrip()}"


def _amount(site: Site) -> str:
    if not site.ms_per_step:
        return f"{percent(site.part, 0)} of it"
    return f"{significant(site.ms_per_step)} ms a step"
