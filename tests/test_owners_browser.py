"""Who owns the time, on the page in a real browser: the rows are the tree, in table and picture."""

from __future__ import annotations

import csv
import io
import itertools
import re

import msgspec
import polars as pl
import pytest

import traceprobe
from tests.analyses import report_of
from tests.browsing import AXE, browser, open_folds, tabs
from tests.builders import kineto
from tests.builders.scenario import AUTOGRAD, Script
from tests.builders.trees import tree_of
from tests.conftest import ROOT
from tests.rendering import html_of
from tests.report_factory import make_report
from traceprobe.formatting import ms
from traceprobe.model.taxonomy import BUSY
from traceprobe.records.owners import owners

__all__ = ["browser"]

pytestmark = pytest.mark.slow
HOSTILE = "<img src=x onerror=alert(1)>&amp;</script>"
ARABIC = "\u202e\u0639\u0627\u0645\u0644\u202c \u0627\u0644"
LONG = "x" * 10_000
MS = 1_000_000


def network():
    """A module in a module, its line, operators of both passes, a call that waits."""
    script = Script()
    script.operator("nn.Module: Net_0", 1_000, 9_000)
    script.operator("nn.Module: Linear_0", 2_000, 5_000)
    script.operator("aten::linear", 2_100, 4_900, sequence=6, forward_thread=0)
    script.operator("aten::addmm", 2_200, 4_800, sequence=7, forward_thread=0)
    script.op("kernel", 3_000, 4_000, (2_300, 2_400), name="gemm")
    backward = {"thread": AUTOGRAD, "sequence": 7, "forward_thread": 1}
    script.operator("AddmmBackward0", 10_100, 11_900, **backward)
    script.op("kernel", 11_000, 13_000, (10_500, 10_600), name="gemm_t", thread=AUTOGRAD)
    script.operator("aten::item", 13_100, 16_000)
    script.call("cudaStreamSynchronize", 13_200, 15_000)
    script.op("kernel", 18_000, 19_000, (17_000, 17_100), name="last")
    return script


def with_tree(paths):
    """A report of which the rank has this tree, and a window as long as it."""
    report = make_report("overhead")
    rank = msgspec.structs.replace(report.ranks[0], tree=tree_of(paths))
    return msgspec.structs.replace(report, ranks=[rank])


def many():
    paths = []
    for n in range(3_000):
        path = ("module", f"block{n // 100}"), ("module", f"layer{n // 10}"), ("kernel", f"k{n}")
        paths.append(("forward" if n % 3 else "idle_host", path, (n + 1) * 100, 1))
    return with_tree(paths)


def hostile():
    names = (HOSTILE, ARABIC, LONG, "", "__proto__", "constructor", "a\nb\tc\x00d")
    return with_tree(
        [
            ("forward", (("operator", name), ("kernel", name)), MS * (n + 1), 1)
            for n, name in enumerate(names)
            if name
        ]
        + [("idle_sync", (("unknown", ""),), MS, 0), ("backward", (("other", ""),), MS, 3)]
    )


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    folder = tmp_path_factory.mktemp("network")
    trace = kineto.write(network().build(), folder / "t.json")
    samples = ROOT / "sample_traces"
    bare = make_report("io")
    ranks = [msgspec.structs.replace(rank, tree=msgspec.UNSET) for rank in bare.ranks]
    return {
        "unet": report_of(samples / "h200_unet_w1.json.gz"),
        "two": report_of(*sorted(samples.glob("h200_collectives.rank*.json.gz"))),
        "network": traceprobe.analyze(traceprobe.load(trace)),
        "many": many(),
        "hostile": hostile(),
        "bare": msgspec.structs.replace(bare, ranks=ranks),
    }


