"""The timeline in a real browser: the picture is the partition, every way to the facts works."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import numpy as np
import pytest

import traceprobe
from tests.browsing import AXE, browser, tabs
from tests.builders import pictures as made
from tests.drawn_timelines import PIXELS, SETTLED, report_with_pictures, window_shown
from tests.rendering import html_of
from tests.report_factory import make_report
from traceprobe.model.taxonomy import IDLE_CAUSES, PARTITION
from traceprobe.render.colours import CLASS_COLOURS

__all__ = ["browser"]

pytestmark = pytest.mark.slow
MS = made.MS
SAMPLE_TRACES = Path(__file__).resolve().parents[1] / "sample_traces"
CANVASES = {
    "io": lambda: [made.io_bound()],
    "overhead": lambda: [made.overhead_bound()],
    "communication": lambda: [made.communication(0)],
    "compute": lambda: [made.compute_bound()],
    "two-ranks": made.two_ranks,
    "tiny": lambda: [made.tiny_kernels()],
}


@pytest.fixture(scope="module")
def drawn():
    return {name: make() for name, make in CANVASES.items()}


@pytest.fixture(scope="module")
def files(tmp_path_factory, drawn):
    folder = tmp_path_factory.mktemp("timelines")
    for name, canvases in drawn.items():
        (folder / f"{name}.html").write_text(
            html_of(report_with_pictures(canvases)), encoding="utf-8"
        )
    io = (folder / "io.html").read_text(encoding="utf-8")
    second = list(re.finditer(r'"parts":\{"data":"', io))[1].end()
    half = f"{io[:second]}AAAAAAAA{io[second + 8 :]}"
    (folder / "second-damaged.html").write_text(half, encoding="utf-8")
    damaged = re.sub(r'("parts":\{"data":")[^"]{8}', r"\1AAAAAAAA", io)
    assert damaged != io
    (folder / "damaged.html").write_text(damaged, encoding="utf-8")
    larger = re.sub(r'("host":\{"data":"[^"]*","rows":)\d+', r"\g<1>1", io)
    assert larger != io
    (folder / "larger.html").write_text(larger, encoding="utf-8")
    report = make_report("io")
    bare = [msgspec.structs.replace(r, picture=msgspec.UNSET) for r in report.ranks]
    old = html_of(msgspec.structs.replace(report, ranks=bare))
    (folder / "old.html").write_text(old, encoding="utf-8")
    return folder


@pytest.fixture
def visit(browser, files):
    with tabs(browser) as opened:

        def open_page(name, anchor="", ready="1", **options):
            page = opened(files / f"{name}.html", anchor, **options)
            if ready:
                page.wait_for_selector(f"html[data-timelines-ready='{ready}']", timeout=60_000)
            return page

        yield open_page


def until(page, condition):
    """Waits for it; the page's policy forbids the ways of Playwright to do so."""
    for _ in range(100):
        if page.evaluate(condition):
            return
        page.wait_for_timeout(50)
    pytest.fail(f"never: {condition}")


def shares_in_pixels(page):
    """What each class has of the pixels of the partition, by rank."""
    page.evaluate(SETTLED)
    by_colour = {colour: key for key, colour in CLASS_COLOURS.items()}
    found = {}
    for place in page.locator("canvas.timeline").get_attribute("data-partitions").split():
        rank, top = map(int, place.split(":"))
        pixels = page.evaluate(PIXELS, [top, 28])
        counted = {by_colour[c]: n for c, n in pixels.items() if c in by_colour}
        assert sum(counted.values()) >= 0.99 * sum(pixels.values())
        found[rank] = {key: n / sum(counted.values()) for key, n in counted.items()}
    return found


def shares_of(canvas, low, high):
    """What each class has of the time between, by the builder's sweep."""
    found, start = dict.fromkeys(PARTITION, 0.0), 0
    for length, key in canvas.parts():
        part = min(start + length, high) - max(start, low)
        found[PARTITION[key]] += max(0, part) / (high - low)
        start += length
    return found


