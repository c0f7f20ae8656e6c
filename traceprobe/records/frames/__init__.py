"""The tables of a record as polars frames; `docs/library.md` has every frame with its columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from traceprobe.errors import UsageError
from traceprobe.records.base import Rendered
from traceprobe.records.comparison import Comparison
from traceprobe.records.frames import comparison, report
from traceprobe.records.frames.columns import Frame
from traceprobe.records.report import Report

if TYPE_CHECKING:
    import polars as pl

FRAMES: Mapping[type[Rendered], Mapping[str, Frame]] = {
    Report: report.FRAMES,
    Comparison: comparison.FRAMES,
}
"""By kind of record and by name."""


def frame(record: Rendered, name: str) -> pl.DataFrame:
    """A table of a record: the columns are always the same, of what it does not hold no row.

    Raises:
        UsageError: a record of its kind has no such frame; the message names those it has.
    """
    known = FRAMES.get(type(record), {})
    if name not in known:
        names = ", ".join(known) or "none"
        raise UsageError(f"there is no frame {name!r} here; there are: {names}")
    return known[name].of(record)
