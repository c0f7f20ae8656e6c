"""What every output of a report promises, whatever the report holds."""

from __future__ import annotations

import base64
import json
import re
import subprocess
import sys
import zlib
from collections import Counter
from functools import cache

import msgspec
import pytest

from tests.lazy import Lazy
from tests.parsed_page import ParsedPage
from tests.rendering import html_of, markdown_of, terminal_of
from tests.report_factory import (
    HOSTILE,
    MS,
    PARTITIONS,
    make_ablation,
    make_empty_report,
    make_hostile_ablation,
    make_hostile_report,
    make_rank,
    make_report,
    make_run,
)
from traceprobe.formatting import clean, duration, percent, shorten, significant
from traceprobe.records.base import compact_json
from traceprobe.records.rank import Iteration
from traceprobe.records.report import Report
from traceprobe.render import gfm
from traceprobe.render.bars import partition_bar, segments, share_bar
from traceprobe.render.html import DOCUMENTATION, vendored_scripts
from traceprobe.render.pages import report_iterations as iterations
from traceprobe.render.ranks_in_detail import ranks_in_detail
from traceprobe.render.resources import templates_dir
from traceprobe.verdict.finding_order import in_order

altair = Lazy("altair")
specs = Lazy("traceprobe.render.chart_specs")  # which imports altair

NAMES = (
    *(*PARTITIONS, "empty", "hostile", "two-ranks", "many-ranks"),
    *("ablated", "hostile-ablation"),
)


@cache
def report_named(name):
    """A report by the name of what is special about it."""
    made = {
        "empty": make_empty_report,
        "hostile": make_hostile_report,
        "two-ranks": lambda: make_run(2),
        "many-ranks": lambda: make_run(64, straggler=40),
        "ablated": lambda: make_report("compute", ablation=make_ablation("communication")),
        "hostile-ablation": lambda: make_report("io", ablation=make_hostile_ablation()),
    }
    return made[name]() if name in made else make_report(name)


@pytest.fixture(scope="module", params=NAMES, ids=str)
def case(request: pytest.FixtureRequest) -> tuple[Report, str]:
    report = report_named(request.param)
    return report, html_of(report)


def applying(report):
    """Findings that a page prints."""
    return [finding for finding in report.findings if finding.status != "not-applicable"]


def test_page_is_well_formed_and_holds_its_sections(case):
    report, text = case
    page = ParsedPage(text)
    assert not [i for i, n in Counter(page.ids).items() if n > 1]
    expected = {"verdict", "time", "findings", "quality", "provenance"}
    expected |= {"ablation"} if report.ablation else set()
    expected |= {"gaps"} if any(rank.gaps for rank in report.ranks) else set()
    expected |= {f"finding-{finding.id}" for finding in applying(report)}
    assert expected <= set(page.ids)
    assert not {f"finding-{f.id}" for f in report.findings if f not in applying(report)} & set(
        page.ids
    )


def test_page_asks_the_network_for_nothing(case):
    report, text = case
    page = ParsedPage(text)
    links = re.findall(r'<a [^>]*href="(https?:[^"]*)"', text)
    pages = {link for link in links if link.startswith(f"{DOCUMENTATION}findings.md#")}
    assert len(pages) == len(applying(report))
    assert set(links) - pages <= {"https://ui.perfetto.dev"}
    rest = [a for a in page.addresses if a not in links]
    assert all(a.startswith("#") or a == "data:," for a in rest), rest
    assert page.tags["img"] == page.tags["iframe"] == page.tags["object"] == 0
    assert "default-src 'none'" in text
    assert "unsafe-eval" not in text.split("</head>")[0]


def test_names_cannot_become_markup(case):
    _, text = case
    page = ParsedPage(text)
    assert not {a for a in page.attributes if a.startswith("on")}
    charts, timeline = page.json["traceprobe-charts"] != "[]", "canvas" in page.tags
    owners = 'class="owners"' in text
    assert page.tags["script"] == 5 + charts + timeline + owners + (timeline or owners)


def read(text):
    """A report that was made to hurt, which contradicts itself."""
    return msgspec.json.decode(text, type=Report)


def test_embedded_report_is_the_report(case):
    report, text = case
    embedded = ParsedPage(text).json["traceprobe-report"]
    assert read(embedded) == read(compact_json(report))
    assert not set("<>&") & set(embedded)


def test_rebuilding_from_json_changes_no_byte(case):
    report, text = case
    again = read(report.to_json())
    assert html_of(again) == text
    assert markdown_of(again) == markdown_of(report)
    assert terminal_of(again, 80, True) == terminal_of(report, 80, True)


