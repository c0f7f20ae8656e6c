"""A document in a terminal: title, headline, what explains it, bars, tables, cautions.

What fits a small terminal, and all of it when asked. Works without colour, down to 40 columns and
in encodings that know ASCII only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from io import StringIO
from typing import NamedTuple

import msgspec
from msgspec.structs import replace
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text as Line

from traceprobe.formatting import encodable, first_clauses, first_sentences, shorten
from traceprobe.model.taxonomy import STATUS_LABELS
from traceprobe.render.bars import cells, glyphs, legend, stacked
from traceprobe.render.columns import GAP, fitting
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
from traceprobe.render.places import places
from traceprobe.render.savings import saving
from traceprobe.system import shell
from traceprobe.verdict.finding_order import ATTENTION

MIN_WIDTH = 20
MAX_LINES = 24
"""Of a short summary; with the line that says what was written it fits the smallest terminal."""
LEFT_OUT_LINES = 3
"""Of those, kept for what is left out."""
MAX_NARROW_LINES = 40
"""The same where lines are shorter than `LEAST_WHOLE` columns."""
LEAST_WHOLE = 72
MAX_PROSE_WIDTH = 100
"""Columns of a sentence; longer lines are hard to read."""
MAX_POINTS = 8
BRIEF_POINTS = 4
BRIEF_CAUTIONS = 2
MAX_TEXTS = 3
"""Sentences of a section."""
MAX_PROSE = 400
MAX_HEADLINE = 310
"""Characters of a headline in a short summary: four lines of 80 columns."""
MAX_BRIEF = 144
"""Characters of a sentence or an advice in a short summary: two lines of 80 columns."""
MAX_TITLE = 120
MAX_LABEL = 24
MAX_CELL = 60
MAX_BAR = 60
LEAST_BESIDE = 56
"""Columns from which a bar stands beside its label, not below."""
LEAST_SHARE = 0.5
"""Percent of a bar from which a piece is named."""
COMMAND = "  traceprobe "
"""How a line begins that is a command."""
ITEM = "-"
"""What a list in a summary has before each sentence."""


class AdviceLines(NamedTuple):
    """Of 80 columns, of a finding in a short summary: below its place, and where it has none."""

    below_place: int
    alone: int


ROOMY, BELOW_PLACES, TIGHT = AdviceLines(2, 2), AdviceLines(1, 2), AdviceLines(1, 1)
_STYLES: dict[str, str] = {"good": "green", "bad": "red", "unclear": "yellow"}


def render(
    document: Document, width: int, color: bool, encoding: str = "utf-8", *, verbose: bool = False
) -> str:
    """The summary in lines of at most `width` columns, all of it encodable in `encoding`.

    Args:
        verbose: all that there is to say; else what fits a terminal of 25 lines.
    """
    sheet = _Sheet(width, color, encoding, verbose)
    sheet.add(lambda out: _head(out, document))
    summary = document.summary.get("verbose" if verbose else "terminal")
    if summary is not None:
        return _summary(sheet, summary)
    sheet.add(lambda out: _points(out, document.points))
    sheet.add(lambda out: _cautions(out, document.cautions))
    left_out: list[str] = []
    for section in (section for section in document.sections if section.brief):
        whole = not left_out and sheet.add(partial(_section, section=section))
        if not whole and not left_out:
            _begin(sheet, section)
        if not whole:
            left_out.append(section.title)
    if left_out:
        sheet.add(lambda out: _left_out(out, left_out), always=True)
    return sheet.text


def _summary(sheet: _Sheet, paragraphs: Sequence[Sequence[Block]]) -> str:
    """Whole paragraphs; where they are too long, the last that can be spared goes first.

    Before anything goes, advice below a place is cut to a line, before the first of it all advice.
    """
    blocks = [block for paragraph in paragraphs for block in paragraph]
    spare = [block for block in blocks if isinstance(block, Facts | Code) and block.spare]
    drops = [spare[n:] for n in range(len(spare), -1, -1)]
    tries = [(drops[0], ROOMY)]
    tries += [(drop, BELOW_PLACES) for drop in drops[: max(1, len(drops) - 1)]]
    tries += [(drop, TIGHT) for drop in drops[-2:]]
    for drop, advice in tries:
        whole = replace(sheet, advice=advice)
        whole.text = sheet.text
        for paragraph in paragraphs:
            kept = [block for block in paragraph if not any(block is other for other in drop)]
            whole.add(partial(_paragraph, blocks=kept), always=True)
        if whole.fits():
            break
    return whole.text


def _begin(sheet: _Sheet, section: Section) -> None:
    """The first blocks of a section, as many as there is room for."""
    for count in range(len(section.blocks) - 1, 0, -1):
        if sheet.add(partial(_section, section=replace(section, blocks=section.blocks[:count]))):
            return


class _Sheet(msgspec.Struct):
    """The lines of a summary; what is too much for a short one is not added."""

    width: int
    color: bool
    encoding: str
    verbose: bool
    advice: AdviceLines = ROOMY
    text: str = ""

    def add(self, draw: Callable[[_Out], None], *, always: bool = False) -> bool:
        """Add what a function prints, and tell whether there was room for it."""
        printed = _console(self.width, color=self.color)
        draw(_Out(printed, self.encoding, brief=not self.verbose, advice=self.advice))
        more = _collected(printed)
        shown = always or self.fits(more, LEFT_OUT_LINES)
        if shown:
            self.text += more
        return shown

    def fits(self, more: str = "", kept: int = 0) -> bool:
        """Whether there is room for all and `more`, and for so many lines after it."""
        most = MAX_LINES if self.width >= LEAST_WHOLE else MAX_NARROW_LINES
        return self.verbose or (self.text + more).count("\n") <= most - kept


def _head(out: _Out, document: Document) -> None:
    """Title and headline, which may begin with the title."""
    title = ", ".join(text for text in (document.title, document.secondary) if text)
    style = f"bold {_STYLES.get(document.tone, '')}".strip()
    out.title(shorten(title, MAX_TITLE), style, shorten(document.aside, MAX_TITLE))
    said = document.headline.removeprefix(f"{document.title}: ")
    if said:
        said = said[0].upper() + said[1:] if said != document.headline else said
        out.say((shorten(said, MAX_HEADLINE if out.brief else MAX_PROSE), ""))


def _paragraph(out: _Out, blocks: Sequence[Block]) -> None:
    out.say()
    for block in blocks:
        _block(out, block)


def _points(out: _Out, points: Sequence[str]) -> None:
    for point in _most(points, BRIEF_POINTS if out.brief else MAX_POINTS):
        out.item(first_sentences(point, out.prose))


def _cautions(out: _Out, cautions: Sequence[str]) -> None:
    for caution in _most(cautions, BRIEF_CAUTIONS if out.brief else len(cautions)):
        out.say(("note: ", "yellow"), (first_sentences(caution, out.prose), ""))


def _left_out(out: _Out, titles: Sequence[str]) -> None:
    out.say()
    out.say((shorten(f"more with -v: {', '.join(titles)}", out.prose), ""))


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
    """Prints what the encoding knows.

    Args:
        brief: whether sentences are cut to two lines. advice: to how many advice is cut then.
    """

    def __init__(
        self, printed: Console, encoding: str, *, brief: bool, advice: AdviceLines
    ) -> None:
        self.console, self._encoding, self.brief, self.advice = printed, encoding, brief, advice
        self.width = printed.width
        self.prose = MAX_BRIEF if brief else MAX_PROSE

    def known(self, text: str, style: str = "") -> Line:
        return Line(encodable(text, self._encoding), style)

    def say(self, *pieces: tuple[str, str]) -> None:
        line = Line.assemble(*(self.known(text, style) for text, style in pieces))
        self.console.print(line, overflow="fold", width=min(self.width, MAX_PROSE_WIDTH))

    def code(self, line: str) -> None:
        """A line as it is; of a command, in lines that can be copied together."""
        if not line.startswith(COMMAND):
            self.say((line, ""))
            return
        for part in shell.folded(line, self.width):
            self.console.print(self.known(part), soft_wrap=True)

    def title(self, text: str, style: str, aside: str) -> None:
        """A title, and beside it, or below it for want of room, what is to be said of it."""
        if cell_len(text) + GAP + cell_len(aside) <= self.width:
            self.say((text, style), (" " * GAP + aside if aside else "", ""))
            return
        self.say((text, style))
        if aside:
            self.say((aside[0].upper() + aside[1:], ""))

    def item(self, *lines: str | Line, mark: str = ITEM) -> None:
        """Lines behind a mark; those that they are folded into begin below the first word."""
        grid = Grid.grid(padding=0)
        grid.add_column(width=len(mark) + 1)
        grid.add_column(overflow="fold")
        for n, line in enumerate(lines):
            grid.add_row("" if n else mark, self.known(line) if isinstance(line, str) else line)
        self.console.print(grid, width=min(self.width, MAX_PROSE_WIDTH))


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
            _findings(out, block)
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
                out.code(line)
        case Section():
            _section(out, block)


def _shares(out: _Out, bars: Bars) -> None:
    """One bar and, of its pieces that are something, the percentages."""
    ((_, segments),) = stacked(bars)
    signs = glyphs(bars)
    out.say(*cells(segments, signs, min(out.width, MAX_BAR)))
    entries = [
        (f"{signs[segment.word]} ", segment.colour, f"{segment.word} {segment.text}")
        for segment in segments
        if segment.width >= LEAST_SHARE
    ]
    for line in _packed(entries, out.width):
        out.say(*line)


def _findings(out: _Out, block: Findings) -> None:
    """Those that ask for a change, numbered, what they save, and how many others there are."""
    findings = block.findings
    asking = [finding for finding in findings if finding.status in ATTENTION]
    for number, finding in enumerate(asking, 1):
        saves = f": {saving(finding)}" if saving(finding) else ""
        title = out.known(shorten(finding.title, MAX_TITLE), "bold").append(saves, "")
        told = [] if out.brief else [shorten(e, out.prose) for e in finding.evidence]
        where = [
            f"{shorten(name, out.prose // 2 - len(part) if out.brief else out.prose)}, {part}"
            for name, part in places(finding)[:1]
        ]
        # A line says more about this program than the second half of an advice for any.
        lines = out.advice.below_place if where else out.advice.alone
        advice = first_clauses(finding.advice, out.prose * lines // ROOMY.alone)
        out.item(title, *where, *told, *([advice] if advice else []), mark=f"{number}.")
    if block.together:
        out.say((block.together, ""))
    counts = Counter[str](finding.status for finding in findings if finding not in asking)
    words = ", ".join(f"{counts[key]} {word}" for key, word in STATUS_LABELS.items() if counts[key])
    if words:
        out.say((f"{'others' if asking else 'checks'}: {words}", ""))


def _bars(out: _Out, bars: Bars) -> None:
    """Bars on one scale, beside their labels where there is room, and what their glyphs mean."""
    rows = stacked(bars)
    signs = glyphs(bars)
    labels = [shorten(bar.label, MAX_LABEL) for bar, _ in rows]
    texts = [shorten(bar.text, MAX_LABEL) for bar, _ in rows]
    beside = max(map(cell_len, labels), default=0)
    rest = out.width - beside - max(map(cell_len, texts), default=0) - 2 * GAP
    width = min(rest, MAX_BAR) if out.width >= LEAST_BESIDE else out.width
    seen: set[str] = set()
    for label, text, (_, segments) in zip(labels, texts, rows, strict=True):
        drawn = cells(segments, signs, width)
        seen.update(glyph[:1] for glyph, _ in drawn)
        if out.width >= LEAST_BESIDE:
            padding = " " * (beside - cell_len(label) + GAP)
            out.say((label + padding, ""), *drawn, ("  " + text, ""))
        else:
            out.say((f"{label}  {text}", ""))
            out.say(*drawn)
    entries = [
        (f"{signs[word]} ", colour, shorten(word, MAX_CELL))
        for word, colour in legend(bars)
        if signs[word] in seen
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
    shown, widths = fitting(texts, table.numeric, out.width)
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
    left_out = [
        texts[0][n] or "one without a title" for n in range(len(texts[0])) if n not in shown
    ]
    if left_out:
        out.say((f"left out for want of width: {', '.join(left_out)}", ""))
