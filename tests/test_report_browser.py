"""The page in a real browser, with every host name unresolvable.

Skipped where there is no browser, unless TRACEPROBE_REQUIRE_BROWSER=1 says that there must be one.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.report_factory import make_empty_report, make_hostile_report, make_report, make_run
from traceprobe.report import html

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
REQUIRED = os.environ.get("TRACEPROBE_REQUIRE_BROWSER") == "1"

pytestmark = pytest.mark.skipif(
    BROWSER is None and not REQUIRED, reason="no Chromium or Chrome on the PATH"
)

PAGES = {
    "io": (make_report("io"), 1),
    "hostile": (make_hostile_report(), 1),
    "four-ranks": (make_run(4), 5),
    "empty": (make_empty_report(), 0),
}


def open_page(page: Path, profile: Path, *options: str) -> tuple[str, list[str]]:
    """The document after its scripts ran, and what was logged to the console."""
    assert BROWSER is not None, "TRACEPROBE_REQUIRE_BROWSER=1, but there is no browser"
    done = subprocess.run(
        [
            BROWSER,
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-background-networking",
            "--host-resolver-rules=MAP * ~NOTFOUND",
            "--enable-logging=stderr",
            "--v=0",
            "--virtual-time-budget=20000",
            f"--user-data-dir={profile}",
            *options,
            "--dump-dom",
            page.as_uri(),
        ],
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=120,
        check=True,
    )
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


@pytest.mark.parametrize("name", PAGES)
def test_charts_are_drawn_and_the_console_stays_silent(name, tmp_path):
    report, expected = PAGES[name]
    page = tmp_path / "report.html"
    page.write_text(html.render(report), encoding="utf-8")
    document, console = open_page(page, tmp_path / "profile")
    assert console == []
    assert f'data-charts-ready="{expected}"' in document
    drawn = re.findall(
        r'<div class="chart[^"]*" id="chart-[^>]*>.*?<svg[^>]*class="marks"', document
    )
    assert len(drawn) == expected
    visible = re.sub(r"<script\b.*?</script>", "", document, flags=re.DOTALL)
    assert "<img" not in visible


def test_verdict_is_there_with_scripts_turned_off(tmp_path):
    page = tmp_path / "report.html"
    # A stricter policy than the page's own is what a viewer without scripts amounts to.
    text = html.render(make_report("io")).replace("script-src 'unsafe-inline'; ", "")
    page.write_text(text, encoding="utf-8")
    document, _ = open_page(page, tmp_path / "profile")
    assert "data-charts-ready" not in document
    assert "The picture needs scripts" in document
    assert "I/O-bound" in document
