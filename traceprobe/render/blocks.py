"""Bars and curves as what a picture needs, and as tables for those who cannot see it."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from traceprobe.formatting import significant
from traceprobe.render.bars import Segment
from traceprobe.render.colours import OTHER_COLOUR
from traceprobe.render.document import Bar, Bars, Block, Curves, Line, Table

LINE_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#94801f")
"""For the lines of one picture, in turn; like the palette's, after Okabe and Ito."""
MAX_TICKS = 7
"""Intervals of an axis."""
MAX_MARKS = 40
MAX_ENDS = 10
"""Lines that are named where they end; of more, the legend alone tells."""
END_DISTANCE = 8.0
"""Percent of the height between two of these names."""
MAX_BAR_COLUMNS = 4
"""With more bars than this, and than words, a bar is a row of the table: it grows downwards."""
GLYPHS = "█▓▒░·abcdefghijklmnopqrstuvwxyz"
"""For the words of a picture that is text, so that it reads without colour."""
LEAST, MOST = 1e-9, 1e15
"""Numbers that are drawn; nothing that is measured in ms, steps or samples is beyond them."""
_COLOUR = re.compile(r"#[0-9a-f]{6}")


@dataclass(frozen=True)
class Label:
    """Text beside an axis; `at` is its place in percent of the axis."""

    at: float
    text: str
    colour: str = ""


@dataclass(frozen=True)
class Drawn:
    """A line in percent of both axes, y upwards."""

    line: Line
    colour: str
    points: Sequence[tuple[float, float]]
    told: str
    """Its ends in words."""

    @property
    def dotted(self) -> bool:
        """Whether each point has a mark: it was measured, and the marks would not run together."""
        return not self.line.dashed and len(self.points) <= MAX_MARKS


@dataclass(frozen=True)
class Plot:
    """Curves with their axes; `ends` are the names at the ends of the lines."""

    lines: Sequence[Drawn]
    x_ticks: Sequence[Label]
    y_ticks: Sequence[Label]
    ends: Sequence[Label]

    @property
    def widest(self) -> tuple[str, str]:
        """The longest text beside the y axis, and that at the end of a line."""
        ticks, ends = ([label.text for label in labels] for labels in (self.y_ticks, self.ends))
        return max(ticks, key=len, default=""), max(ends, key=len, default="")


def stacked(bars: Bars) -> list[tuple[Bar, list[Segment]]]:
    """Each bar with its pieces in percent of the longest bar, without those of no length."""
    longest = max((sum(map(_length, _values(bar))) for bar in bars.bars), default=0.0)
    return [(bar, _segments(bar, longest)) for bar in bars.bars]


def legend(bars: Bars) -> list[tuple[str, str]]:
    """Words of the pieces and their colours, as they appear."""
    found: dict[str, str] = {}
    for bar in bars.bars:
        for piece in bar.pieces:
            if _length(piece.value):
                found.setdefault(piece.word, _colour(piece.colour))
    return list(found.items())


def glyphs(bars: Bars) -> dict[str, str]:
    """A glyph for each word of the pieces; the densest are those of the longest."""
    totals: dict[str, float] = {}
    for bar in bars.bars:
        for piece in bar.pieces:
            totals[piece.word] = totals.get(piece.word, 0.0) + _length(piece.value)
    ordered = sorted((word for word in totals if totals[word]), key=lambda word: -totals[word])
    return {word: GLYPHS[min(n, len(GLYPHS) - 1)] for n, word in enumerate(ordered)}


def cells(
    segments: Sequence[Segment], signs: Mapping[str, str], width: int
) -> list[tuple[str, str]]:
    """A bar as glyphs and their colours, of `width` cells where it is the longest.

    Rounding the ends instead of the lengths keeps equal bars equally long.
    """
    ends = [0, *(round((s.start + s.width) / 100 * width) for s in segments)]
    return [
        (signs[s.word] * (end - start), s.colour)
        for s, (start, end) in zip(segments, pairwise(ends), strict=True)
    ]


def table_of(block: Block) -> Table:
    """The numbers of a picture; a table is itself."""
    if isinstance(block, Table):
        return block
    return _bars_table(block) if isinstance(block, Bars) else _curves_table(block)


def plot(curves: Curves) -> Plot:
    """Curves in percent of axes that begin at 0, or double."""
    lines = [(line, _points(line, log=curves.log)) for line in curves.lines]
    every = [point for _, points in lines for point in points]
    x_axis = _Axis([x for x, _ in every], log=curves.log, rounded=False)
    y_axis = _Axis([y for _, y in every], log=curves.log, rounded=True)
    drawn = [
        Drawn(
            line,
            LINE_COLOURS[n % len(LINE_COLOURS)],
            [(x_axis.place(x), y_axis.place(y)) for x, y in points],
            " to ".join(f"{number(y)} at {number(x)}" for x, y in points[:1] + points[-1:]),
        )
        for n, (line, points) in enumerate(lines)
    ]
    return Plot(drawn, x_axis.ticks(), y_axis.ticks(), _ends([d for d in drawn if d.points]))


