"""The critical path in a real browser: a lane of the timeline that is true at any zoom."""

from __future__ import annotations

import msgspec
import pytest

from tests.browsing import AXE, browser, off_the_screen, open_folds, tabs
from tests.builders import pictures as made
from tests.builders.critical_paths import across_ranks, path_of
from tests.drawn_timelines import CLOCK_AHEAD, PIXELS, SETTLED, report_with_pictures, window_shown
from tests.rendering import html_of
from traceprobe.records.critical_path import Stretch
from traceprobe.render.colours import OTHER_COLOUR, PATH_COLOURS

__all__ = ["browser"]

pytestmark = pytest.mark.slow
MS = made.MS
ORIGIN = 500
HEIGHT = 12
BUTTON = "Critical path"


def on_two_ranks():
    """Where `report_with_pictures` puts the windows: the second rank's clock is ahead."""
    path = across_ranks(ORIGIN)
    stretches = [
        msgspec.structs.replace(
            s, start_ns=s.start_ns + s.rank * CLOCK_AHEAD, end_ns=s.end_ns + s.rank * CLOCK_AHEAD
        )
        for s in path.stretches
    ]
    return msgspec.structs.replace(path, stretches=stretches)


def fine():
    """Stretches of 3 and 1 µs in turn, from before the window to behind it."""
    stretches = []
    for n in range(5_100):
        at = ORIGIN + (n - 50) * 4_000
        stretches += [(0, "host", at, at + 3_000), (0, "launch", at + 3_000, at + 4_000)]
    return path_of(stretches)


def odd():
    """What no trace gives: nonsense beside one stretch that is drawn."""
    path = path_of([(0, "nothing like that", ORIGIN, ORIGIN + 5 * MS)])
    wrong = [
        Stretch(rank=0, part="host", start_ns=ORIGIN + 8 * MS, end_ns=ORIGIN + 7 * MS),
        Stretch(rank=0, part="host", start_ns=-(2**60), end_ns=-(2**59)),
        Stretch(rank=77, part="host", start_ns=ORIGIN, end_ns=ORIGIN + MS),
    ]
    return msgspec.structs.replace(path, stretches=[*wrong, *path.stretches])


REPORTS = {
    "two-ranks": lambda: (report_with_pictures(made.two_ranks()), on_two_ranks()),
    "fine": lambda: (report_with_pictures([made.overhead_bound()]), fine()),
    "odd": lambda: (report_with_pictures([made.overhead_bound()]), odd()),
    "elsewhere": lambda: (
        report_with_pictures([made.overhead_bound()]),
        path_of([(0, "host", 0, 400)]),
    ),
}


@pytest.fixture(scope="module")
def paths():
    return {name: make()[1] for name, make in REPORTS.items()}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("paths")
    for name, make in REPORTS.items():
        report, path = make()
        page = html_of(msgspec.structs.replace(report, critical_path=path))
        (folder / f"{name}.html").write_text(page, encoding="utf-8")
    return folder


@pytest.fixture
def visit(browser, files):
    with tabs(browser) as opened:

        def open_page(name, **options):
            page = opened(files / f"{name}.html", **options)
            page.wait_for_selector("html[data-timelines-ready='1']", timeout=60_000)
            page.evaluate(SETTLED)
            return page

        yield open_page


def lanes(page):
    """The tops of the lanes of the path, from top to bottom."""
    rows = """() => [...document.querySelectorAll(".timeline-labels span")]
        .filter((span) => span.textContent === "critical path")
        .map((span) => parseFloat(span.style.top))"""
    return page.evaluate(rows)


def pixels_of(page, top):
    """What each part has of the pixels of a lane of the path, and how many are of none."""
    ratio = page.evaluate("window.devicePixelRatio")
    found = page.evaluate(PIXELS, [round(top * ratio), round(HEIGHT * ratio)])
    colours = {**PATH_COLOURS, "other": OTHER_COLOUR}
    keys = ("host", "launch", "delay", "backward", "communication", "optimizer", "other")
    by_part = {
        key: found.get(colours[key], 0) + found.get(at_an_edge(colours[key]), 0) for key in keys
    }
    total = sum(found.values())
    return {key: count / total for key, count in by_part.items() if count}


def at_an_edge(colour):
    """The darker shade where a segment begins."""
    return "#" + "".join(f"{round(0.65 * int(colour[i : i + 2], 16)):02x}" for i in (1, 3, 5))


def shares_of(path, rank, low, high, shift):
    """The same by the record, between two times of the view."""
    found = {}
    for s in path.stretches:
        if s.rank == rank:
            part = min(s.end_ns - shift, high) - max(s.start_ns - shift, low)
            found[s.part] = found.get(s.part, 0) + max(0, part) / (high - low)
    return found


@pytest.mark.parametrize("zoom", [1, 7, 90])
@pytest.mark.parametrize("name", ["two-ranks", "fine"])
def test_the_lane_is_the_path_at_any_zoom(visit, paths, name, zoom):
    page = visit(name)
    whole = window_shown(page)[1]
    middle, half = whole * 0.57, whole / zoom / 2
    page.evaluate("([a, b]) => { timeline.show(a, b); }", [middle - half, middle + half])
    page.evaluate(SETTLED)
    low, high = window_shown(page)
    tops = lanes(page)
    assert len(tops) == (2 if name == "two-ranks" else 1)
    for rank, top in enumerate(tops):
        exact = shares_of(paths[name], rank, low, high, ORIGIN + rank * CLOCK_AHEAD)
        found = pixels_of(page, top)
        for part, share in exact.items():
            assert found.get(part, 0.0) == pytest.approx(share, abs=0.015), (rank, part)
    assert page.logged == []


