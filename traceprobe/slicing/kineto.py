"""Slices of Kineto traces: what is not on a list of what may be passed on is left out.

Every event is written anew from what is on the list.
"""

from __future__ import annotations

from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import polars as pl

from traceprobe.ingest.kineto.categories import GPU
from traceprobe.ingest.kineto.columns import base_ns
from traceprobe.ingest.kineto.sync_notes import RECORDS, SYNC_NOTES
from traceprobe.ingest.kineto.values import floats, nanoseconds
from traceprobe.model.codes import UNKNOWN
from traceprobe.slicing.kineto_events import read_metadata, readable_events, write_trace
from traceprobe.slicing.kineto_fields import (
    LEFT_OUT,
    METADATA_EVENTS,
    public_event,
    public_metadata,
)

if TYPE_CHECKING:
    from traceprobe.slicing.window import SlicePlan, Window

_FLOW = ("s", "f", "t")
_WITH_THEIR_CALLS = (*GPU, *SYNC_NOTES)
_ON_GPU_CLOCK = (*GPU, *RECORDS, "gpu_user_annotation")


class _Row(msgspec.Struct, gc=False):
    """The few fields that decide whether an event is kept."""

    ph: str = ""
    cat: str | None = None
    name: Any = None
    ts: int | float | str | None = None
    id: int | float | str | None = None
    args: dict[str, Any] | None = None


_DECODE = msgspec.json.Decoder(_Row).decode


def write_kineto_slice(source: Path, target: Path, plan: SlicePlan) -> None:
    """Write the slice, one event a line. Damaged events are left out."""
    window = next(iter(plan.windows.values()))
    facts = read_metadata(source)
    base = base_ns(facts)
    calls = plan.trace.host_calls
    launched = calls.filter((pl.col("t0") >= window.low) & (pl.col("t0") < window.high))
    linked = set(launched["correlation"].to_list()) - {UNKNOWN}
    known = set(calls["correlation"].to_list()) - {UNKNOWN}
    chosen = _Chooser(window, base, linked, known)
    arrows = {
        (row.cat, str(row.id))
        for row, _ in readable_events(source, _DECODE)
        if row.ph == "s" and chosen(row)
    }
    kept = (
        text
        for row, text in readable_events(source, _DECODE)
        if ((row.cat, str(row.id)) in arrows if row.ph in _FLOW else chosen(row))
    )
    metadata = {
        **public_metadata(facts),
        "traceName": plan.trace.origin.name,
        "traceprobe_slice": plan.note,
    }
    write_trace(target, metadata, filter(None, map(_public, kept)))


class _Chooser:
    """Whether an event belongs to the slice."""

    def __init__(self, window: Window, base: int, linked: set[int], known: set[int]) -> None:
        self._window, self._base, self._linked, self._known = window, base, linked, known

    def __call__(self, row: _Row) -> bool:
        if row.cat in LEFT_OUT:
            return False
        if row.ph == "M":
            return row.name in METADATA_EVENTS
        time = floats([row], attrgetter("ts"))
        if time[0] != time[0]:  # not a number
            return False
        at = int(nanoseconds(time)[0]) + self._base
        window = self._window
        if row.cat in _WITH_THEIR_CALLS:
            correlation = (row.args or {}).get("correlation")
            if isinstance(correlation, (int, float)) and correlation in self._known:
                return correlation in self._linked
        if row.cat in _ON_GPU_CLOCK:
            return window.gpu_low <= at < window.gpu_high
        return window.low <= at < window.high


def _public(text: bytes) -> dict[str, Any] | None:
    """What is passed on of an event; None where the rest of it is damaged."""
    try:
        return public_event(msgspec.json.decode(text.decode("utf-8", "replace")))
    except (msgspec.MsgspecError, RecursionError):
        return None