def _ends(drawn: Sequence[Drawn]) -> list[Label]:
    """Names of lines at their ends, moved apart where they would overlap."""
    if len(drawn) > MAX_ENDS:
        return []
    found: list[Label] = []
    for one in sorted(drawn, key=lambda d: d.points[-1][1]):
        lowest = found[-1].at + END_DISTANCE if found else 0.0
        found.append(Label(max(one.points[-1][1], lowest), one.line.name, one.colour))
    over = max(0.0, found[-1].at - 100) if found else 0.0
    for n in range(len(found) - 1, -1, -1):  # down again from the top, as far as needed
        highest = 100 - END_DISTANCE * (len(found) - 1 - n) if over else 100.0
        found[n] = Label(min(found[n].at, highest), found[n].text, found[n].colour)
    return found


def number(value: float) -> str:
    """A whole number as such, any other with three significant digits."""
    return f"{value:,.0f}" if value == int(value) else significant(value)


class _Axis:
    """From 0 to the largest value, or to a round number beyond it; or between powers of 2."""

    def __init__(self, values: Sequence[float], *, log: bool, rounded: bool) -> None:
        self._log = log
        if log:
            exponents = [math.log2(value) for value in values] or [0.0]
            self._low, high = math.floor(min(exponents)), math.ceil(max(exponents))
            self._step: float = max(1, math.ceil((high - self._low) / MAX_TICKS))
            self._high: float = max(high, self._low + 1)
        else:
            self._low = 0
            largest = max(values, default=0.0)
            largest = largest if largest >= LEAST else 1.0
            self._step = _round_step(largest)
            ticks = math.ceil(largest / self._step - 1e-9)
            self._high = self._step * ticks if rounded else largest

    def place(self, value: float) -> float:
        """Where a value is, in percent."""
        value = math.log2(value) if self._log else value
        return 100 * (value - self._low) / (self._high - self._low)

    def ticks(self) -> list[Label]:
        """Numbers to write beside the axis."""
        count = int((self._high - self._low) / self._step + 1e-9)
        at = [self._low + n * self._step for n in range(count + 1)]
        values = [2.0**exponent for exponent in at] if self._log else at
        return [Label(self.place(value), f"{value:,.6g}") for value in values]


def _round_step(largest: float) -> float:
    """Distance of the ticks of an axis that holds `largest`."""
    power = 10.0 ** math.floor(math.log10(largest / MAX_TICKS))
    return next(power * n for n in (1, 2, 5, 10, 20) if largest <= power * n * MAX_TICKS)


def _points(line: Line, *, log: bool) -> list[tuple[float, float]]:
    """Points that have a place on the axes."""
    least = LEAST if log else 0
    return [(x, y) for x, y in line.points if least <= x <= MOST and least <= y <= MOST]


def _values(bar: Bar) -> list[float]:
    return [piece.value for piece in bar.pieces]


def _length(value: float) -> float:
    return value if LEAST <= value <= MOST else 0.0


def _colour(text: str) -> str:
    return text if _COLOUR.fullmatch(text) else OTHER_COLOUR


def _segments(bar: Bar, longest: float) -> list[Segment]:
    found: list[Segment] = []
    start = 0.0
    for piece in bar.pieces:
        value = _length(piece.value)
        if value:
            width = 100 * value / longest
            text, colour = significant(value), _colour(piece.colour)
            found.append(Segment(piece.word, piece.word, colour, value, start, width, text))
            start += width
    return found


def _bars_table(bars: Bars) -> Table:
    words = [word for word, _ in legend(bars)]
    columns = []
    for bar in bars.bars:
        values = {piece.word: number(piece.value) for piece in bar.pieces if _length(piece.value)}
        columns.append([values.get(word, "") for word in words] + [bar.text])
    labels = [bar.label for bar in bars.bars]
    rows = [list(row) for row in zip([*words, "in all"], *columns, strict=True)]
    head = [bars.unit, *labels]
    if len(labels) > max(MAX_BAR_COLUMNS, len(words)):
        head, *rows = [list(row) for row in zip(head, *rows, strict=True)]
    return Table(bars.caption, head, rows, frozenset(range(1, len(head))))


def _curves_table(curves: Curves) -> Table:
    """A row for each x."""
    found: dict[float, dict[int, float]] = {}
    for n, line in enumerate(curves.lines):
        for x, y in _points(line, log=False):
            found.setdefault(x, {})[n] = y
    every = range(len(curves.lines))
    rows = [
        [number(x), *(significant(row[n]) if n in row else "" for n in every)]
        for x, row in sorted(found.items())
    ]
    head = [f"{curves.y} by {curves.x}", *(line.name for line in curves.lines)]
    return Table(curves.caption, head, rows, frozenset(range(len(head))))