@pytest.fixture(scope="module")
def files(tmp_path_factory, reports):
    folder = tmp_path_factory.mktemp("owners")
    for name, report in reports.items():
        (folder / f"{name}.html").write_text(html_of(report), encoding="utf-8")
    page = (folder / "network.html").read_text(encoding="utf-8")
    damaged = re.sub(r'("nodes":\{"data":")[^"]{8}', r"\1AAAAAAAA", page)
    assert damaged != page
    (folder / "damaged.html").write_text(damaged, encoding="utf-8")
    return folder


@pytest.fixture
def visit(browser, files):
    with tabs(browser) as opened:

        def open_page(name, ready="1", **options):
            page = opened(files / f"{name}.html", **options)
            page.wait_for_selector("html[data-timelines-ready]", timeout=60_000)
            page.locator("#kernels > details > summary").click()
            page.locator(".owners").scroll_into_view_if_needed()
            page.wait_for_selector(f"html[data-owners-ready='{ready}']", timeout=60_000)
            return page

        yield open_page


def by(page, what):
    page.locator(".owners-tools select").last.select_option(what)


def rows(page):
    """The text of the cells of each row that is shown."""
    return page.evaluate("""() => [...document.querySelectorAll(".owners-table tbody tr")].map(
        (row) => [row.querySelector("bdi").textContent,
                  ...[...row.querySelectorAll("td")].map((cell) => cell.textContent)])""")


def titles(page):
    cells = page.locator(".owners-table thead th").all_inner_texts()
    return [cell.removesuffix(" ▼").strip() for cell in cells]


def level_of(page, text):
    row = page.locator(".owners-table tbody tr", has_text=text).first
    return int(row.get_attribute("aria-level"))


@pytest.mark.parametrize("name", ["unet", "two", "network"])
def test_the_rows_are_the_tree(visit, reports, name):
    page = visit(name)
    assert page.logged == []
    rank, tree = reports[name].rank_with_tree()
    steps = rank.summary.steps
    by(page, "operator")
    at = {title.partition(",")[0]: n for n, title in enumerate(titles(page))}
    shown = {row[0]: (row[at["busy"]], row[at["idle"]]) for row in rows(page) if row[0]}
    expected = (
        owners(tree, "operator")
        .group_by(pl.col("owner").fill_null("(no operator)"))
        .agg(pl.col("busy_ns", "idle_ns").sum())
    )
    top = page.locator(".owners-table tbody tr[aria-level='1'] bdi").all_inner_texts()
    assert {t.strip() for t in top} == {n.strip() for n in expected["owner"].to_list()}
    for owner, busy, idle in expected.rows():
        assert shown[owner] == (ms(busy / steps), ms(idle / steps)), owner


def test_all_of_a_step_is_told(visit, reports):
    page = visit("unet")
    summary = reports["unet"].ranks[0].summary
    busy = sum(summary.partition_ns[key] or 0 for key in BUSY) / summary.steps
    idle = summary.window_ns / summary.steps - busy
    assert page.locator(".owners-trail").inner_text().startswith(f"All: {ms(busy)} ms a step")
    page.get_by_label("idle time", exact=True).check()
    assert page.locator(".owners-trail").inner_text().startswith(f"All: {ms(idle)} ms a step")


BARS = """() => [...document.querySelectorAll(".icicle > div")].map((bar) => {
    const box = bar.getBoundingClientRect();
    const { left, width } = box;
    return { ns: Number(bar.dataset.ns), left, width, top: Math.round(box.top) };
})"""


@pytest.mark.parametrize("mode", ["GPU time", "idle time"])
@pytest.mark.parametrize("name", ["unet", "many"])
def test_bars_are_as_long_as_their_time_and_inside_what_they_belong_to(visit, name, mode):
    page = visit(name)
    page.get_by_label(mode, exact=True).check()
    whole, *bars = page.evaluate(BARS)
    assert len(bars) > 5
    for bar in bars:
        assert bar["width"] == pytest.approx(whole["width"] * bar["ns"] / whole["ns"], abs=1)
    for top in {bar["top"] for bar in bars}:
        level = sorted((b for b in bars if b["top"] == top), key=lambda b: b["left"])
        for one, other in itertools.pairwise(level):
            assert one["left"] + one["width"] <= other["left"] + 0.1
        above = [b for b in [whole, *bars] if b["top"] == top - 22]
        for bar in level:
            assert any(
                a["left"] - 0.1 <= bar["left"]
                and bar["left"] + bar["width"] <= a["left"] + a["width"] + 0.1
                for a in above
            )