@pytest.mark.parametrize("name", CANVASES)
@pytest.mark.parametrize("zoom", [1, 7, 90])
def test_what_is_drawn_of_each_class_is_its_share_at_any_zoom(visit, drawn, name, zoom):
    page = visit(name)
    whole = window_shown(page)[1]
    middle, half = whole * 0.71, whole / zoom / 2
    page.evaluate("([a, b]) => { timeline.show(a, b); }", [middle - half, middle + half])
    low, high = window_shown(page)
    assert (high - low) * zoom == pytest.approx(whole, rel=0.01)
    for rank, found in shares_in_pixels(page).items():
        exact = shares_of(drawn[name][rank], low, high)
        for key in PARTITION:
            assert found.get(key, 0.0) == pytest.approx(exact[key], abs=0.01), (rank, key)


LABELS_OF_QUEUES = """(queue) => [...document.querySelectorAll("span")]
    .some((label) => new RegExp(`^${queue} [0-9]+ · compute`).test(label.textContent))"""
SAMPLES = {
    "unet": ["h200_unet_w1.json.gz"],
    "gpt2": ["h200_gpt2_bf16.sqlite.gz"],
    "ddp": ["h200_ddp2_gpt2_sock.sqlite.gz"],
    "two-files": ["profile_wide_mlp.rank0.json.gz", "profile_wide_mlp.rank1.json.gz"],
    "tiny-mlp": ["profile_tiny_mlp.json.gz"],
    "cpu": ["cpu_convnet.json.gz"],
}


@pytest.mark.parametrize("name", SAMPLES)
def test_the_picture_of_a_real_trace_agrees_with_its_numbers(browser, tmp_path, name):
    report = traceprobe.analyze([traceprobe.load(SAMPLE_TRACES / f) for f in SAMPLES[name]])
    (tmp_path / "page.html").write_text(html_of(report), encoding="utf-8")
    with tabs(browser) as opened:
        page = opened(tmp_path / "page.html")
        page.wait_for_selector("html[data-timelines-ready='1']", timeout=60_000)
        drawn = shares_in_pixels(page)
        assert page.logged == []
        queue = "thread" if name == "cpu" else "stream"
        assert page.evaluate(LABELS_OF_QUEUES, queue), queue
    assert len(drawn) == len(report.ranks)
    for rank in report.ranks:
        iteration = rank.iterations[rank.picture.windows[0].iteration]
        length = iteration.end_ns - iteration.start_ns
        for key in PARTITION:
            share = (iteration.partition_ns[key] or 0) / length
            assert drawn[rank.rank].get(key, 0.0) == pytest.approx(share, abs=0.01), key


def test_a_gap_below_a_pixel_is_drawn_too(visit, drawn):
    """900 gaps of 14 µs between kernels of 6 µs: about as wide as a pixel together."""
    found = shares_in_pixels(visit("overhead"))[0]
    idle = sum(found.get(cause, 0.0) for cause in IDLE_CAUSES)
    exact = made.partition_of(drawn["overhead"][0])
    assert idle == pytest.approx(sum(exact.get(c, 0) for c in IDLE_CAUSES) / (20 * MS), abs=0.01)
    assert idle > 0.6


@pytest.mark.parametrize("name", ["io", "tiny"])
def test_work_of_a_frame_is_bounded_by_pixels(visit, name):
    """Whatever the number of operations, what is painted over the lanes is what can be seen."""
    page = visit(name)
    page.evaluate("""() => {
        const pen = CanvasRenderingContext2D.prototype;
        window.calls = 0;
        for (const name of ["fillRect", "fillText", "strokeRect", "stroke", "putImageData"]) {
            const real = pen[name];
            pen[name] = function (...given) { window.calls += 1; return real.apply(this, given); };
        }
        timeline.draw();
    }""")
    assert 0 < page.evaluate("window.calls") < 1500


def test_pages_are_silent_and_ask_for_nothing(visit):
    for name in ("io", "two-ranks", "old"):
        page = visit(name, ready="1" if name != "old" else None)
        page.wait_for_selector("html[data-charts-ready]", timeout=60_000)
        assert page.logged == []
        assert len(page.asked) == 1


