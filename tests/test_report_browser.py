"""The page of a report in a real browser, without a network."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

import pytest

import traceprobe
from tests.browsing import (
    browser,
    draw_charts,
    expect_print_opens_folds,
    off_the_screen,
    tabs,
    violations,
)
from tests.conftest import ROOT
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
SAMPLES = {
    "unet": ["h200_unet_w1.json.gz"],
    "tiny": ["profile_tiny_mlp.json.gz"],
    "ddp": ["profile_wide_mlp.rank0.json.gz", "profile_wide_mlp.rank1.json.gz"],
}
"""Real traces: one rank waiting for data, one of overhead, two ranks."""


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    for name, make in REPORTS.items():
        (folder / f"{name}.html").write_text(html_of(make()), encoding="utf-8")
    for name, traces in SAMPLES.items():
        found = [traceprobe.load(ROOT / "sample_traces" / trace) for trace in traces]
        page = traceprobe.analyze(found).to_html()
        (folder / f"{name}.html").write_text(page, encoding="utf-8")
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
    assert draw_charts(page) == CHARTS[name]
    assert page.locator(".chart svg.marks").count() == CHARTS[name]
    assert page.logged == []
    assert len(page.asked) == 1
    assert page.locator("main img").count() == 0
    paint = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
    drawn = page.evaluate("Number(document.documentElement.dataset.drawnAfter)")
    assert page.evaluate(paint) > 0 < drawn
    print(f"{name}: painted after {page.evaluate(paint):.0f} ms, drawn after {drawn:.0f} ms")


def test_no_chart_is_drawn_before_it_is_seen(visit):
    page = visit("four-ranks", viewport={"width": 1280, "height": 300})
    page.wait_for_timeout(200)
    assert page.locator(".chart svg").count() == 0
    assert page.evaluate("typeof vegaEmbed") == "undefined"
    assert "holds its numbers" in page.locator(".chart").first.inner_text()
    page.locator("#iterations .chart").first.scroll_into_view_if_needed()
    page.wait_for_selector("#iterations .chart svg")
    assert page.locator(".chart svg.marks").count() == 1


@pytest.mark.parametrize("name", SAMPLES)
def test_verdict_and_fixes_and_the_top_of_the_timeline_need_no_scrolling(visit, name):
    page = visit(name, viewport={"width": 1280, "height": 900})
    bottom = "e => e.getBoundingClientRect().bottom"
    for part in ("#verdict", "#findings .fixes"):
        assert page.locator(part).evaluate(bottom) < 900
    assert page.locator("#timeline").evaluate("e => e.getBoundingClientRect().top") < 800
    assert page.locator(".fix").count() in (1, 2, 3)
    assert page.evaluate("document.documentElement.scrollHeight") <= 3500


def test_the_list_of_sections_stays_and_marks_the_one_that_is_read(visit):
    page = visit("unet", viewport={"width": 1280, "height": 900})
    current = page.locator("nav a[aria-current]")
    assert current.inner_text() == "Verdict"
    for name in ("Time", "Kernels"):
        page.get_by_role("link", name=name, exact=True).press("Enter")
        playwright.expect(current).to_have_text(name)
        box = page.locator("nav").bounding_box()
        assert box["y"] == 0
        assert page.locator(f"#{name.lower()}").bounding_box()["y"] >= box["height"] - 1
    assert page.locator("#kernels table").first.is_visible()  # a link into a fold opens it


def test_a_narrow_page_has_a_menu_of_its_sections(visit):
    page = visit("unet", viewport={"width": 390, "height": 844})
    link = page.get_by_role("link", name="Kernels")
    assert not link.is_visible()
    menu = page.locator("nav summary")
    assert menu.inner_text() == "Sections: Verdict"
    menu.press("Enter")
    link.press("Enter")
    playwright.expect(menu).to_have_text("Sections: Kernels")
    assert not link.is_visible()


def column(table, n):
    """The texts of a column of the rows that are shown, without folded names."""
    return table.evaluate(
        """(table, n) => [...table.tBodies[0].rows].filter((row) => !row.hidden)
            .map((row) => row.cells[n].querySelector("summary") ?? row.cells[n])
            .map((cell) => cell.textContent.trim())
        """,
        n,
    )


def kernels_of(page):
    return opened(page, "#kernels > details", "#kernels table:has(caption)")


def opened(page, fold, table):
    """A table of a fold, in view: it gets its tools then."""
    page.evaluate("fold => { document.querySelector(fold).open = true }", fold)
    found = page.locator(table).first
    found.scroll_into_view_if_needed()
    return found


def test_a_table_is_sorted_by_any_column_and_says_so(visit):
    page = visit("unet")
    table = kernels_of(page)
    count = next(cell for cell in table.locator("thead th").all() if cell.inner_text() == "count")
    count.get_by_role("button").press("Enter")
    assert count.get_attribute("aria-sort") == "descending"
    falling = [float(text.replace(",", "")) for text in column(table, 5)]
    assert falling == sorted(falling, reverse=True)
    count.get_by_role("button").click()
    assert count.get_attribute("aria-sort") == "ascending"
    rising = [float(text.replace(",", "")) for text in column(table, 5)]
    assert rising == sorted(falling)
    table.get_by_role("button", name="kernel", exact=True).click()
    assert count.get_attribute("aria-sort") is None
    names = column(table, 0)
    assert names == sorted(names, key=str.lower)


def test_times_are_sorted_by_what_they_are_not_by_their_digits(visit):
    page = visit("tiny")
    table = opened(page, "#gaps", "#gaps table")
    page.locator("#gaps").get_by_role("button", name="longest").click()
    units = {"µs": 1e-3, "ms": 1, "s": 1e3}
    found = [float(n) * units[u] for n, u in (text.split() for text in column(table, 3))]
    assert found == sorted(found, reverse=True)
    assert {text.split()[1] for text in column(table, 3)} == {"µs", "ms"}


TOOLS = "#kernels > details > .scroll > .tools"


def test_a_filter_leaves_the_rows_with_its_words(visit):
    page = visit("unet")
    table = kernels_of(page)
    before = column(table, 1)
    box = page.locator(TOOLS).get_by_role("searchbox").first
    box.fill("backward dgrad")
    assert 0 < len(column(table, 1)) < len(before)
    assert set(column(table, 1)) == {"backward"}
    assert all("dgrad" in name for name in column(table, 0))
    said = page.locator(f"{TOOLS} [role=status]").first
    assert said.inner_text() == f"{len(column(table, 1))} of {len(before)} rows"
    box.fill("")
    assert column(table, 1) == before


def test_a_table_is_copied_as_it_is_shown_with_whole_names(visit):
    page = visit("unet", permissions=["clipboard-read", "clipboard-write"])
    table = kernels_of(page)
    page.locator(TOOLS).get_by_role("searchbox").first.fill("backward")
    page.locator(TOOLS).get_by_role("button", name="Copy CSV: ").first.click()
    page.locator(f"{TOOLS} [role=status]", has_text="Copied").first.wait_for()
    rows = list(csv.reader(io.StringIO(page.evaluate("navigator.clipboard.readText()"))))
    assert rows[0][:3] == ["kernel", "phase", "ms"]
    assert [row[1] for row in rows[1:]] == column(table, 1)
    assert any(row[0].startswith("void at::native::") for row in rows)
    page.locator(TOOLS).get_by_role("button", name="Copy Markdown: ").first.click()
    page.wait_for_function("navigator.clipboard.readText().then((t) => t.startsWith('| kernel'))")
    lines = page.evaluate("navigator.clipboard.readText()").splitlines()
    assert lines[1] == "|" + " --- |" * len(rows[0])
    assert len(lines) == len(rows) + 1


def test_a_short_name_opens_to_the_whole(visit):
    page = visit("unet")
    kernels_of(page)
    name = page.locator("#kernels details.name").first
    assert not name.locator("code").is_visible()
    name.locator("summary").press("Enter")
    whole = name.locator("code").inner_text()
    assert "tilesize" in whole
    assert whole.startswith(name.locator("summary").inner_text())
    assert name.get_by_role("button", name="Copy").is_visible()


def test_findings_and_gaps_lead_into_the_timeline(visit):
    page = visit("unet")
    shown = page.locator("#finding-data-wait button[data-show]")
    assert shown.get_attribute("data-show") == "idle_data_wait"
    assert shown.is_visible()
    page.evaluate("document.querySelector('#gaps').open = true")
    places = page.locator("#gaps [data-show-time]")
    assert places.count() == page.locator("#gaps tbody tr").count()
    assert re.fullmatch(r"0:\d+-\d+", places.first.get_attribute("data-show-time"))


@pytest.mark.parametrize("name", REPORTS)
def test_the_verdict_is_there_without_scripts(visit, name):
    page = visit(name, ready=False, java_script_enabled=False)
    assert page.locator("#verdict h1").is_visible()
    assert page.locator("canvas:visible").count() == 0
    assert page.get_by_role("button").count() == 0
    if name == "io":
        assert "I/O-bound" in page.locator("#verdict h1").inner_text()
        for part in ("iterations", "timeline"):
            assert "The picture needs scripts" in page.locator(f"#{part}").inner_text()


def test_the_copy_button_gives_the_markdown_of_the_report(visit):
    page = visit("io", permissions=["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy as Markdown").click()
    page.wait_for_selector("#copied:not(:empty)")
    assert page.evaluate("navigator.clipboard.readText()") == make_report("io").to_markdown()


def test_the_download_is_the_report(visit):
    page = visit("io", anchor="#provenance")
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
    [
        *((name, "light") for name in ("io", "hostile", "ddp", "empty")),
        *((name, "dark") for name in ("io", "hostile", "tiny")),
    ],
)
def test_nothing_stands_in_the_way_of_anybody(visit, name, scheme):
    page = visit(name, color_scheme=scheme, bypass_csp=True, reduced_motion="reduce")
    draw_charts(page)
    assert violations(page) == []


def test_nothing_stands_in_the_way_on_a_narrow_page(visit):
    page = visit("ddp", bypass_csp=True, viewport={"width": 390, "height": 844})
    draw_charts(page)
    assert violations(page) == []


@pytest.mark.parametrize("name", [*REPORTS, *SAMPLES])
def test_a_narrow_window_shows_every_column_and_does_not_scroll_sideways(visit, name):
    page = visit(name, viewport={"width": 390, "height": 844})
    draw_charts(page)
    assert off_the_screen(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_hostile_names_stay_names(visit):
    page = visit("hostile")
    assert (
        page.evaluate("document.querySelectorAll('main script, main img, main iframe').length") == 0
    )
    assert page.evaluate("document.querySelectorAll('[onerror],[onload],[onclick]').length") == 0
