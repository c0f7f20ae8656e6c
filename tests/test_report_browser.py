"""The page of a report in a real browser, without a network."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.browsing import browser, expect_print_opens_folds, grave_violations, tabs
from tests.lazy import Lazy
from tests.rendering import html_of
from tests.report_factory import make_empty_report, make_hostile_report, make_report, make_run

__all__ = ["browser"]

pytestmark = pytest.mark.slow
playwright = Lazy("playwright.sync_api")

READY = "html[data-charts-ready]"
REPORTS = {
    "io": lambda: make_report("io"),
    "hostile": make_hostile_report,
    "four-ranks": lambda: make_run(4),
    "empty": make_empty_report,
}
CHARTS = {"io": 2, "hostile": 2, "four-ranks": 9, "empty": 0}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    for name, make in REPORTS.items():
        (folder / f"{name}.html").write_text(html_of(make()), encoding="utf-8")
    return folder


@pytest.fixture
def visit(browser, files):
    """Opens a page and waits until it is drawn."""
    with tabs(browser) as opened:

        def open_page(name, anchor="", ready=True, **options):
            page = opened(files / f"{name}.html", anchor, **options)
            if ready:
                page.wait_for_selector(READY, timeout=60_000)
            return page

        yield open_page


@pytest.mark.parametrize("name", REPORTS)
def test_everything_is_drawn_from_the_page_alone_and_in_silence(visit, name):
    page = visit(name)
    assert page.logged == []
    assert len(page.asked) == 1
    assert page.locator("html").get_attribute("data-charts-ready") == str(CHARTS[name])
    assert page.locator(".chart svg.marks").count() == CHARTS[name]
    assert page.locator("main img").count() == 0
    paint = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
    drawn = page.evaluate("Number(document.documentElement.dataset.drawnAfter)")
    assert page.evaluate(paint) > 0 < drawn
    print(f"{name}: painted after {page.evaluate(paint):.0f} ms, drawn after {drawn:.0f} ms")


@pytest.mark.parametrize("name", REPORTS)
def test_the_verdict_is_there_without_scripts(visit, name):
    page = visit(name, ready=False, java_script_enabled=False)
    assert page.locator("#verdict h1").is_visible()
    assert page.locator("canvas:visible").count() == 0
    assert page.get_by_role("button").count() == 0
    if name == "io":
        assert "I/O-bound" in page.locator("#verdict h1").inner_text()
        assert "The picture needs scripts" in page.locator("#timeline").inner_text()


def test_the_copy_button_gives_the_markdown_of_the_report(visit):
    page = visit("io", permissions=["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy as Markdown").click()
    page.wait_for_selector("#copied:not(:empty)")
    assert page.evaluate("navigator.clipboard.readText()") == make_report("io").to_markdown()


def test_the_download_is_the_report(visit):
    page = visit("io")
    with page.expect_download() as started:
        page.get_by_role("button", name="Download report.json").click()
    text = Path(started.value.path()).read_text()
    assert type(make_report("io")).from_json(text) == type(make_report("io")).from_json(
        make_report("io").to_json()
    )


def test_a_link_to_a_folded_finding_opens_it(visit):
    folded = next(f.id for f in make_report("io").findings if f.status == "pass")
    page = visit("io", anchor=f"#finding-{folded}")
    card = page.locator(f"#finding-{folded}")
    assert card.is_visible()
    assert card.evaluate("e => e.open")


def test_print_opens_every_fold_and_closes_it_again(visit):
    page = visit("io")
    expect_print_opens_folds(page)
    assert page.locator("#verdict h1").is_visible()


def test_the_theme_is_that_of_the_reader(visit):
    color = "getComputedStyle(document.body).backgroundColor"
    light, dark = (visit("io", color_scheme=s).evaluate(color) for s in ("light", "dark"))
    assert light == "rgb(255, 255, 255)"
    assert dark != light


@pytest.mark.parametrize(
    ("name", "scheme"),
    [  # four ranks have the colours of one; looking at all their rows twice takes its time
        *(("io", "light"), ("io", "dark")),
        *(("hostile", "light"), ("hostile", "dark")),
        ("four-ranks", "dark"),
    ],
)
def test_nothing_serious_stands_in_the_way_of_anybody(visit, name, scheme):
    page = visit(name, color_scheme=scheme, bypass_csp=True, reduced_motion="reduce")
    assert grave_violations(page) == []


@pytest.mark.parametrize("name", REPORTS)
def test_a_narrow_window_does_not_scroll_sideways(visit, name):
    page = visit(name, viewport={"width": 360, "height": 740})
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_hostile_names_stay_names(visit):
    page = visit("hostile")
    assert (
        page.evaluate("document.querySelectorAll('main script, main img, main iframe').length") == 0
    )
    assert page.evaluate("document.querySelectorAll('[onerror],[onload],[onclick]').length") == 0
