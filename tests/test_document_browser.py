"""The page of a document in a real browser, without a network."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.browsing import (
    browser,
    draw_charts,
    expect_print_opens_folds,
    off_the_screen,
    open_folds,
    tabs,
    violations,
)
from tests.documents import DOCUMENTS, SMALL
from traceprobe.render import html as document_html
from traceprobe.render import markdown as document_markdown

__all__ = ["browser"]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    folded = replace(SMALL, sections=[replace(s, folded=True) for s in SMALL.sections])
    for name, document in {**DOCUMENTS, "folded": folded}.items():
        (folder / f"{name}.html").write_text(document_html.render(document), encoding="utf-8")
    return folder


@pytest.fixture
def visit(browser, files):
    with tabs(browser) as opened:
        yield lambda name, anchor="", **options: opened(files / f"{name}.html", anchor, **options)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_page_needs_nothing_and_is_silent(visit, name):
    page = visit(name)
    page.wait_for_selector("#copy:visible")
    assert page.logged == []
    assert len(page.asked) == 1
    assert page.locator("main img, main script, main iframe").count() == 0


def test_everything_is_there_without_scripts(visit):
    page = visit("small", java_script_enabled=False)
    shown = page.locator("main").inner_text()
    for words in (SMALL.title, *SMALL.points, *SMALL.cautions, "50 ms", "−51.0 to −49.0", "ideal"):
        assert words in shown
    assert page.get_by_role("button").count() == 0
    assert page.locator("svg.bar rect:visible").count() == 4
    assert "The picture needs scripts" in page.locator("#scaling").inner_text()
    page.locator("#scaling summary").first.click()
    assert "350" in page.locator("#scaling table").inner_text()


def test_the_lines_end_where_their_points_are(visit):
    page = visit("small")
    draw_charts(page)
    assert page.logged == []
    box, line = page.locator("#chart-rates svg").evaluate(
        "e => ['path.background', 'g.mark-line path']"
        ".map((name) => e.querySelector(name).getBoundingClientRect().toJSON())"
    )
    assert line["right"] == pytest.approx(box["right"], abs=2)  # x = 4 of 4
    assert line["left"] == pytest.approx(box["left"] + box["width"] / 4, abs=2)  # x = 1
    assert line["top"] == pytest.approx(box["top"], abs=2)  # y = 400 of 400
    assert line["bottom"] == pytest.approx(box["top"] + 0.75 * box["height"], abs=2)  # y = 100


@pytest.mark.parametrize("name", ["small", "hostile"])
def test_nothing_moves_when_a_chart_is_drawn(visit, name):
    page = visit(name)
    open_folds(page)
    heights = "[...document.querySelectorAll('.chart')].map((e) => e.offsetHeight)"
    before = page.evaluate(heights)
    assert draw_charts(page) == len(before) > 0
    assert page.evaluate(heights) == before


def test_the_copy_button_gives_the_markdown(visit):
    page = visit("small", permissions=["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy as Markdown").click()
    page.wait_for_selector("#copied:not(:empty)")
    assert page.evaluate("navigator.clipboard.readText()") == document_markdown.render(SMALL)


def test_the_download_is_the_record(visit):
    page = visit("small")
    page.locator("#provenance summary").first.click()
    with page.expect_download() as started:
        page.get_by_role("button", name="Download comparison.json").click()
    assert started.value.suggested_filename == "comparison.json"
    assert json.loads(Path(started.value.path()).read_text()) == json.loads(SMALL.json)


def test_a_link_to_a_folded_section_opens_it(visit):
    page = visit("folded", anchor="#scaling-title")
    assert page.locator("#chart-rates").is_visible()
    assert not page.locator("svg.bar").first.is_visible()


def test_print_opens_every_fold_and_closes_it_again(visit):
    page = visit("small")
    expect_print_opens_folds(page)
    assert page.locator("#result h1").is_visible()


@pytest.mark.parametrize(
    ("name", "scheme"),  # the large one has the colours of the others, and takes its time
    [*((name, "dark") for name in DOCUMENTS), *((n, "light") for n in DOCUMENTS if n != "large")],
)
def test_nothing_stands_in_the_way_of_anybody(visit, name, scheme):
    page = visit(name, color_scheme=scheme, bypass_csp=True, reduced_motion="reduce")
    assert violations(page) == []


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_narrow_window_does_not_scroll_sideways(visit, name):
    page = visit(name, viewport={"width": 390, "height": 844})
    assert off_the_screen(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_the_keyboard_reaches_skip_link_sections_and_button_in_this_order(visit):
    page = visit("small")
    page.wait_for_selector("#copy:visible")
    reached = []
    for _ in range(8):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.textContent.trim()"))
    assert reached[:2] == ["Skip to the result", "Copy as Markdown"]
    assert reached[2:] == ["Result", "Step", "Scaling", "Log", "Runs", "Provenance"]
