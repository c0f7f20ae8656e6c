"""A real browser without a network, for tests of pages.

Tests with a browser are slow. They are skipped where there is none, unless
TRACEPROBE_REQUIRE_BROWSER=1 says that there must be one.
"""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager
from pathlib import Path

import pytest

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
REQUIRED = os.environ.get("TRACEPROBE_REQUIRE_BROWSER") == "1"
AXE = Path(__file__).parent / "vendor" / "axe.min.js"


@pytest.fixture(scope="module")
def browser():
    if BROWSER is None:
        (pytest.fail if REQUIRED else pytest.skip)("no Chromium or Chrome on the PATH")
    if not REQUIRED:
        pytest.importorskip("playwright", reason="Playwright is not installed")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        options = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
        found = play.chromium.launch(executable_path=BROWSER, args=options)
        yield found
        found.close()


@contextmanager
def tabs(browser):
    """Opens pages; what one asked for and what it logged are its `asked` and `logged`."""
    contexts = []

    def open_page(path, anchor="", **options):
        size = {"width": 1200, "height": 900}
        context = browser.new_context(offline=True, **{"viewport": size, **options})
        contexts.append(context)
        page = context.new_page()
        page.asked, page.logged = [], []
        page.on("request", lambda request: page.asked.append(request.url))
        page.on("console", lambda message: page.logged.append(message.text))
        page.on("pageerror", lambda error: page.logged.append(str(error)))
        page.goto(path.as_uri() + anchor)
        return page

    yield open_page
    for context in contexts:
        context.close()


def violations(page):
    """All that axe finds, with every fold open; the page must bypass its policy."""
    page.add_script_tag(path=AXE)
    open_folds(page)
    found = page.evaluate("axe.run()")["violations"]
    assert found is not None
    return [(v["id"], v["nodes"][0]["html"][:200]) for v in found]


def open_folds(page):
    """Open every fold of the content; the list of sections stays as it is."""
    page.evaluate("for (const e of document.querySelectorAll('main details')) e.open = true")


def draw_charts(page):
    """Open every fold, bring every chart into view, and wait until all are drawn."""
    open_folds(page)
    for chart in page.locator(".chart").all():
        chart.scroll_into_view_if_needed()
    count = page.locator("html").get_attribute("data-charts")
    page.wait_for_selector(f"html[data-charts-ready='{count}']", timeout=60_000)
    return int(count)


def off_the_screen(page):
    """What of the tables, pictures and tools reaches beyond the right edge, every fold open."""
    open_folds(page)
    return page.evaluate("""() => {
        const parts = "td, th, caption, .tools *, figure, figcaption, .bar, article, dl, pre";
        const hidden = ".unseen, thead";
        const shown = [...document.querySelectorAll(parts)].filter((e) => !e.closest(hidden));
        const width = document.documentElement.clientWidth + 0.5;
        return shown.filter((e) => e.getBoundingClientRect().right > width)
            .map((e) => e.outerHTML.slice(0, 120));
    }""")


def expect_print_opens_folds(page):
    """Every fold is open on paper and closed again after it, and paper has no buttons."""
    closed = "document.querySelectorAll('details:not([open])').length"
    before = page.evaluate(closed)
    assert before
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate(closed) == 0
    page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert page.evaluate(closed) == before
    page.emulate_media(media="print")
    assert not page.get_by_role("button", name="Copy as Markdown").is_visible()