def test_the_chart_specs_are_what_altair_writes():
    path = templates_dir() / "charts.json"
    assert path.read_text(encoding="utf-8") == specs.render()


@pytest.mark.slow
def test_charts_are_valid_specs_with_named_data_and_few_marks(case):
    _, text = case
    payload = json.loads(ParsedPage(text).json["traceprobe-charts"])
    for chart in payload:
        altair.Chart.from_dict(chart["spec"], validate=True)
        names = set(re.findall(r'"name": "(\w+)"', json.dumps(chart["spec"]))) - {"zoom"}
        assert names == set(chart["data"])
        for columns in chart["data"].values():
            assert len({len(values) for values in columns.values()}) == 1
        assert sum(len(next(iter(c.values()))) for c in chart["data"].values()) < 5000
        assert chart["description"]


def test_page_stays_small(case):
    report, text = case
    assert len(text.encode()) < (6e6 if len(report.ranks) > 8 else 3e6)


def test_markdown_fits_an_issue_comment(case):
    report, _ = case
    text = markdown_of(report)
    assert len(text.splitlines()) <= 60
    assert len(text) < 65_536
    assert text.count("<details>") == text.count("</details>")


@pytest.mark.parametrize("width", [40, 80, 200])
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
@pytest.mark.parametrize("name", NAMES)
def test_terminal_keeps_to_its_width_and_encoding(name, encoding, width):
    text = terminal_of(report_named(name), width, False, encoding)
    text.encode(encoding)
    assert "\x1b" not in text
    # An emoji is two columns wide in one character, so characters never exceed columns.
    assert max(len(line) for line in text.splitlines()) <= width


def test_terminal_colours_only_when_asked():
    plain = terminal_of(report_named("io"), 80, False)
    coloured = terminal_of(report_named("io"), 80, True)
    assert "\x1b[" in coloured
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == plain


