"""A document as Markdown for an issue comment: at most 60 lines and 65,535 characters.

What does not fit is counted or named, not dropped. Names are made literal by `gfm`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec

from traceprobe.model.taxonomy import STATUS_LABELS
from traceprobe.records.report import Finding
from traceprobe.render.bars import cells, glyphs, segments, stacked
from traceprobe.render.document import (
    Bars,
    Block,
    Chart,
    Code,
    Document,
    Facts,
    Findings,
    Owners,
    Section,
    Table,
    Text,
    Timeline,
)
from traceprobe.render.gfm import in_html, literal, prose
from traceprobe.render.places import places
from traceprobe.render.savings import saving
from traceprobe.verdict.finding_order import ATTENTION

MAX_LINES = 60
MAX_CHARACTERS = 65_535
MAX_BYTES = 3_000
"""Of a summary, which is to be read in an issue at a glance."""
MORE = "- … and more: see the page"
MAX_SENTENCE = 400
MAX_POINTS = 6
MAX_CAUTIONS = 4
MAX_TEXTS = 2
"""Sentences of a section."""
MAX_INPUTS = 3
MAX_COLUMNS = 12
BAR_WIDTH = 32
SHARE_WIDTH = 24
"""Cells of a bar that has a row for each piece."""
ITEM = "-"
"""What a list has before each sentence, in a terminal too."""
OPEN = 2
"""Sections that are not folded."""


class _Room(msgspec.Struct, frozen=True):
    """How much is shown.

    Args:
        first: rows of a table in the sections that are open. rest: in the others.
        sections: how many there are. cell: characters of a cell.
    """

    first: int
    rest: int
    sections: int
    cell: int


def render(document: Document) -> str:
    """The Markdown of a document, ending in a newline, with as much as fits."""
    if "markdown" in document.summary:
        return "\n".join(_summary(document, document.summary["markdown"])) + "\n"
    sections = [section for section in document.sections if section.brief]
    for room in _rooms(len(sections)):
        lines = _lines(document, sections, room)
        text = "\n".join(lines) + "\n"
        if len(lines) <= MAX_LINES and len(text) <= MAX_CHARACTERS:
            return text
    raise AssertionError("a document without its sections fits")


def _summary(document: Document, paragraphs: Sequence[Sequence[Block]]) -> list[str]:
    """What is short as it is; then folded sections, each as far as there is room for it."""
    aside = f", {literal(document.aside)}" if document.aside else ""
    top = [f"### {literal(_title(document))}{aside}", ""]
    headline = prose(document.headline.removeprefix(f"{document.title}: "), MAX_SENTENCE)
    folds: list[Section] = []
    for block in (block for paragraph in paragraphs for block in paragraph):
        match block:
            case Section():
                folds.append(block)
            case Facts():
                top += [f"**{literal(name)}:** {prose(text)}" for name, text in block.facts] + [""]
            case _:
                top += [*([headline, ""] if headline else []), *_brief(block), ""]
                headline = ""
    end = [_provenance(document)]
    lines = [*top, *([headline, ""] if headline else [])]
    for fold in folds:
        begin = [f"<details><summary>{in_html(fold.title)}</summary>", ""]
        wanted = [line for block in fold.blocks for line in _brief(block)]
        room = [MAX_LINES - len([*lines, *begin, *end]) - 4]
        room.append(MAX_BYTES - _size([*lines, *begin, *end, MORE, "", "</details>", ""]))
        lines += [*begin, *_within(wanted, *room), "", "</details>", ""]
    return [*lines, *end]


def _within(lines: Sequence[str], most: int, size: int) -> list[str]:
    """As many lines as there is room for, and that there are more."""
    shown: list[str] = []
    for line in lines:
        if len(shown) >= most or _size([*shown, line]) > size:
            return [*shown, MORE]
        shown.append(line)
    return shown


def _size(lines: Sequence[str]) -> int:
    """Bytes of lines with their ends."""
    return sum(len(line.encode()) + 1 for line in lines)


def _title(document: Document) -> str:
    return ", ".join(text for text in (document.title, document.secondary) if text)


def _head(document: Document) -> list[str]:
    return [f"### {literal(_title(document))}", "", prose(document.headline, MAX_SENTENCE), ""]


def _rooms(sections: int) -> Iterator[_Room]:
    """From everything to nothing but the headline: rows of what is folded go first."""
    for first, rest in (*((99, n) for n in (99, 8, 6, 5, 4, 3, 2, 1)), (8, 2), (8, 1)):
        yield _Room(first, rest, sections, 80)
    for fewer in reversed(range(sections)):
        for first, rest in ((8, 2), (8, 1), (6, 1)):
            yield _Room(first, rest, fewer, 80)
    for fewer in reversed(range(min(sections, OPEN) + 1)):
        yield _Room(4, 1, fewer, 24)


def _lines(document: Document, sections: Sequence[Section], room: _Room) -> list[str]:
    lines = _head(document)
    lines += [f"- {line}" for line in _most(document.points, MAX_POINTS)]
    lines += [f"- ⚠ {line}" for line in _most(document.cautions, MAX_CAUTIONS)]
    if document.points or document.cautions:
        lines.append("")
    for n, section in enumerate(sections[: room.sections]):
        if lines[-1] == "" and lines[-2] == "</details>":
            lines.pop()  # one fold after another is one block of HTML
        lines += _section(section, room, is_open=n < OPEN and not section.folded)
    left_out = ", ".join(literal(section.title, 80) for section in sections[room.sections :])
    if left_out:
        lines += [f"Not shown here: {left_out}", ""]
    return [*lines, _provenance(document)]


def _most(items: Sequence[str], most: int) -> Iterator[str]:
    yield from (prose(item, MAX_SENTENCE) for item in items[:most])
    if len(items) > most:
        yield f"… and {len(items) - most} more"


def _provenance(document: Document) -> str:
    names = [literal(name, 80) for name in document.inputs[:MAX_INPUTS]]
    for n, digest in enumerate(document.digests[:MAX_INPUTS]):
        names[n] += f" ({literal(digest[:12])})"
    more = len(document.inputs) - MAX_INPUTS
    rest = f" and {more} more" if more > 0 else ""
    version = literal(document.version, 40)
    return f"traceprobe {version}; {', '.join(names) or 'no inputs'}{rest}"


def _section(section: Section, room: _Room, *, is_open: bool) -> list[str]:
    if is_open:
        lines = [f"#### {literal(section.title)}", ""]
    else:
        lines = [f"<details><summary>{in_html(section.title)}</summary>", ""]
    if section.text:
        lines += [" ".join(_most(section.text, MAX_TEXTS)), ""]
    for n, block in enumerate(section.blocks):
        caption = ""  # that of the first is the title
        if n and isinstance(block, Table | Bars | Chart | Timeline):
            caption = literal(block.caption)
        rows = room.first if is_open else room.rest
        lines += [*_block(block, caption, rows, room.cell), ""]
    return lines if is_open else [*lines, "</details>", ""]


def _block(block: Block, caption: str, rows: int, cell: int) -> list[str]:
    if isinstance(block, Bars):
        return _bars(block, caption, rows, cell)
    if not isinstance(block, Table | Chart | Timeline):
        return [*([caption, ""] if caption else []), *_brief(block)]
    table = block if isinstance(block, Table) else block.table
    if table.head[0] or not caption:
        above = [caption, ""] if caption else []
        return [*above, *_table(table, literal(table.head[0], cell), rows, cell)]
    return _table(table, caption, rows, cell)


def _brief(block: Block) -> list[str]:
    """A block of a summary, whole."""
    match block:
        case Text():
            lead = "" if block.lead == ITEM else block.lead
            return [
                f"- {prose(f'{lead} {text}'.strip(), MAX_SENTENCE)}" for text in block.sentences
            ]
        case Facts():
            return [f"- {literal(name)}: {prose(value)}" for name, value in block.facts]
        case Bars(relative=True, bars=[_]):
            return _shares(block)
        case Findings():
            return _findings(block)
        case Code():
            return [f"    {literal(line)}" for line in block.lines]
        case Owners():  # for those who explore it
            return []
        case Section():
            blocks = [line for inner in block.blocks for line in [*_brief(inner), ""]]
            return [f"**{literal(block.title)}**", "", *map(prose, block.text), *blocks]
    return _block(block, "", MAX_LINES, 80)


def _shares(bars: Bars) -> list[str]:
    """A row for each piece of one bar, which add up to 100 %."""
    rows = [
        f"| {literal(s.word)} | {s.text} | "
        f"{'█' * round(s.width / 100 * SHARE_WIDTH) or ('▏' if s.width >= 0.05 else '')} |"
        for s in segments(bars.bars[0])
        if s.value > 0
    ]
    return [f"| {literal(bars.unit)} | | |", "|---|--:|:--|", *rows, "| sum | 100.0 % | |"]


def _findings(block: Findings) -> list[str]:
    """Those that ask for a change, numbered, and how many others there are."""
    asking = [finding for finding in block.findings if finding.status in ATTENTION]
    lines = [_finding(number, finding) for number, finding in enumerate(asking, 1)]
    lines += ["", block.together] if block.together else []
    counts = Counter[str](f.status for f in block.findings if f not in asking)
    words = ", ".join(f"{counts[key]} {word}" for key, word in STATUS_LABELS.items() if counts[key])
    return [*lines, f"- others: {words}"] if words else lines


def _finding(number: int, finding: Finding) -> str:
    saves = f", {saving(finding)}" if saving(finding) else ""
    evidence = f" ({prose(finding.evidence[0])})" if finding.evidence else ""
    at = [f", {literal(name)}, {part}" for name, part in places(finding)[:1]]
    return (
        f"{number}. **{literal(finding.title)}**{saves}{''.join(at)}{evidence}. "
        f"{prose(finding.advice)}"
    )


def _bars(bars: Bars, caption: str, rows: int, cell: int) -> list[str]:
    """A row for each bar, and what the glyphs in it mean."""
    signs = glyphs(bars)
    lines = [_row([caption, "", literal(bars.unit, cell)]), "|:--|--:|:--|"]
    for bar, drawn in stacked(bars)[:rows]:
        text = "".join(glyph for glyph, _ in cells(drawn, signs, BAR_WIDTH))
        picture = f"`{text}`" if text else ""
        lines.append(f"| {literal(bar.label, cell)} | {literal(bar.text, cell)} | {picture} |")
    if len(bars.bars) > rows:
        lines.append(f"| … and {len(bars.bars) - rows} more | | |")
    words = ", ".join(f"{glyph} {literal(word, cell)}" for word, glyph in signs.items())
    return [*lines, "", words] if words else lines


def _table(table: Table, corner: str, rows: int, cell: int) -> list[str]:
    """At most so many rows; `corner` is the title of the first column."""
    columns = range(min(len(table.head), MAX_COLUMNS))
    lines = [
        _row([corner, *(literal(table.head[n], cell) for n in columns[1:])]),
        "|" + "".join("--:|" if n in table.numeric else ":--|" for n in columns),
    ]
    most = min(table.most, rows)
    for k, row in enumerate(table.rows[:most]):
        texts = [literal(row[n], cell) for n in columns]
        if table.tones and table.tones[k] != "plain" and texts[0]:
            texts[0] = f"**{texts[0]}**"
        lines.append(_row(texts))
    if len(table.rows) > most:
        lines.append(_row([f"… and {len(table.rows) - most} more", *("" for _ in columns[1:])]))
    left_out = ", ".join(literal(name, cell) for name in table.head[MAX_COLUMNS:])
    return [*lines, "", f"Columns left out: {left_out}"] if left_out else lines


def _row(texts: Sequence[str]) -> str:
    return f"| {' | '.join(texts)} |"
