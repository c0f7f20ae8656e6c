"""Size and speed of report pages in a headless browser.

    python benchmarks/pages.py TRACE … [--repeat 3] [--json]

Analyses every trace, or set of rank files (joined by `+`, or in a folder), opens the page without a
network and prints when the verdict was painted first and when the last chart stood, of those that
are in no fold and one after the other: medians over `--repeat` fresh pages. Needs Playwright and a
Chromium or Chrome on the PATH.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

import traceprobe
from traceprobe.errors import TraceprobeError

READY = "html[data-charts-ready]"
DRAW_ALL = """async () => {
    const open = (chart) => !chart.closest('details:not([open])');
    for (const chart of [...document.querySelectorAll('.chart')].filter(open)) {
        chart.scrollIntoView();
        while (!chart.querySelector('svg')) await new Promise((done) => setTimeout(done, 20));
    }
    scrollTo(0, 0);
}"""
"""Brings every chart into view that is in no fold: it is drawn then."""
TIMES = """() => {
    const paint = performance.getEntriesByName('first-contentful-paint')[0];
    return [paint ? paint.startTime : NaN, Number(document.documentElement.dataset.drawnAfter)];
}"""


@contextmanager
def chromium() -> Iterator[Browser]:
    """A headless browser."""
    found = next(
        filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
    )
    if found is None:
        raise SystemExit("no Chromium or Chrome on the PATH")
    with sync_playwright() as play:
        options = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
        browser = play.chromium.launch(executable_path=found, args=options)
        yield browser
        browser.close()


def measure(browser: Browser, page_file: Path, repeat: int) -> dict[str, float]:
    """Medians of the first paint and of the time when everything stood, ms after navigation."""
    found = []
    for _ in range(repeat):
        context = browser.new_context(offline=True, viewport={"width": 1200, "height": 900})
        page = context.new_page()
        page.goto(page_file.as_uri(), wait_until="commit")
        page.wait_for_selector(READY, timeout=120_000)
        page.evaluate(DRAW_ALL)
        found.append(page.evaluate(TIMES))
        context.close()
    paint, drawn = (statistics.median(column) for column in zip(*found, strict=True))
    return {"first_paint_ms": paint, "drawn_ms": drawn}


def _files(name: str) -> list[str]:
    """The ranks of a run: what `+` joins, or the files of a folder."""
    if Path(name).is_dir():
        return sorted(str(path) for path in Path(name).iterdir())
    return name.split("+")


def report_of(name: str) -> traceprobe.Report:
    """The report of a trace, or of the rank files of one run."""
    traces = [traceprobe.load(path) for path in _files(name)]
    return traceprobe.analyze(traces)


def main() -> None:
    """Read the arguments, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("traces", nargs="+")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as name, chromium() as browser:
        for trace in options.traces:
            try:
                report = report_of(trace)
            except TraceprobeError as error:
                print(f"left out: {error}", file=sys.stderr)
                continue
            stem = Path(trace.split("+")[0]).name.split(".")[0]
            page_file = Path(name) / f"{report.verdict.bound}-{stem}.html"
            page_file.write_text(report.to_html(), encoding="utf-8")
            size = page_file.stat().st_size
            row = {"trace": Path(trace).name, "bound": report.verdict.bound, "bytes": size}
            rows.append(row | measure(browser, page_file, options.repeat))
    if options.json:
        print(json.dumps(rows, indent=1))
        return
    print("| trace | bound | MB | verdict painted, ms | everything drawn, ms |")
    print("| --- | --- | ---: | ---: | ---: |")
    for row in rows:
        print(
            f"| `{row['trace']}` | {row['bound']} | {row['bytes'] / 1e6:.2f} | "
            f"{row['first_paint_ms']:.0f} | {row['drawn_ms']:.0f} |"
        )


if __name__ == "__main__":
    main()