def test_the_keyboard_reaches_every_fact(visit):
    page = visit("io")
    canvas = page.locator("canvas.timeline")
    whole = window_shown(page)
    canvas.focus()
    page.keyboard.press("n")
    assert "idle: waiting for data" in page.locator(".timeline-status").inner_text()
    assert "ended by: Memcpy HtoD" in page.locator(".timeline-status").inner_text()
    page.keyboard.press("Tab")
    assert "host-to-device" in page.locator(".timeline-status").inner_text()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    assert "Memcpy HtoD" in page.locator(".tip").inner_text()
    page.keyboard.press("Enter")
    details = page.locator(".timeline-details")
    told = details.inner_text()
    for fact in ("Memcpy HtoD", "8 ms", "38.5 MB", "500 µs before it began, by the step thread"):
        assert fact in told
    page.keyboard.press("f")
    assert window_shown(page)[1] - window_shown(page)[0] < whole[1]
    page.keyboard.press("Home")
    assert window_shown(page) == whole
    page.keyboard.press("Escape")
    assert not details.is_visible()
    page.keyboard.press("Tab")
    assert not canvas.evaluate("e => e === document.activeElement")


def test_keys_zoom_and_move(visit):
    page = visit("io")
    whole = window_shown(page)
    told = page.locator(".timeline-range").inner_text()
    assert re.match(r"[\d.]+ to [\d.]+ ms \(", told)
    assert max(map(len, re.findall(r"\.(\d+)", told))) <= 2  # of tens of ms
    page.locator("canvas.timeline").focus()
    page.keyboard.press("+")
    page.keyboard.press("+")
    near = window_shown(page)
    assert whole[0] < near[0] < near[1] < whole[1]
    page.keyboard.press("ArrowRight")
    moved = window_shown(page)
    assert moved[0] > near[0]
    assert moved[1] - moved[0] == pytest.approx(near[1] - near[0], abs=2)
    page.keyboard.press("a")
    assert window_shown(page) == pytest.approx(near, abs=2)
    page.keyboard.press("s")
    page.keyboard.press("-")
    assert window_shown(page) == pytest.approx(whole, abs=4)


def at(page, share, top):
    """A point of the canvas, by its share of the width and px from the top."""
    canvas = page.locator("canvas.timeline")
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    return box["x"] + share * box["width"], box["y"] + top


def test_mouse_zooms_moves_and_pins(visit):
    page = visit("io")
    whole = window_shown(page)
    page.mouse.move(*at(page, 0.6, 30))
    page.mouse.wheel(0, 40)
    page.evaluate(SETTLED)
    assert window_shown(page) == whole  # the bare wheel scrolls the page
    page.mouse.move(*at(page, 0.6, 30))
    page.keyboard.down("Shift")
    page.mouse.wheel(0, -200)
    page.keyboard.up("Shift")
    until(page, f"Number(document.querySelector('canvas.timeline').dataset.to) < {whole[1]}")
    near = window_shown(page)
    page.mouse.move(*at(page, 0.6, 30))
    page.mouse.down()
    page.mouse.move(*at(page, 0.5, 30), steps=4)
    page.mouse.up()
    assert window_shown(page)[0] > near[0]
    page.mouse.dblclick(*at(page, 0.5, 30))
    assert window_shown(page) == whole
    page.mouse.move(*at(page, 0.2, 36))
    assert "idle: waiting for data" in page.locator(".tip").inner_text()
    page.mouse.click(*at(page, 0.2, 36))
    assert "62 ms (62.0 % of the picture)" in page.locator(".timeline-details").inner_text()


def fingers(page):
    """What moves them: the kind of the event, then where each of them is."""
    session = page.context.new_cdp_session(page)

    def touch(kind, *points):
        places = [{"x": x, "y": y, "id": n} for n, (x, y) in enumerate(points)]
        session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": places})

    return touch


