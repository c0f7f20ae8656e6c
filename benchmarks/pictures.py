"""Take the pictures of docs/pictures: reports of the sample traces in a browser.

    python benchmarks/pictures.py [NAME …]

It needs Chromium and Playwright, as the tests with a browser do.
"""

from __future__ import annotations

import base64
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from pages import chromium

import traceprobe

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "pictures"
REPORTS = {
    "io": ["h200_unet_w1.json.gz"],
    "communication": ["h200_ddp2_gpt2_sock.sqlite.gz"],
    "compute": ["profile_gpt2.sqlite.gz"],
    "overhead": ["profile_tiny_mlp.json.gz"],
    "two-ranks": ["profile_wide_mlp.rank0.json.gz", "profile_wide_mlp.rank1.json.gz"],
    "cuda-graph": ["h200_gpt2_graph_level.sqlite.gz"],
    "doubtful": ["h200_collectives.rank0.json.gz", "h200_collectives.rank1.json.gz"],
    "cpu": ["cpu_convnet.json.gz"],
}
"""Name to the sample traces of one run."""
SIZES = {"wide": (1280, 900), "narrow": (390, 844)}
README = ("io", (1280, 1190))
"""The report whose picture is the README's, with its timeline."""
SCHEMES = ("light", "dark")
QUALITY = 70
"""Of WebP."""
SETTLED_MS = 800
"""Until the timeline and what is in view are drawn."""


def page_of(name: str, folder: Path) -> Path:
    """The HTML page of a report."""
    traces = [traceprobe.load(ROOT / "sample_traces" / file) for file in REPORTS[name]]
    path = folder / f"{name}.html"
    path.write_text(traceprobe.analyze(traces).to_html(), encoding="utf-8")
    return path


def take(browser: Browser, page: Path, scheme: str, size: tuple[int, int]) -> bytes:
    """The first screen of a page, as WebP. Sizes are width and height in CSS pixels."""
    width, height = size
    context = browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme="dark" if scheme == "dark" else "light",
        offline=True,
    )
    tab = context.new_page()
    tab.goto(page.as_uri())
    tab.wait_for_timeout(SETTLED_MS)
    session = context.new_cdp_session(tab)
    taken = session.send("Page.captureScreenshot", {"format": "webp", "quality": QUALITY})
    context.close()
    return base64.b64decode(taken["data"])


def main(names: list[str]) -> None:
    """Take the pictures of the reports with these names, or of all."""
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        for name in names or REPORTS:
            page = page_of(name, Path(folder))
            wanted = [
                (f"{name}-{size}-{scheme}", scheme, SIZES[size])
                for scheme in SCHEMES
                for size in SIZES
            ]
            if name == README[0]:
                wanted.append(("report", "light", README[1]))
            for stem, scheme, size in wanted:
                path = FOLDER / f"{stem}.webp"
                path.write_bytes(take(browser, page, scheme, size))
                print(f"{path.relative_to(ROOT)}: {path.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main(sys.argv[1:])