def test_terminal_escapes_in_names_do_not_reach_the_terminal():
    text = terminal_of(report_named("hostile"), 80, True)
    assert re.sub(r"\x1b\[[0-9;]*m", "", text).isprintable() is False  # line ends only
    rest = re.sub(r"\x1b\[[0-9;]*m|\n", "", text)
    assert not re.search(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", rest)
    assert "owned" not in rest


def test_verdict_is_told_without_scripts():
    text = html_of(report_named("io"))
    before_scripts = text.split('<script type="application/json"')[0]
    told = ("I/O-bound", "High confidence (82 %)", "Confidence 82 %", "margin", "86.0 %", "100.0 %")
    for words in (*told, "io decides"):
        assert words in before_scripts


SECTIONS = ("verdict", "findings", "timeline", "time", "iterations", "kernels", "ranks", "quality")


@pytest.mark.parametrize("name", ["io", "communication", "two-ranks", "ablated"])
def test_the_story_is_told_in_its_order(name):
    ids = ParsedPage(html_of(report_named(name))).ids
    places = [ids.index(section) for section in SECTIONS]
    assert places == sorted(places)


def test_fixes_come_first_and_the_rest_is_folded():
    states = [f.status for f in in_order(make_report().findings)]
    assert states == ["fail", "warn", "inconclusive", "pass", "not-applicable"]
    text = html_of(report_named("io"))
    fix = text.index('<article class="finding fix fail" id="finding-data-wait"')
    assert fix < text.index('id="finding-tensor-cores"') < text.index('id="findings-passed"')
    assert text.index('id="findings-passed"') < text.index('id="finding-overlap-communication"')
    assert "up to <b>635 ms</b> a step" in text  # more than the step without the profiler
    report = report_named("io")
    quality = msgspec.structs.replace(report.quality, observer_effect=None)
    text = html_of(msgspec.structs.replace(report, quality=quality))
    assert "up to <b>−83 %</b>: 635 of 765 ms a step" in text


def test_shares_are_told_once():
    text = html_of(report_named("io")).split('<script type="application/json"')[0]
    assert "Shares as captured" not in text
    assert text.count(">83.0 %<") == 2  # in the bar of the partition and in its legend


def test_the_library_of_the_charts_is_packed_and_there_only_with_charts():
    kept = (templates_dir() / "vendor" / "library.txt").read_text(encoding="utf-8")
    assert zlib.decompress(base64.b64decode(kept)).decode() == vendored_scripts()
    assert kept in html_of(report_named("io"))
    assert kept not in html_of(report_named("empty"))
    assert len(html_of(report_named("io")).encode()) < 6e5


def test_a_report_of_an_older_version_still_has_a_page():
    record = json.loads(report_named("two-ranks").to_json())
    for finding in record["findings"]:
        for field in ("rule", "verify", "saving_of"):
            finding.pop(field, None)
    for rank in record["ranks"]:
        for field in ("worst", "picture", "replay", "long", "speed", "tree"):
            rank.pop(field, None)
    for field in ("ablation", "memory", "roofline"):
        record.pop(field, None)
    for field in ("limit", "skew"):
        record["verdict"].pop(field, None)
    page = ParsedPage(html_of(Report.from_json(json.dumps(record))))
    assert set(SECTIONS) <= set(page.ids)


def test_equal_savings_keep_the_order_of_the_report():
    first, second = (f for f in make_report().findings if f.saving_ms_per_step is None)
    assert in_order([second, first])[0].status == "inconclusive"


def test_skipped_iterations_are_marked_with_their_reason():
    text = html_of(report_named("io"))
    assert "no: warm-up" in text
    assert "skipped: no end in the capture" in text


def test_what_was_not_observed_is_no_zero():
    rank = make_rank(PARTITIONS["io"])
    rank = msgspec.structs.replace(
        rank, summary=msgspec.structs.replace(rank.summary, step_ms=None, h2d=None)
    )
    page = html_of(make_report(ranks=[rank]))
    assert "Host to device" not in page
    assert "median (ms)" not in page


def test_straggler_is_always_among_the_ranks_in_detail():
    shown = [rank.rank for rank in ranks_in_detail(report_named("many-ranks"))]
    assert shown == [0, 1, 2, 3, 4, 5, 6, 40]
    assert "Without pictures here: rank 7–39, 41–63." in html_of(report_named("many-ranks"))


@pytest.mark.slow
def test_a_thousand_ranks_stay_one_page():
    report = make_run(1024, straggler=700)
    text = html_of(report)
    page = ParsedPage(text)
    (cells,) = (
        c["data"]["cells"]
        for c in json.loads(page.json["traceprobe-charts"])
        if c["id"] == "chart-ranks"
    )
    assert len(cells["rank"]) < 5000
    assert {"0–3", "700–703", "1020–1023"} <= set(cells["rank"])
    before_scripts = text.split('<script type="application/json"')[0]
    assert len(before_scripts) < 1_500_000
    assert "rank 700" in before_scripts


def test_hostile_names_are_inert_in_markdown():
    text = markdown_of(report_named("hostile"))
    assert not re.search(r"<(?!/?(details|summary)>)", text)
    outside_code = re.sub(r"(?<!\\)`[^`\n]+`", "", text)
    assert not re.search(r"@\w|#\d|https?://\w|(?<!\\)`|[^\\]\[x\]", outside_code)
    assert "\u202e" not in text


@pytest.mark.parametrize(
    ("text", "literal"),
    [
        ("a_b", "a_b"),
        ("_a_", r"\_a\_"),
        ("*x*", r"\*x\*"),
        ("- item", r"\- item"),
        ("1. item", r"1\. item"),
        ("1.5 ms at -3", "1.5 ms at -3"),
        ("set `num_workers` to @four", "set `num_workers` to @\u200bfour"),
        ("one ` tick", r"one \` tick"),
        ("a | b", r"a \| b"),
        ("std::vector<float>", "std::vector&lt;float&gt;"),
        ("www.a.example", "w\u200bww.a.example"),
    ],
)
def test_markdown_escape(text, literal):
    assert gfm.prose(text) == literal


def test_bars_add_up():
    partition = {**dict.fromkeys(PARTITIONS["io"]), "forward": 1, "backward": 1, "h2d": 1}
    bar = segments(partition_bar("", partition))
    assert [s.text for s in bar] == ["33.3 %"] * 3
    assert bar[-1].start + bar[-1].width == pytest.approx(100)
    assert segments(share_bar("", {})) == []
    assert len(segments(share_bar("", {"io": 1.0}))) == 5


def test_a_share_reads_the_same_in_a_bar_as_in_a_sentence():
    """Rounded so that they add up to 100.0 %, the first would be 56.9 %."""
    shares = {"io": 0.568451, "overhead": 0.011108, "compute": 0.42044}
    texts = {segment.text for segment in segments(share_bar("", shares))}
    assert texts == {*map(percent, shares.values()), "0.0 %"}
    assert "56.8 %" in texts
    nothing = segments(share_bar("", {"io": 0.0}))
    assert {segment.text for segment in nothing} == {"0.0 %"}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (765.4, "765"),
        (42.06, "42.1"),
        (99.97, "100"),
        (7.315, "7.32"),
        (0.5, "0.500"),
        (0.0123, "0.0123"),
        (1234.5, "1,234"),
        (-42.06, "-42.1"),
    ],
)
def test_significant(value, text):
    assert significant(value) == text


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [
        (None, "—"),
        (0, "0 ms"),
        (900, "0.900 µs"),
        (42_100_000, "42.1 ms"),
        (12_300_000_000, "12.3 s"),
    ],
)
def test_duration(nanoseconds, text):
    assert duration(nanoseconds) == text


