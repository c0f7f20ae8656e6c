"""Stacked bars as what a picture needs: segments in percent, a legend, glyphs, a table."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

from traceprobe.formatting import duration, percent, significant
from traceprobe.model.taxonomy import CLASS_LABELS, PARTITION, SHARE_LABELS, SHARES
from traceprobe.records.summary import Nanoseconds
from traceprobe.render.colours import CLASS_COLOURS, OTHER_COLOUR, SHARE_COLOURS
from traceprobe.render.document import Bar, Bars, Piece, Table

MAX_COLUMNS = 4
"""With more bars than this, and than words, a bar is a row of the table: it grows downwards."""
GLYPHS = "█▓▒░·abcdefghijklmnopqrstuvwxyz"
"""For the words of a picture that is text, so that it reads without colour."""
_SHADES = 5
"""Of those, how many are no letters."""
LEAST, MOST = 1e-9, 1e15
"""Numbers that are drawn; nothing that is measured in ms, steps or samples is beyond them."""
_COLOUR = re.compile(r"#[0-9a-f]{6}")


class Segment(msgspec.Struct, frozen=True):
    """One piece of a bar. `start` and `width` are percent of the scale; `text` is its number."""

    word: str
    colour: str
    value: float
    start: float
    width: float
    text: str
    note: str = ""

    @property
    def ink(self) -> str:
        """Black or white, whichever reads better on the segment."""
        red, green, blue = (int(self.colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
        luminance = 0.2126 * red**2.2 + 0.7152 * green**2.2 + 0.0722 * blue**2.2
        # Where the contrast ratios (1 + .05) / (L + .05) and (L + .05) / .05 are equal.
        return "#000" if luminance > 0.179 else "#fff"


def partition_bar(label: str, partition_ns: Nanoseconds, steps: int = 1, text: str = "") -> Bar:
    """The observed, non-empty classes of a window, ns, in the order of the partition.

    Args:
        steps: of which the window is made; the notes have the time of one.
    """
    observed = {key: float(partition_ns.get(key) or 0) for key in PARTITION}
    pieces = [
        Piece(CLASS_LABELS[key], CLASS_COLOURS[key], value, duration(value / steps))
        for key, value in observed.items()
        if value > 0
    ]
    return Bar(label, pieces, text)


def share_bar(
    label: str, shares: Mapping[str, float], notes: Mapping[str, str] | None = None, text: str = ""
) -> Bar:
    """The verdict's shares, each in [0, 1], in their fixed order, zeros included.

    Without pieces where nothing was measured.
    """
    pieces = [
        Piece(
            SHARE_LABELS[key], SHARE_COLOURS[key], shares.get(key, 0.0), (notes or {}).get(key, "")
        )
        for key in SHARES
        if shares
    ]
    return Bar(label, pieces, text)


def segments(bar: Bar, scale: float | None = None) -> list[Segment]:
    """Pieces of a bar in percent of `scale`, without those of no length.

    Without a scale the bar fills 100 %: all pieces are there, and their texts are percentages, each
    rounded alone, so that a share reads the same wherever it stands; they may add up to 99.9 %.
    """
    values = [_length(piece.value) for piece in bar.pieces]
    whole = sum(values) if scale is None else scale
    texts = [
        significant(value) if scale is not None else percent(value / whole if whole else 0.0)
        for value in values
    ]
    found: list[Segment] = []
    start = 0.0
    for piece, value, text in zip(bar.pieces, values, texts, strict=True):
        if value or scale is None:
            width = 100 * value / whole if whole else 0.0
            colour = _colour(piece.colour)
            found.append(Segment(piece.word, colour, value, start, width, text, piece.note))
            start += width
    return found


def stacked(bars: Bars) -> list[tuple[Bar, list[Segment]]]:
    """Each bar with its segments, on one scale unless every bar fills it."""
    if bars.relative:
        return [(bar, segments(bar)) for bar in bars.bars]
    longest = max((sum(_length(p.value) for p in bar.pieces) for bar in bars.bars), default=0.0)
    return [(bar, segments(bar, longest)) for bar in bars.bars]


def legend(bars: Bars) -> list[tuple[str, str]]:
    """Words of the pieces and their colours, as they appear."""
    found: dict[str, str] = {}
    for _, drawn in stacked(bars):
        for segment in drawn:
            found.setdefault(segment.word, segment.colour)
    return list(found.items())


def glyphs(bars: Bars) -> dict[str, str]:
    """A glyph for each word of the pieces; the densest are those of the longest.

    Shares have theirs in order, so that two bars can be compared; letters go by the legend.
    """
    totals: dict[str, float] = {}
    for _, drawn in stacked(bars):
        for segment in drawn:
            totals[segment.word] = totals.get(segment.word, 0.0) + segment.value
    ordered = list(totals) if bars.relative else sorted(totals, key=lambda word: -totals[word])
    ordered[_SHADES:] = [word for word in totals if word in ordered[_SHADES:]]
    return {word: GLYPHS[min(n, len(GLYPHS) - 1)] for n, word in enumerate(ordered)}


def cells(drawn: Sequence[Segment], signs: Mapping[str, str], width: int) -> list[tuple[str, str]]:
    """A bar as glyphs and their colours, of `width` cells where it is the longest.

    Bars of equal length have equally many cells. Of those that no segment fills, the segments that
    come nearest to it get one each, so that in a bar a longer one never has fewer than a shorter.
    """
    wanted = [segment.width / 100 * width for segment in drawn]
    counts = [int(length) for length in wanted]
    left = round(sum(wanted)) - sum(counts)
    nearest = sorted(range(len(drawn)), key=lambda n: counts[n] - wanted[n])
    for n in nearest[: max(left, 0)]:
        counts[n] += 1
    return [(signs[s.word] * count, s.colour) for s, count in zip(drawn, counts, strict=True)]


def table(bars: Bars) -> Table:
    """The numbers of the picture, and what stands at the ends of the bars."""
    words = [word for word, _ in legend(bars)]
    columns = []
    for bar, drawn in stacked(bars):
        texts = {s.word: s.text if bars.relative else number(s.value) for s in drawn}
        columns.append([texts.get(word, "") for word in words] + [bar.text])
    labels = [bar.label for bar in bars.bars]
    rows = [list(row) for row in zip([*words, "in all"], *columns, strict=True)]
    head = [bars.unit, *labels]
    if len(labels) > max(MAX_COLUMNS, len(words)):
        head, *rows = [list(row) for row in zip(head, *rows, strict=True)]
    return Table(bars.caption, head, rows, frozenset(range(1, len(head))))


def number(value: float) -> str:
    """A whole number as such, any other with three significant digits."""
    return f"{value:,.0f}" if value == int(value) else significant(value)


def _length(value: float) -> float:
    return value if LEAST <= value <= MOST else 0.0


def _colour(text: str) -> str:
    return text if _COLOUR.fullmatch(text) else OTHER_COLOUR
