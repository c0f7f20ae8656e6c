"""Frames a second of the timeline while it is panned and zoomed, in a headless browser.

    python benchmarks/timeline_frames.py PAGE.html … [--frames 120] [--zoom 1.5] [--json]

Opens each page (of a report, or with `--synthetic` one of 200,000 made-up operations) without a GPU
and drags the timeline a step a frame, all of its operations but the outermost in view. Prints the
time between frames and what drawing one takes, median and 95th percentile. Needs Playwright and a
Chromium or Chrome on the PATH.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pages import chromium

if TYPE_CHECKING:
    from playwright.sync_api import Browser


ROOT = Path(__file__).resolve().parents[1]
READY = "html[data-timelines-ready='1']"
PAN = """([frames, zoom]) => new Promise((done) => {
    const whole = timeline.whole();
    const span = whole / zoom;
    const between = [];
    const drawing = [];
    let last = 0;
    let frame = 0;
    const step = (now) => {
        if (last) between.push(now - last);
        last = now;
        if (frame++ >= frames) { done({between, drawing}); return; }
        const from = (whole - span) * (frame / frames);
        timeline.show(from, from + span);
        const before = performance.now();
        timeline.draw();
        drawing.push(performance.now() - before);
        requestAnimationFrame(step);
    };
    requestAnimationFrame(step);
})"""


def measure(browser: Browser, page_file: Path, frames: int, zoom: float) -> dict[str, Any]:
    """Times between frames and of drawing, ms; and of the way to the first picture."""
    context = browser.new_context(offline=True, viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.goto(page_file.as_uri())
    page.wait_for_selector(READY, timeout=60_000)
    first = page.evaluate("Number(document.documentElement.dataset.timelineAfter)")
    loaded = page.evaluate("performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd")
    page.locator("canvas.timeline").scroll_into_view_if_needed()
    found = page.evaluate(PAN, [frames, zoom])
    context.close()
    times = {key: sorted(values) for key, values in found.items()}
    return {
        "page": page_file.name,
        "dom_content_loaded_ms": loaded,
        "first_picture_ms": first,
        **{
            f"{key}_{name}_ms": round(values[int(share * (len(values) - 1))], 2)
            for key, values in times.items()
            for name, share in (("median", 0.5), ("p95", 0.95))
        },
    }


def synthetic(folder: Path) -> Path:
    """The page of a report with 200,000 operations in one iteration."""
    sys.path.insert(0, str(ROOT))
    import msgspec

    from tests.builders.pictures import tiny_kernels
    from tests.report_factory import make_report

    canvas = tiny_kernels()
    report = make_report("overhead")
    rank = msgspec.structs.replace(report.ranks[0], picture=canvas.picture(canvas.window()))
    page = folder / "200000-operations.html"
    page.write_text(msgspec.structs.replace(report, ranks=[rank]).to_html(), encoding="utf-8")
    return page


def main() -> None:
    """Measure the pages that are given."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("pages", nargs="*", type=Path)
    parser.add_argument("--synthetic", action="store_true", help="add one of 200,000 operations")
    parser.add_argument("--frames", type=int, default=120)
    parser.add_argument("--zoom", type=float, default=1.5, help="how much of it is out of view")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        pages = [page.resolve() for page in args.pages]
        if args.synthetic:
            pages.append(synthetic(Path(folder)))
        for page in pages:
            found = measure(browser, page, args.frames, args.zoom)
            if args.json:
                print(json.dumps(found))
                continue
            print(
                f"{found['page']}: first picture after {found['first_picture_ms']:.0f} ms; "
                f"{found['between_median_ms']} ms between frames (95th percentile "
                f"{found['between_p95_ms']}), {found['drawing_median_ms']} ms to draw one "
                f"({found['drawing_p95_ms']})"
            )


if __name__ == "__main__":
    main()
