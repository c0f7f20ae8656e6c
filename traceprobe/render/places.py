"""Where in the program something is, in words."""

from __future__ import annotations

from msgspec import UnsetType

from traceprobe.formatting import MAX_PLACE, line_place, percent, shorten, significant
from traceprobe.records.report import Finding
from traceprobe.records.site import Site


def place(site: Site) -> str:
    """`at train.py:57 in train_step (aten::item)`, or as much as is known."""
    call = None if site.call is None else shorten(site.call, MAX_PLACE)
    if site.line is not None:
        where = f"at {line_place(site.line)}"
    elif site.within is not None:
        where = f"in {_end(site.within)}"
    else:
        return f"in {call}"
    return f"{where} ({call})" if call else where


def places(finding: Finding) -> list[tuple[str, str]]:
    """Where most of a finding is, and how much of it; empty where nothing tells.

    The range alone, such as that of a loader, says no more than the finding does.
    """
    if isinstance(finding.sites, UnsetType):
        return []
    told = [site for site in finding.sites if site.line is not None or site.call is not None]
    return [(place(site), _amount(site, finding)) for site in told]


def _end(name: str) -> str:
    """The end of a path, which says more than its beginning."""
    return name if len(name) <= MAX_PLACE else f"…{name[1 - MAX_PLACE :].lstrip()}"


def _amount(site: Site, finding: Finding) -> str:
    # Without steps nothing is saved per step, and the time is that of the whole capture.
    if not site.ms_per_step or finding.saving_ms_per_step is None:
        return f"{percent(site.part, 0)} of it"
    return f"{significant(site.ms_per_step)} ms a step"