def test_clean_takes_out_what_steers_a_terminal_or_the_reading_order():
    assert clean("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\ \x1b[1;31mred\x1b[0m") == "link red"
    assert clean("\u202egnp.exe\u2066") == "gnp.exe"
    assert clean("a\n\tb\x00") == "a b"
    assert clean("naïve 模型 مرحبا") == "naïve 模型 مرحبا"


@pytest.mark.parametrize("name", HOSTILE)
def test_shorten_stays_within_its_limit(name):
    assert len(shorten(name, 40)) <= 40
    assert shorten(name, 40).isprintable()


def test_long_captures_share_bars_without_mixing_used_and_skipped():
    base = make_rank(PARTITIONS["io"]).iterations[1]
    many = [
        Iteration(**{**msgspec.structs.asdict(base), "index": i, "used": i % 2 == 0})
        for i in range(1000)
    ]
    rank = msgspec.structs.replace(make_rank(PARTITIONS["io"]), iterations=many)
    bars = iterations.iteration_bars(rank, 100)
    assert len(bars) == 200
    assert len({bar.label for bar in bars}) == 200
    assert bars[0].label == "0 to 8"
    assert bars[0].partition_ns["idle_data_wait"] == 635 * MS


def test_the_page_copies_the_markdown_that_is_written_to_a_file(case):
    report, text = case
    assert json.loads(ParsedPage(text).json["traceprobe-markdown"]) == report.to_markdown()


def test_ranks_are_compared_where_there_are_several():
    charts_of = {
        n: json.loads(ParsedPage(html_of(make_run(n))).json["traceprobe-charts"]) for n in (1, 4)
    }
    assert "chart-ranks" not in {chart["id"] for chart in charts_of[1]}
    (cells,) = (c["data"]["cells"] for c in charts_of[4] if c["id"] == "chart-ranks")
    for rank in range(4):
        shares = [s for r, s in zip(cells["rank"], cells["share"], strict=True) if r == str(rank)]
        assert sum(shares) == pytest.approx(1, abs=1e-3)


def test_vendored_libraries_are_those_altair_writes_for():
    versions = json.loads((templates_dir() / "vendor" / "VERSIONS.json").read_text())
    found = {record["package"]: record["version"] for record in versions["load_order"]}
    wanted = altair.SCHEMA_VERSION.removeprefix("v")
    assert found["vega-lite"].split(".")[:2] == wanted.split(".")[:2]
    assert found["vega"].split(".")[0] == str(altair.VEGA_VERSION).split(".")[0]
    assert found["vega-embed"].split(".")[0] == str(altair.VEGAEMBED_VERSION).split(".")[0]


def test_vendored_libraries_can_stand_in_a_script_and_carry_their_licences():
    text = vendored_scripts()
    assert "</script" not in text.lower()
    assert "<!--" not in text
    assert text.count("Redistribution and use") >= 3
    assert all(p.stat().st_size < 2_000_000 for p in templates_dir().rglob("*") if p.is_file())


def test_importing_the_renderers_loads_no_chart_library():
    code = (
        "import sys; import traceprobe.render; import traceprobe.render.pages.report;"
        "print([m for m in ('altair', 'pandas', 'torch') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_collectives_are_shown_with_their_size_and_the_sign_of_a_lower_bound():
    report = make_report("communication")
    page = report.to_html()
    assert "<h3>Collectives</h3>" in page
    for text in ("all-reduce", "28.4", "send-recv", "≥ 9.45", "1 more left out"):
        assert text in page
    assert "- rank 0: 11.0 × all-reduce of 28.4 MB a step: 22.0 ms exposed" in report.to_markdown()
    assert "× all-reduce" not in make_report("io").to_markdown()


@pytest.mark.parametrize(("encoding", "times"), [("utf-8", "×"), ("ascii", "x")])
def test_the_terminal_shows_what_is_sent_where_communication_is_notable(encoding, times):
    said = terminal_of(make_report("communication"), 200, False, encoding, verbose=True)
    assert f"rank 0: 11.0 {times} all-reduce of 28.4 MB a step: 22.0 ms exposed" in said
    assert "all-reduce" not in terminal_of(make_report("io"), 200, False, encoding, verbose=True)
