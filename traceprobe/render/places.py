"""Where in the program something is, in words."""

from __future__ import annotations

from msgspec import UnsetType

from traceprobe.formatting import MAX_PLACE, frame_place, percent, shorten, significant
from traceprobe.records.report import Finding
from traceprobe.records.site import Site
from traceprobe.render.kernel_names import short_name

LITTLE = 0.5
"""Part of what a finding saves that all its places have at least where their time is shown."""


def place(site: Site) -> str:
    """`at train.py:57 in train_step (aten::item)`, or as much as is known.

    Of idle time that an operator only ended: `before aten::item at train.py:57 in train_step`.
    """
    call = None if site.call is None else shorten(_call(site.call), MAX_PLACE)
    if site.line is not None:
        where = frame_place(site.line)
    elif site.within is not None:
        where = f"in {_end(site.within)}"
    else:
        where = ""
    if site.before and call:
        return f"before {shorten(call, MAX_PLACE // 2)} {where}" if where else f"before {call}"
    if not where:
        return f"in {call}"
    if site.kind == "function" and call:
        return f"{where[:-1]}: {call})"
    return f"{where} ({call})" if call else where


def places(finding: Finding) -> list[tuple[str, str]]:
    """Where most of a finding is, and how much of it; empty where nothing tells.

    The range alone, such as that of a loader, says no more than the finding does.
    """
    if isinstance(finding.sites, UnsetType):
        return []
    told = [site for site in finding.sites if site.line is not None or site.call is not None]
    return [(place(site), _amount(site, finding)) for site in told]


def _call(name: str) -> str:
    """An operator or a call by its name, a C++ kernel or a compiled graph in a few words."""
    return short_name(name) if "<" in name or name.startswith("##") else name


def _end(name: str) -> str:
    """The end of a path, which says more than its beginning."""
    return name if len(name) <= MAX_PLACE else f"…{name[1 - MAX_PLACE :].lstrip()}"


def _amount(site: Site, finding: Finding) -> str:
    # Without steps nothing is saved per step, and the time is that of the whole capture.
    # More than the finding is a part of what it is about, and not of what it saves; so is time of
    # which all places together have little, as calls that are paid for after they return.
    most = finding.saving_ms_per_step
    if not site.ms_per_step or most is None or site.ms_per_step > most:
        return f"{percent(site.part, 0)} of it"
    if site.ms_per_step < LITTLE * site.part * most:
        return f"{percent(site.part, 0)} of it"
    return f"{significant(site.ms_per_step)} ms a step"