def test_a_bar_is_enlarged_and_the_way_back_is_there(visit):
    page = visit("unet")
    page.locator(".icicle > div", has_text="forward").first.click()
    trail = page.locator(".owners-trail")
    assert "forward" in trail.inner_text()
    whole = page.evaluate(BARS)[0]
    assert whole["width"] == pytest.approx(page.locator(".icicle").bounding_box()["width"], abs=1)
    assert page.locator(".owners-chosen h4").inner_text() == "forward"
    row = page.locator(".owners-table tr[aria-selected='true']")
    assert row.locator("bdi").inner_text() == "forward"
    trail.get_by_role("button", name="All").click()
    assert trail.inner_text().startswith("All:")


def test_keys_open_close_and_move(visit):
    page = visit("network")
    by(page, "module")
    focused = "document.activeElement.getAttribute('aria-%s')"
    page.locator(".owners-table tbody tr", has_text="Net_0").focus()
    assert page.evaluate(focused % "expanded") == "false"
    count = len(rows(page))
    page.keyboard.press("ArrowRight")
    assert page.evaluate(focused % "expanded") == "true"
    assert len(rows(page)) > count
    page.keyboard.press("ArrowRight")
    assert page.evaluate(focused % "level") == "2"
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowUp")
    while page.evaluate(focused % "level") != "1":
        page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    assert len(rows(page)) == count
    assert page.evaluate(focused % "expanded") == "false"
    page.keyboard.press("End")
    last = page.evaluate("document.activeElement.rowIndex")
    assert last == len(rows(page))
    assert page.locator(".owners-table tbody tr[tabindex='0']").count() == 1
    assert page.locator(".owners-chosen h4").inner_text() == rows(page)[-1][0]


def test_a_search_leaves_what_it_finds_and_what_that_is_in(visit):
    page = visit("many")
    box = page.get_by_role("searchbox", name="Search: Who owns the time")
    box.fill("layer123")
    assert [row[0] for row in rows(page)] == ["block12", "layer123"]
    page.locator(".owners-table tbody th", has_text="layer123").click()
    assert [row[0] for row in rows(page)][2:] == [f"k{n}" for n in range(1239, 1229, -1)]
    box.fill("nothing like it")
    assert rows(page) == []
    box.fill("")
    assert {row[0] for row in rows(page)} == {f"block{n}" for n in range(30)}


def test_rows_are_sorted_by_any_column(visit):
    page = visit("many")
    page.get_by_role("button", name="owner", exact=True).click()
    names = [row[0] for row in rows(page)]
    assert names == sorted(names)
    page.get_by_role("button", name="operations", exact=True).click()
    counts = [float(row[-2]) for row in rows(page)]
    assert counts == sorted(counts, reverse=True)


def test_a_search_over_thousands_of_nodes_makes_few_rows(visit):
    page = visit("many")
    page.get_by_role("searchbox", name="Search: Who owns the time").fill("k")
    assert len(rows(page)) == 300
    more = page.get_by_role("button", name="Show more of 3,330 rows")
    more.click()
    assert len(rows(page)) == 600


def test_what_is_shown_is_copied(visit):
    page = visit("unet")
    page.evaluate("navigator.clipboard.writeText = (text) => { window.copied = text; }")
    page.get_by_role("button", name="Copy CSV: Who owns the time").click()
    head, *table = csv.reader(io.StringIO(page.evaluate("window.copied")))
    assert head == titles(page)
    assert [row[1:] for row in table] == [row[1:] for row in rows(page)]
    page.get_by_role("button", name="Copy Markdown: Who owns the time").click()
    assert page.evaluate("window.copied").startswith("| owner |")


