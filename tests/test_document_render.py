"""What every output of a document promises, whatever the document holds."""

from __future__ import annotations

import json
import math
import re
from html import unescape
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from rich.cells import cell_len

from tests.documents import DOCUMENTS, DOUBLING, HOSTILE_DOCUMENT, LINES, RATES, SMALL
from tests.lazy import Lazy
from tests.parsed_page import ParsedPage
from tests.report_factory import HOSTILE
from traceprobe.formatting import first_clauses
from traceprobe.render import html as document_html
from traceprobe.render import markdown as document_markdown
from traceprobe.render import terminal as document_terminal
from traceprobe.render.bars import cells, glyphs, stacked
from traceprobe.render.charts import Line, curves
from traceprobe.render.document import Bar, Bars, Chart, Piece, Section, Table

altair = Lazy("altair")
ZERO_WIDTH = "\u200b"


@pytest.fixture(scope="module", params=DOCUMENTS, ids=str)
def document(request):
    return DOCUMENTS[request.param]


def outputs(document):
    """The three outputs as their readers see them."""
    page = document_html.render(document).split('<script type="application/json"')[0]
    markdown = document_markdown.render(document)
    return {
        "html": unescape(re.sub(r"<[^>]*>", "", page)),
        "markdown": unescape(re.sub(r"\\(.)", r"\1", markdown.replace(ZERO_WIDTH, ""))),
        "terminal": document_terminal.render(document, 200, False, verbose=True),
    }


def texts(block):
    """What of a block has to be told everywhere."""
    if isinstance(block, Table):
        return [*block.head, *(cell for row in block.rows for cell in row)]
    if isinstance(block, Bars):
        words = [piece.word for bar in block.bars for piece in bar.pieces]
        return [block.unit, *words, *(t for bar in block.bars for t in (bar.label, bar.text))]
    return [*block.table.head, *(name for name, _ in block.legend)]


@pytest.mark.parametrize("output", ["html", "markdown", "terminal"])
def test_the_text_of_every_block_reaches_every_output(output):
    text = outputs(SMALL)[output]
    told = [SMALL.title, SMALL.headline, *SMALL.points, *SMALL.cautions, SMALL.version]
    if output == "terminal":
        told.remove(SMALL.version)
    else:
        told += SMALL.inputs
    for section in SMALL.sections:
        told += [section.title, *section.text, *(t for b in section.blocks for t in texts(b))]
    assert [words for words in told if words not in text] == []


def test_what_is_not_brief_is_on_the_page_only():
    section = Section("more", "More of it", text=("Only here.",), brief=False)
    told = outputs(replace(SMALL, sections=[*SMALL.sections, section]))
    assert ["Only here." in told[output] for output in ("html", "markdown", "terminal")] == [
        True,
        False,
        False,
    ]


def test_page_is_well_formed(document):
    text = document_html.render(document)
    page = ParsedPage(text)
    assert len(page.ids) == len(set(page.ids))
    assert {"result", "provenance", *(section.id for section in document.sections)} <= set(page.ids)
    assert page.tags["main"] == page.tags["nav"] == page.tags["h1"] == 1
    assert page.tags["caption"] == page.tags["table"]
    charts = [b for s in document.sections for b in s.blocks if isinstance(b, Chart)]
    assert page.tags["script"] == (6 if charts else 5)
    assert not {a for a in page.attributes if a.startswith("on")}


def test_page_stays_small():
    plain = replace(SMALL, sections=[s for s in SMALL.sections if s.id not in ("scaling", "log")])
    assert len(document_html.render(plain).encode()) < 50_000
    assert len(document_html.render(SMALL).encode()) < 1e6


def test_page_asks_the_network_for_nothing(document):
    text = document_html.render(document)
    page = ParsedPage(text)
    assert all(a.startswith("#") or a == "data:," for a in page.addresses)
    assert page.tags["img"] == page.tags["iframe"] == page.tags["object"] == 0
    assert "default-src 'none'" in text
    assert "unsafe-eval" not in text.split("</head>")[0]


def test_page_embeds_the_record_and_the_markdown(document):
    embedded = ParsedPage(document_html.render(document)).json
    assert json.loads(embedded[f"traceprobe-{document.kind}"]) == json.loads(document.json)
    assert json.loads(embedded["traceprobe-markdown"]) == document_markdown.render(document)
    assert not set("<>&") & set("".join(embedded.values()))


def test_equal_documents_give_equal_pages(document):
    assert document_html.render(document) == document_html.render(replace(document))


def test_every_picture_has_its_numbers_as_a_table():
    pictures = [b for s in SMALL.sections for b in s.blocks if not isinstance(b, Table)]
    tables = [b for s in SMALL.sections for b in s.blocks if isinstance(b, Table)]
    text = document_html.render(SMALL)
    assert len(pictures) == 3
    assert text.count("<summary>Data table</summary>") == len(pictures)
    assert ParsedPage(text).tags["table"] == len(pictures) + len(tables)
    shown = re.sub(r"<[^>]*>", " ", text)
    for bars in (block for block in pictures if isinstance(block, Bars)):
        assert all(f" {p.value:.1f} " in shown for bar in bars.bars for p in bar.pieces)


