"""Timelines in a browser: reports that have them, and what is drawn of them."""

from __future__ import annotations

import msgspec

from tests.report_factory import make_report, make_run

CLOCK_AHEAD = 10_000
"""How far the clock of the second rank is ahead, ns."""
SETTLED = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
"""Waits until what was asked for is drawn."""
PIXELS = """([top, height]) => {
    const canvas = document.querySelector("canvas.timeline");
    const { data } = canvas.getContext("2d").getImageData(0, top, canvas.width, height);
    const found = {};
    for (let i = 0; i < data.length; i += 4) {
        const hex = [0, 1, 2].map((k) => data[i + k].toString(16).padStart(2, "0")).join("");
        found[`#${hex}`] = (found[`#${hex}`] ?? 0) + 1;
    }
    return found;
}"""
"""Counts the pixels of each colour in a strip of the canvas."""


def report_with_pictures(canvases):
    """A report whose ranks have these pictures; the second has a clock that is ahead."""
    report = make_report("overhead") if len(canvases) == 1 else make_run(len(canvases))
    ranks = []
    for n, (rank, canvas) in enumerate(zip(report.ranks, canvases, strict=True)):
        windows = [canvas.window(start=500 + n * CLOCK_AHEAD)]
        if n == 0 and len(canvases) == 1:
            windows.append(canvas.window(why="slowest", iteration=7, start=10**9))
        picture = canvas.picture(*windows, clock=-n * CLOCK_AHEAD)
        assert [*picture.problems()] == []
        ranks.append(msgspec.structs.replace(rank, picture=picture))
    return msgspec.structs.replace(report, ranks=ranks)


def window_shown(page):
    """The first and the last ns that the canvas shows."""
    canvas = page.locator("canvas.timeline")
    return tuple(int(canvas.get_attribute(f"data-{end}")) for end in ("from", "to"))