LIT = """() => timeline.model().ranks.flatMap((rank) => rank.lanes.flatMap((lane) =>
    [...(lane.lit ?? [])].flatMap((lit, n) => {
        if (!lit || lane.kind === "parts") return [];
        const table = rank.data[lane.kind === "ops" ? "ops" : "host"];
        return [`${lane.kind} ${rank.picture.names[table.name[lane.rows[n]]]}`];
    }))).sort()"""


@pytest.mark.parametrize(
    ("what", "name", "expected"),
    [
        ("operator", "AddmmBackward0", ["host AddmmBackward0", "ops gemm_t"]),
        ("operator", "aten::addmm", ["host aten::addmm", "ops gemm"]),
        ("operator", "aten::item", ["calls cudaStreamSynchronize", "host aten::item"]),
        ("kernel", "gemm_t", ["ops gemm_t"]),
    ],
)
def test_an_owner_is_lit_up_in_the_timeline(visit, what, name, expected):
    page = visit("network")
    by(page, what)
    page.locator(".owners-table tbody tr td").first.wait_for()
    page.locator(f".owners-table tbody th:has(bdi:text-is('{name}'))").first.click()
    page.get_by_role("button", name="Show in the timeline", exact=True).click()
    assert page.evaluate(LIT) == expected
    assert page.locator(".timeline-status").inner_text().startswith(f"Lit up: {name}.")
    page.keyboard.press("Escape")
    assert page.evaluate(LIT) == []


def test_what_the_picture_does_not_have_is_said(visit):
    page = visit("many")
    page.locator(".owners-table tbody th").first.click()
    page.get_by_role("button", name="Show in the timeline", exact=True).click()
    assert "none of it is in this iteration" in page.locator(".timeline-status").inner_text()


def test_every_rank_with_a_tree_is_there(visit, reports):
    page = visit("two")
    page.get_by_label("Rank", exact=True).select_option(label="1")
    summary = reports["two"].ranks[1].summary
    busy = sum(summary.partition_ns[key] or 0 for key in BUSY) / summary.steps
    page.locator(".owners-trail", has_text=f"All: {ms(busy)} ms a step").wait_for()
    assert page.logged == []


def test_names_of_anybody_do_nothing(visit):
    page = visit("hostile")
    for what in ("operator", "kernel"):
        by(page, what)
        for row in page.locator(".owners-table tbody tr[aria-level='1'] th").all():
            row.click()
        assert page.locator(".owners img, .owners script").count() == 0
        assert {HOSTILE, "__proto__", "constructor", "a b cd"} <= {row[0] for row in rows(page)}
    assert page.logged == []
    width = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    assert width <= 0


def test_a_damaged_tree_says_so(visit):
    page = visit("damaged", ready="failed")
    assert "cannot be drawn" in page.locator(".owners").inner_text()
    assert page.locator("#kernels table").count() >= 1


def test_a_report_without_a_tree_has_none(browser, files):
    with tabs(browser) as opened:
        page = opened(files / "bare.html")
        assert page.locator(".owners").count() == 0
        assert page.logged == []


@pytest.mark.parametrize("name", ["unet", "two", "hostile"])
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (390, "light")])
def test_axe_finds_nothing(visit, name, width, scheme):
    page = visit(
        name, viewport={"width": width, "height": 800}, color_scheme=scheme, bypass_csp=True
    )
    page.locator(".owners-table tbody th").first.click()
    page.add_script_tag(path=AXE)
    open_folds(page)
    found = page.evaluate("axe.run('.owners')")["violations"]
    assert [(v["id"], v["nodes"][0]["html"][:200]) for v in found] == []
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
