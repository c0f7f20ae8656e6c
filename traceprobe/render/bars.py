"""Bars that add up to 100 %: the exclusive classes of a window, or the shares of the verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from traceprobe.formatting import percentages
from traceprobe.model.taxonomy import CLASS_LABELS, PARTITION, SHARE_LABELS, SHARES
from traceprobe.records.summary import Nanoseconds
from traceprobe.render.colours import CLASS_COLOURS, SHARE_COLOURS


@dataclass(frozen=True)
class Segment:
    """One piece of a bar. `start` and `width` are percent of the bar; `percent` is their text."""

    key: str
    word: str
    colour: str
    value: float
    start: float
    width: float
    percent: str

    @property
    def ink(self) -> str:
        """Black or white, whichever reads better on the segment."""
        red, green, blue = (int(self.colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
        luminance = 0.2126 * red**2.2 + 0.7152 * green**2.2 + 0.0722 * blue**2.2
        # Where the contrast ratios (1 + .05) / (L + .05) and (L + .05) / .05 are equal.
        return "#000" if luminance > 0.179 else "#fff"


def partition_bar(partition_ns: Nanoseconds) -> list[Segment]:
    """The observed, non-empty classes of a window in the order of the partition; `value` in ns."""
    observed = {key: float(partition_ns.get(key) or 0) for key in PARTITION}
    values = {key: value for key, value in observed.items() if value > 0}
    return segments(values, CLASS_LABELS, CLASS_COLOURS)


def share_bar(shares: Mapping[str, float]) -> list[Segment]:
    """The verdict's shares in their fixed order, zeros included; `value` is in [0, 1].

    Empty where nothing was measured.
    """
    values = {key: shares.get(key, 0.0) for key in SHARES} if shares else {}
    return segments(values, SHARE_LABELS, SHARE_COLOURS)


def segments(
    values: Mapping[str, float], words: Mapping[str, str], colours: Mapping[str, str]
) -> list[Segment]:
    """Pieces of a bar in the order of `values`; their texts add up to 100.0 %."""
    total = sum(values.values())
    found: list[Segment] = []
    start = 0.0
    for (key, value), text in zip(values.items(), percentages(list(values.values())), strict=True):
        width = 100 * value / total if total > 0 else 0.0
        found.append(Segment(key, words[key], colours[key], value, start, width, text))
        start += width
    return found
