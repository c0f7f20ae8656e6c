"""A document in a terminal: title, headline, what explains it, bars, tables, cautions.

Works without colour, down to 40 columns and in encodings that know ASCII only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from io import StringIO

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text as Line

from traceprobe.formatting import encodable, shorten, significant
from traceprobe.model.taxonomy import STATUS_LABELS
from traceprobe.records.report import Finding
from traceprobe.render.bars import cells, glyphs, legend, stacked
from traceprobe.render.colours import STATUS_SHAPES
from traceprobe.render.document import (
    Bars,
    Block,
    Chart,
    Code,
    Document,
    Facts,
    Findings,
    Section,
    Table,
    Text,
    Timeline,
)
from traceprobe.render.ranking import ATTENTION, ranked_findings

MIN_WIDTH = 20
MAX_POINTS = 8
MAX_TEXTS = 3
"""Sentences of a section."""
MAX_PROSE = 400
MAX_FINDINGS = 3
MAX_TITLE = 120
MAX_LABEL = 24
MAX_CELL = 60
MAX_BAR = 60
LEAST_BESIDE = 56
"""Columns from which a bar stands beside its label, not below."""
LEAST_CELL = 12
"""Cells that a column of text can be narrowed to."""
GAP = 2
ITEM = "-"
"""What a list in a summary has before each sentence."""

_STYLES: dict[str, str] = {"good": "green", "bad": "red", "unclear": "yellow"}
_STATUS_STYLES = {"fail": "red", "warn": "yellow"}


def render(document: Document, width: int, color: bool, encoding: str = "utf-8") -> str:
    """The summary in lines of at most `width` columns, all of it encodable in `encoding`."""
    out = _Out(_console(width, color=color), encoding)
    title = ", ".join(text for text in (document.title, document.secondary) if text)
    style = f"bold {_STYLES.get(document.tone, '')}".strip()
    out.say((shorten(title, MAX_TITLE), style), (document.aside, ""))
    if document.headline:
        out.say((shorten(document.headline, MAX_PROSE), ""))
    if "terminal" in document.summary:
        for paragraph in document.summary["terminal"]:
            out.say()
            for block in paragraph:
                _block(out, block)
        return _collected(out.console)
    for point in _most(document.points, MAX_POINTS):
        out.say((f"- {shorten(point, MAX_PROSE)}", ""))
    for caution in document.cautions:
        out.say(("note: ", "yellow"), (shorten(caution, MAX_PROSE), ""))
    for section in document.sections:
        if section.brief:
            _section(out, section)
    return _collected(out.console)


def _console(width: int, *, color: bool) -> Console:
    """A console that keeps what is printed; `_collected` gives it back."""
    return Console(
        file=StringIO(),
        width=max(width, MIN_WIDTH),
        force_terminal=color,
        color_system="standard" if color else None,
        no_color=not color,
        legacy_windows=False,
        highlight=False,
        markup=False,
        emoji=False,
        _environ={},  # the width is known, and COLUMNS and LINES may be beyond reason
    )


def _collected(printed: Console) -> str:
    """Everything that was printed, without spaces at the ends of lines."""
    out = printed.file
    assert isinstance(out, StringIO)
    return "".join(f"{line.rstrip()}\n" for line in out.getvalue().splitlines())


class _Out:
    """Prints what the encoding knows."""

    def __init__(self, printed: Console, encoding: str) -> None:
        self.console, self._encoding = printed, encoding
        self.width = printed.width

    def known(self, text: str, style: str = "") -> Line:
        return Line(encodable(text, self._encoding), style)

    def say(self, *pieces: tuple[str, str]) -> None:
        line = Line.assemble(*(self.known(text, style) for text, style in pieces))
        self.console.print(line, overflow="fold")

    def item(self, text: str) -> None:
        """Further lines begin below the first word."""
        grid = Grid.grid(padding=0)
        grid.add_column(width=len(ITEM) + 1)
        grid.add_column(overflow="fold")
        grid.add_row(ITEM, self.known(text))
        self.console.print(grid)


def _most(items: Sequence[str], most: int) -> Iterator[str]:
    yield from items[:most]
    if len(items) > most:
        yield f"… and {len(items) - most} more"


def _section(out: _Out, section: Section) -> None:
    out.say()
    out.say((shorten(section.title, MAX_TITLE), "bold"))
    for text in _most(section.text, MAX_TEXTS):
        out.say((shorten(text, MAX_PROSE), ""))
    for n, block in enumerate(section.blocks):
        if n:
            out.say()
            if isinstance(block, Table | Bars | Chart | Timeline):
                out.say((shorten(block.caption, MAX_TITLE), ""))
        _block(out, block)


def _block(out: _Out, block: Block) -> None:
    match block:
        case Table():
            _table(out, block)
        case Chart() | Timeline():
            _table(out, block.table)
        case Bars(relative=True, bars=[_]):
            _shares(out, block)
        case Bars():
            _bars(out, block)
        case Findings():
            _findings(out, block.findings)
        case Text():
            style = _STYLES.get(block.tone, "bold")
            for text in block.sentences:
                if block.lead == ITEM:
                    out.item(shorten(text, MAX_PROSE))
                else:
                    lead = f"{shorten(block.lead, MAX_TITLE)} " if block.lead else ""
                    out.say((lead, style), (shorten(text, MAX_PROSE), ""))
        case Facts():
            for name, value in block.facts:
                out.say((f"{shorten(name, MAX_TITLE)}: ", "bold"), (shorten(value, MAX_PROSE), ""))
        case Code():
            for line in block.lines:
                out.say((line, ""))
        case Section():
            _section(out, block)


def _shares(out: _Out, bars: Bars) -> None:
    """One bar, and a line for each of its pieces, which add up to 100 %."""
    ((_, segments),) = stacked(bars)
    signs = glyphs(bars)
    words = {segment: shorten(segment.word, MAX_LABEL) for segment in segments}
    width = max(map(cell_len, [*words.values(), "sum"])) + GAP
    out.say(*cells(segments, signs, min(out.width, MAX_BAR)))
    for segment, word in words.items():
        padding = " " * (width - cell_len(word))
        out.say((signs[segment.word], segment.colour), (f" {word}{padding}{segment.text:>8}", ""))
    out.say((f"  {'sum':<{width}}{'100.0 %':>8}", ""))


def _findings(out: _Out, findings: Sequence[Finding]) -> None:
    """The most urgent ones, and how many more there are."""
    shown = [f for f in ranked_findings(list(findings)) if f.status in ATTENTION][:MAX_FINDINGS]
    for finding in shown:
        mark = f"{STATUS_SHAPES[finding.status]} {STATUS_LABELS[finding.status]}: "
        saving = finding.saving_ms_per_step
        up_to = f", up to {significant(saving)} ms per step" if saving is not None else ""
        title = shorten(finding.title, MAX_PROSE)
        out.say((mark, _STATUS_STYLES[finding.status]), (title, "bold"), (up_to, ""))
        if finding.advice:
            out.say((shorten(finding.advice, MAX_PROSE), ""))
    if len(findings) > len(shown):
        out.say((f"{len(findings) - len(shown)} further findings", ""))


def _bars(out: _Out, bars: Bars) -> None:
    """Bars on one scale, beside their labels where there is room, and what their glyphs mean."""
    rows = stacked(bars)
    signs = glyphs(bars)
    labels = [shorten(bar.label, MAX_LABEL) for bar, _ in rows]
    texts = [shorten(bar.text, MAX_LABEL) for bar, _ in rows]
    beside = max(map(cell_len, labels), default=0)
    rest = out.width - beside - max(map(cell_len, texts), default=0) - 2 * GAP
    for label, text, (_, segments) in zip(labels, texts, rows, strict=True):
        if out.width >= LEAST_BESIDE:
            padding = " " * (beside - cell_len(label) + GAP)
            drawn = cells(segments, signs, min(rest, MAX_BAR))
            out.say((label + padding, ""), *drawn, ("  " + text, ""))
        else:
            out.say((f"{label}  {text}", ""))
            out.say(*cells(segments, signs, out.width))
    entries = [
        (f"{signs[word]} ", colour, shorten(word, MAX_CELL)) for word, colour in legend(bars)
    ]
    for line in _packed([*entries, ("", "", f"in {shorten(bars.unit, MAX_CELL)}")], out.width):
        out.say(*line)


def _packed(entries: Sequence[tuple[str, str, str]], width: int) -> Iterator[list[tuple[str, str]]]:
    """As many entries on a line as fit."""
    line: list[tuple[str, str]] = []
    used = 0
    for sign, colour, name in entries:
        word = shorten(name, MAX_CELL)
        length = cell_len(sign + word) + GAP
        if line and used + length - GAP > width:
            yield line
            line, used = [], 0
        line += [(sign, colour), (word + " " * GAP, "")]
        used += length
    yield line


def _table(out: _Out, table: Table) -> None:
    """As many columns as fit; which do not is said."""
    rows = (table.head, *table.rows[: table.most])
    texts = [[shorten(cell, MAX_CELL) for cell in row] for row in rows]
    shown, widths = _fitting(texts, table.numeric, out.width)
    grid = Grid(box=None, padding=(0, GAP, 0, 0), pad_edge=False, header_style="")
    for column in shown:
        numeric = column in table.numeric
        grid.add_column(
            out.known(texts[0][column], "underline"),
            justify="right" if numeric else "left",
            width=widths[column],
            overflow="fold",
        )
    for n, row in enumerate(texts[1:]):
        style = _STYLES.get(table.tones[n], "") if table.tones else ""
        grid.add_row(*(out.known(row[column]) for column in shown), style=style)
    out.console.print(grid)
    if len(table.rows) > table.most:
        out.say((f"… and {len(table.rows) - table.most} more", ""))
    left_out = [texts[0][n] or "one without a title" for n in _columns(texts) if n not in shown]
    if left_out:
        out.say((f"left out for want of width: {', '.join(left_out)}", ""))


def _columns(texts: Sequence[Sequence[str]]) -> range:
    return range(len(texts[0]))


def _fitting(
    texts: Sequence[Sequence[str]], numeric: frozenset[int], width: int
) -> tuple[list[int], dict[int, int]]:
    """Columns that fit beside each other, and their widths.

    Text is folded before a column goes.
    """
    full = {n: max(cell_len(row[n]) for row in texts) for n in _columns(texts)}
    least = {n: min(full[n], LEAST_CELL) for n in full}
    for n in numeric & full.keys():  # a number is not folded, but its title is
        least[n] = max(least[n], *(cell_len(row[n]) for row in texts))
    shown = list(full)
    for column in _expendable(full, numeric):
        if _total(least, shown) > width:
            shown.remove(column)
    widths = {n: min(full[n], width) for n in shown}
    while _total(widths, shown) > width:
        widest = max((n for n in shown if widths[n] > least[n]), key=lambda n: widths[n])
        widths[widest] -= 1
    return shown, widths


def _expendable(full: dict[int, int], numeric: frozenset[int]) -> list[int]:
    """Columns in the order in which they go: long texts, then from the right.

    The last number, which often is the result, goes after those before it; the first column, which
    names the row, stays.
    """
    columns = list(full)[:0:-1]
    long = [n for n in columns if n not in numeric and full[n] > LEAST_CELL]
    rest = [n for n in columns if n not in long]
    return [*long, *rest[1:], *rest[:1]]


def _total(widths: dict[int, int], shown: Sequence[int]) -> int:
    return sum(widths[n] for n in shown) + GAP * (len(shown) - 1)