def test_fingers_zoom_and_move(visit):
    page = visit("io", viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    whole = window_shown(page)
    x, y = at(page, 0.0, 60)
    touch = fingers(page)
    touch("touchStart", (x + 150, y))
    touch("touchStart", (x + 150, y), (x + 210, y))
    touch("touchMove", (x + 120, y), (x + 240, y))
    touch("touchMove", (x + 90, y), (x + 270, y))
    touch("touchEnd")
    near = window_shown(page)
    assert near[1] - near[0] == pytest.approx((whole[1] - whole[0]) / 3, rel=0.1)
    assert near[0] < 0.5 * whole[1] < near[1]
    touch("touchStart", (x + 200, y))
    for by in (20, 40, 60):
        touch("touchMove", (x + 200 - by, y))
    touch("touchEnd")
    assert window_shown(page)[0] > near[0]


MARKED = """(share) => {
    const over = document.querySelector(".timeline-over");
    const x = Math.round(share * over.width) + 7;
    const { data } = over.getContext("2d").getImageData(x, 0, 1, over.height);
    return data.filter((value, i) => i % 4 === 3 && value).length / over.height;
}"""


def test_a_stretch_is_measured(visit):
    page = visit("io")
    page.mouse.move(*at(page, 0.0, 8))
    page.mouse.down()
    page.mouse.move(*at(page, 0.5, 8), steps=3)
    page.mouse.up()
    told = page.locator(".timeline-details").inner_text()
    assert "idle: waiting for data 100.0 %" in told
    marked = [page.evaluate(MARKED, share) for share in (0.25, 0.75)]
    assert marked[0] > 0.95 > 0.7 > marked[1]


def test_an_address_leads_to_a_view_and_follows_it(visit):
    page = visit("io", anchor="#t=10.5-30.25&rank=0&window=slowest")
    assert window_shown(page) == (10_500_000, 30_250_000)
    assert page.locator("canvas.timeline").get_attribute("data-window") == "slowest"
    assert page.locator(".timeline-windows input:checked").get_attribute("value") == "slowest"
    page.locator("canvas.timeline").focus()
    page.keyboard.press("ArrowRight")
    low, high = window_shown(page)
    until(page, "!location.hash.includes('10.5-')")
    hash = page.evaluate("location.hash")
    assert f"t={low / 1e6:.6f}-{high / 1e6:.6f}" in hash
    assert "window=slowest" in hash
    page.evaluate("location.hash = 't=1-2'")
    until(page, "document.querySelector('canvas.timeline').dataset.from === '1000000'")
    page.evaluate("location.hash = 'gaps'")
    until(page, "Math.abs(document.getElementById('gaps').getBoundingClientRect().top) < 300")
    assert page.evaluate("location.hash") == "#gaps"


@pytest.mark.parametrize("hash", ["#t=-", "#t=9-1", "#t=1e9-2e9&rank=x", "#window=none", "#t=%E0"])
def test_a_wrong_address_shows_everything(visit, hash):
    page = visit("io", anchor=hash)
    assert window_shown(page) == (0, 100 * MS)
    assert page.logged == []


def test_buttons_elsewhere_light_up_classes_and_lead_to_times(visit):
    page = visit("io")
    page.evaluate("""() => {
        for (const [name, value] of [
            ["show", "idle_data_wait,h2d"],
            ["showTime", "0:62000500-70000500"],
            ["showTime", "0:9000000000-9000000500"],
        ]) {
            const button = document.createElement("button");
            button.dataset[name] = value;
            button.textContent = value;
            document.querySelector("main").append(button);
        }
    }""")
    page.get_by_role("button", name="idle_data_wait,h2d").click()
    status = page.locator(".timeline-status")
    assert "2 stretches, 70 ms (70.0 %)" in status.inner_text()
    lit = shares_in_pixels_of(page)
    assert set(lit) & set(CLASS_COLOURS.values()) == {
        CLASS_COLOURS["idle_data_wait"],
        CLASS_COLOURS["h2d"],
    }
    page.keyboard.press("Escape")
    assert CLASS_COLOURS["forward"] in shares_in_pixels_of(page)
    page.get_by_role("button", name="0:62000500-70000500").click()
    page.wait_for_selector(".timeline-details:visible")
    assert window_shown(page) == (58 * MS, 74 * MS)
    assert "host-to-device 100.0 %" in page.locator(".timeline-details").inner_text()
    page.get_by_role("button", name="0:9000000000").click()
    page.wait_for_selector(".timeline-status:has-text('none of the iterations')")


def test_times_outside_of_the_windows_have_no_button(visit, files):
    text = (files / "io.html").read_text(encoding="utf-8")
    buttons = "".join(
        f'<button type="button" data-show-time="0:{start}-{start + 5}">{start}</button>'
        for start in (600, 7 * 10**9)
    )
    (files / "buttons.html").write_text(
        text.replace("<main>", f"<main>{buttons}").replace('<main id="', f'{buttons}<main id="'),
        encoding="utf-8",
    )
    page = visit("buttons")
    assert page.get_by_role("button", name="600", exact=True).is_visible()
    assert not page.get_by_role("button", name="7000000000").is_visible()


def shares_in_pixels_of(page):
    page.evaluate(SETTLED)
    top = page.locator("canvas.timeline").get_attribute("data-partitions").split(":")[1]
    return page.evaluate(PIXELS, [int(top), 28])


def test_ranks_are_on_one_clock_and_the_late_one_is_named(visit):
    page = visit("two-ranks")
    clock = page.locator(".timeline-clock").inner_text()
    assert "All ranks are on one clock" in clock
    assert "Rank 1 arrives last at 8 of 8 collectives" in clock
    assert "by 3.1 ms in the median" in clock
    fold = page.get_by_role("button", name="Rank 1")
    before = page.locator(".timeline-labels span").count()
    fold.click()
    assert page.locator(".timeline-labels span").count() > before
    assert page.get_by_role("button", name="Rank 1").get_attribute("aria-expanded") == "true"


def test_the_table_lists_what_is_in_view(visit):
    page = visit("io")
    page.locator("summary", has_text="Table of segments").click()
    table = page.locator(".timeline-figure details table")
    rows = table.locator("tbody tr").count()
    page.evaluate("timeline.show(62e6, 70e6)")
    page.get_by_role("button", name="List the longest segments in view").click()
    assert "longest of" in table.locator("caption").inner_text()
    assert 0 < table.locator("tbody tr").count() < rows
    table.get_by_role("button", name="Memcpy HtoD").click()
    assert "38.5 MB" in page.locator(".timeline-details").inner_text()


@pytest.mark.parametrize("name", ["damaged", "larger"])
def test_damaged_data_leaves_the_table(visit, name):
    page = visit(name, ready="failed")
    assert "The picture cannot be drawn" in page.locator("#timeline").inner_text()
    assert not page.locator("canvas.timeline").is_visible()
    page.locator("summary", has_text="Table of segments").click()
    assert page.locator("#timeline table tbody tr").count() > 5
    assert page.logged == []


def test_a_damaged_window_leaves_the_other(visit):
    page = visit("second-damaged")
    page.get_by_role("radio", name="Slowest").click()
    until(page, "document.querySelector('.timeline-status').textContent.includes('cannot')")
    assert page.get_by_role("radio", name="Typical").is_checked()
    assert page.locator("canvas.timeline").is_visible()
    assert page.logged == []


def test_a_browser_without_decompression_says_so(browser, files):
    with tabs(browser) as opened:
        page = opened(files / "old.html")
        page.context.add_init_script("delete window.DecompressionStream")
        page.goto((files / "io.html").as_uri())
        page.wait_for_selector("html[data-timelines-ready='failed']")
        assert "too old" in page.locator("#timeline").inner_text()


def test_a_report_without_pictures_says_so(visit):
    page = visit("old", ready=None)
    assert "Analyse the trace again" in page.locator("#timeline").inner_text()
    assert page.locator("canvas.timeline").count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(visit, scheme):
    page = visit("two-ranks", color_scheme=scheme, bypass_csp=True, reduced_motion="reduce")
    page.locator("canvas.timeline").focus()
    page.keyboard.press("n")
    page.keyboard.press("Enter")
    page.add_script_tag(path=AXE)
    page.evaluate("for (const e of document.querySelectorAll('#timeline details')) e.open = true")
    found = page.evaluate("axe.run('#timeline')")["violations"]
    assert [(v["id"], v["nodes"][0]["html"][:200]) for v in found] == []


@pytest.mark.parametrize("name", ["io", "two-ranks"])
def test_a_narrow_window_keeps_the_width_for_the_picture(visit, name):
    page = visit(name, viewport={"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.locator("canvas.timeline").bounding_box()["width"] > 330


def test_another_width_draws_the_same_shares(visit, drawn):
    page = visit("overhead", device_scale_factor=1)
    page.set_viewport_size({"width": 700, "height": 900})
    page.evaluate(SETTLED)
    exact = shares_of(drawn["overhead"][0], 0, 20 * MS)
    for key, share in shares_in_pixels(page)[0].items():
        assert share == pytest.approx(exact[key], abs=0.01)


def test_builders_know_their_partition():
    """The partition of a builder is what it says: an iteration in a few numbers."""
    assert made.partition_of(made.io_bound()) == {
        "idle_data_wait": 62 * MS,
        "h2d": 8 * MS,
        "forward": 10 * MS,
        "backward": 10 * MS,
        "optimizer": 10 * MS,
    }
    parts = np.array(made.communication(0).parts())
    assert parts[:, 0].sum() == 40 * MS