def test_bars_are_drawn_on_one_scale():
    text = document_html.render(SMALL)
    widths = [float(w) for w in re.findall(r'<rect x="[\d.]+%" width="([\d.]+)%"', text)]
    assert widths == pytest.approx([20, 80, 20, 30])
    bars = [line for line in document_terminal.render(SMALL, 80, False).splitlines() if "█" in line]
    drawn = [sum(line.count(glyph) for glyph in "█▓") for line in bars[:2]]
    assert drawn[1] == pytest.approx(drawn[0] / 2, abs=1)


def test_curves_begin_at_zero_or_double():
    linear, doubling = (
        layer["encoding"] for layer in (c.spec["layer"][0] for c in (RATES, DOUBLING))
    )
    assert linear["x"]["scale"]["zero"]
    assert linear["y"]["scale"]["zero"]
    assert linear["x"]["axis"]["tickMinStep"] == 1
    assert doubling["x"]["axis"]["values"] == [1, 2, 4]
    assert doubling["x"]["scale"] == {"base": 2, "domain": [1, 4], "nice": False, "type": "log"}
    for chart in (RATES, DOUBLING):
        assert chart.data["points"]["kind"] == ["modelled"] * 3 + ["measured"] * 3
        assert "dashed: a model or an ideal, not measured" in chart.summary
        assert "measured: 100 at 1 to 350 at 4." in chart.description


def test_charts_are_valid_specs_with_named_data(document):
    for chart in (b for s in document.sections for b in s.blocks if isinstance(b, Chart)):
        altair.Chart.from_dict(dict(chart.spec), validate=True)
        for columns in chart.data.values():
            assert len({len(values) for values in columns.values()}) == 1


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -1.0, 0.0, 5e-324, 1.7e308])
def test_numbers_that_cannot_be_drawn_are_left_out(value):
    sections = []
    for section in SMALL.sections:
        blocks = []
        for block in section.blocks:
            if isinstance(block, Bars):
                bars = [
                    replace(b, pieces=[Piece("odd", "#ffffff", value), *b.pieces])
                    for b in block.bars
                ]
                block = replace(block, bars=bars)
            if isinstance(block, Chart):
                lines = [replace(n, points=[(value, 1), (1, value), *n.points]) for n in LINES]
                log = block is DOUBLING
                odd_lines = [Line("measured", [(value, 1), (1, value)]), *lines]
                block = curves(block.id, block.caption, "ranks", "samples/s", odd_lines, log=log)
                assert all(map(math.isfinite, block.data["points"]["x"]))
                assert all(map(math.isfinite, block.data["points"]["y"]))
            blocks.append(block)
        sections.append(replace(section, blocks=blocks))
    odd = replace(SMALL, sections=sections)
    page = document_html.render(odd)
    assert not re.search(r"\b(nan|inf)\b", page.split("<main>")[1].split('type="application')[0])
    page = page.split('<script type="application/json"')[0]
    for text in (page, document_markdown.render(odd), document_terminal.render(odd, 80, False)):
        assert "odd" not in text
    assert re.findall(r'<rect x="[\d.]+%" width="([\d.]+)%"', page) == re.findall(
        r'<rect x="[\d.]+%" width="([\d.]+)%"', document_html.render(SMALL)
    )


def test_markdown_fits_an_issue_comment(document):
    text = document_markdown.render(document)
    assert len(text.splitlines()) <= 60
    assert len(text) < 65_536
    assert text.count("<details>") == text.count("</details>")


def test_markdown_counts_and_names_what_it_leaves_out():
    text = document_markdown.render(DOCUMENTS["large"])
    rows = len(re.findall(r"^\| row \d+ \|", text, re.MULTILINE))
    counted = sum(int(n) for n in re.findall(r"… and (\d+) more", text))
    missing = re.search(r"^Not shown here: (.*)$", text, re.MULTILINE)
    sections = text.count("#### ") + text.count("<details>")
    assert sections + len(missing[1].split(", ")) == 9
    assert rows + counted == 40 * sections


def test_markdown_folds_what_comes_after_the_second_section():
    text = document_markdown.render(SMALL)
    assert re.findall(r"^#### (.*)$", text, re.MULTILINE) == ["Where it goes", "How it scales"]
    assert re.findall(r"<summary>(.*)</summary>", text) == ["Doubling", "Folded anyway"]
    assert "- ⚠ Only six steps." in text


def test_names_are_inert_in_markdown():
    text = document_markdown.render(HOSTILE_DOCUMENT)
    assert not re.search(r"<(?!/?(details|summary)>)", text)
    outside_code = re.sub(r"(?<!\\)`[^`\n]+`", "", text)
    assert not re.search(r"@\w|#\d|https?://\w|(?<!\\)`|[^\\]\[x\]", outside_code)
    assert "\u202e" not in text