def test_the_button_and_the_key_take_it_away_and_bring_it_back(visit):
    page = visit("two-ranks")
    button = page.get_by_role("button", name=BUTTON)
    assert button.get_attribute("aria-pressed") == "true"
    height = page.locator("canvas.timeline").bounding_box()["height"]
    button.click()
    assert button.get_attribute("aria-pressed") == "false"
    assert lanes(page) == []
    assert page.locator("canvas.timeline").bounding_box()["height"] < height
    page.locator("canvas.timeline").focus()
    page.keyboard.press("c")
    assert button.get_attribute("aria-pressed") == "true"
    assert len(lanes(page)) == 2
    assert page.locator("canvas.timeline").bounding_box()["height"] == height


def test_the_pointer_and_the_keys_say_part_and_time(visit):
    page = visit("two-ranks")
    page.locator("canvas.timeline").scroll_into_view_if_needed()
    box = page.locator("canvas.timeline").bounding_box()
    page.mouse.move(box["x"] + 0.7 * box["width"], box["y"] + lanes(page)[0] + 6)
    told = page.locator(".tip").inner_text()
    assert "Critical path: communication" in told
    assert "12 ms (30.0 % of the picture)" in told
    page.mouse.move(box["x"] + 0.3 * box["width"], box["y"] + lanes(page)[1] + 6)
    assert "Critical path: backward" in page.locator(".tip").inner_text()
    page.keyboard.press("Escape")
    page.locator("canvas.timeline").focus()
    page.keyboard.press("n")
    page.keyboard.press("ArrowDown")
    status = page.locator(".timeline-status").inner_text()
    assert status.startswith("Critical path: communication; what: communication; duration: 12 ms")


def test_a_stretch_marks_what_runs_meanwhile(visit):
    page = visit("two-ranks")
    page.locator("canvas.timeline").scroll_into_view_if_needed()
    box = page.locator("canvas.timeline").bounding_box()
    over = """([x, y]) => {
        const canvas = document.querySelector(".timeline-over");
        const [pen, ratio] = [canvas.getContext("2d"), window.devicePixelRatio];
        return pen.getImageData(Math.round(x * ratio), Math.round(y * ratio), 1, 1).data[3];
    }"""
    beneath = lanes(page)[0] + HEIGHT + 1
    places = [[share * box["width"], beneath] for share in (0.7, 0.9)]
    assert [page.evaluate(over, place) for place in places] == [0, 0]
    page.mouse.move(box["x"] + 0.7 * box["width"], box["y"] + lanes(page)[0] + 6)
    inside, outside = (page.evaluate(over, place) for place in places)
    assert inside > 0 == outside


def test_the_legend_lights_up_its_parts(visit):
    page = visit("two-ranks")
    button = page.locator(".legend").get_by_role("button", name="late starts")
    button.click()
    page.evaluate(SETTLED)
    assert set(pixels_of(page, lanes(page)[0])) == {"delay"}
    assert "1 stretch on rank 0" in page.locator(".timeline-status").inner_text()


def test_what_cannot_be_is_left_out(visit):
    page = visit("odd")
    [top] = lanes(page)
    found = pixels_of(page, top)
    assert set(found) == {"other"}
    assert found["other"] == pytest.approx(0.25, abs=0.01)
    assert page.logged == []


def test_a_window_without_the_path_has_no_lane_and_no_button(visit):
    page = visit("elsewhere")
    assert lanes(page) == []
    assert not page.get_by_role("button", name=BUTTON).is_visible()
    page.locator("canvas.timeline").focus()
    page.keyboard.press("c")
    assert lanes(page) == []
    assert page.locator("#path").is_visible()
    fine = visit("fine")
    fine.get_by_role("radio", name="Slowest").click()
    fine.wait_for_selector("canvas.timeline[data-window='slowest']")
    assert not fine.get_by_role("button", name=BUTTON).is_visible()
    fine.get_by_role("radio", name="Typical").click()
    fine.wait_for_selector("canvas.timeline[data-window='typical']")
    assert len(lanes(fine)) == 1


def test_the_longest_segments_are_those_of_the_trace(visit):
    page = visit("two-ranks")
    page.locator("summary", has_text="Table of segments").click()
    page.get_by_role("button", name="List the longest segments in view").click()
    cells = page.locator(".timeline-figure details table tbody td:nth-child(4)").all_inner_texts()
    assert cells
    assert "critical path" not in cells


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 390)])
def test_nothing_stands_in_the_way(visit, scheme, width):
    options = {"color_scheme": scheme, "viewport": {"width": width, "height": 844}}
    page = visit("two-ranks", bypass_csp=True, reduced_motion="reduce", **options)
    page.add_script_tag(path=AXE)
    open_folds(page)
    found = page.evaluate("axe.run({ include: ['#timeline', '#path'] })")["violations"]
    assert [(v["id"], v["nodes"][0]["html"][:200]) for v in found] == []
    assert off_the_screen(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.logged == []


def test_paper_has_the_lane_and_no_button(visit):
    page = visit("two-ranks")
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")
    page.evaluate(SETTLED)
    assert not page.get_by_role("button", name=BUTTON).is_visible()
    assert "critical path" in page.locator(".timeline-labels").inner_text()
    assert page.locator("#path-operators table").is_visible()