def test_names_cannot_become_markup():
    text = document_html.render(HOSTILE_DOCUMENT)
    page = ParsedPage(text)
    assert "onerror" not in page.attributes
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", text)
    assert 'fill="red' not in text


@pytest.mark.parametrize("width", [20, 40, 80, 120])
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_terminal_keeps_to_its_width_and_encoding(document, encoding, width):
    text = document_terminal.render(document, width, False, encoding)
    text.encode(encoding)
    assert "\x1b" not in text
    assert max(map(cell_len, text.splitlines())) <= width


def test_terminal_colours_only_when_asked(document):
    plain = document_terminal.render(document, 80, False)
    coloured = document_terminal.render(document, 80, True)
    assert "\x1b[" in coloured
    stripped = re.sub(r"\x1b\[[0-9;]*m", "", coloured)
    assert [line.rstrip() for line in stripped.splitlines()] == plain.splitlines()
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", plain)


def test_terminal_says_which_columns_a_narrow_one_lacks():
    (table,) = (b for b in SMALL.sections[0].blocks if isinstance(b, Table))
    wide = document_terminal.render(SMALL, 80, False)
    assert "left out" not in wide
    narrow = document_terminal.render(SMALL, 40, False)
    lost = re.search(r"left out for want of width: ([^\n]*(\n[^\n]+)*)", narrow)[1]
    shown = next(line for line in narrow.splitlines() if line.startswith("class"))
    for name in table.head:
        assert (name in shown.split()) != (name in lost.replace("\n", " ").split(", "))
    assert "real" in shown.split()


def test_hostile_names_are_all_there():
    page = document_html.render(HOSTILE_DOCUMENT)
    assert "&lt;/script&gt;&lt;img src=x onerror=alert(1)&gt;" in page
    assert "gnp.exe" in page
    assert HOSTILE[-1] not in page  # 10,000 characters are shortened


@pytest.mark.parametrize(
    ("advice", "told"),
    [
        (
            "Look at that line: move it off the step, into a worker, or on.",
            "Look at that line: move it off the step.",
        ),
        (
            "Launch less: `compile(a, b)`, graphs (with x, y or z), or batches.",
            "Launch less: `compile(a, b)`.",
        ),
        (
            "If it is, keep the workers of the loader alive by an argument.",
            "If it is, keep the workers of the …",
        ),
        (
            "If the loop makes its batches, let workers of a loader make them.",
            "If the loop makes its batches, let …",
        ),
        (
            "The model communicates, as where tensors, sequences or experts are split.",
            "The model communicates.",
        ),
        (
            "The model communicates itself, for example in tensors, sequences or experts.",
            "The model communicates itself.",
        ),
        ("Use `compile(a, b, c, d)` or `compile(a, b, c, d)`.", "Use `compile(a, b, c, d)` or …"),
        ("Keep them. Then do what is said of it in the documentation.", "Keep them."),
        ("Use `fused=True`.", "Use `fused=True`."),
    ],
)
def test_advice_ends_with_a_whole_way(advice, told):
    assert first_clauses(advice, 41) == told


def test_letters_of_a_picture_go_by_its_legend():
    """Shades are of the longest pieces; what is left has letters, from the first that is named."""
    values = {"u": 1, "v": 50, "w": 3, "x": 40, "y": 2, "z": 30, "p": 20, "q": 10}
    bar = Bar("run", [Piece(word, "#000000", value, "") for word, value in values.items()])
    signs = glyphs(Bars("", "ms", [bar]))
    assert [signs[word] for word in "vxzpq"] == list("█▓▒░·")
    assert [signs[word] for word in "uwy"] == list("abc")


@given(
    lengths=st.lists(st.floats(0.01, 100), min_size=1, max_size=8),
    width=st.integers(1, 60),
)
def test_a_longer_segment_never_has_fewer_cells(lengths, width):
    pieces = [Piece(f"w{n}", "#000000", length) for n, length in enumerate(sorted(lengths))]
    bars = Bars("", "ms", [Bar("a", pieces)])
    ((_, drawn),) = stacked(bars)
    counts = [len(text) for text, _ in cells(drawn, glyphs(bars), width)]
    assert sum(counts) == width
    for (short, few), (long, many) in combinations(zip(sorted(lengths), counts, strict=True), 2):
        assert few <= many or short == long


def test_a_legend_in_a_terminal_has_what_is_drawn():
    pieces = [Piece("long", "#000000", 99.9), Piece("short", "#000000", 0.1)]
    bars = Section("bars", "bars", blocks=[Bars("", "ms", [Bar("a", pieces)])])
    text = document_terminal.render(replace(SMALL, sections=[bars]), 80, False)
    assert "long" in text
    assert "short" not in text
