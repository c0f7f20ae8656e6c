"""What a report is in a notebook: altair charts, a frame in a cell, a line in a list."""

from __future__ import annotations

import re
import subprocess
import sys
from html import unescape

import pytest

from tests.browsing import browser, tabs
from tests.every_record import every_record
from tests.lazy import Lazy
from tests.memory_records import make_memory
from tests.parsed_page import ParsedPage
from tests.report_factory import (
    make_empty_report,
    make_hostile_report,
    make_report,
    make_run,
)
from traceprobe.errors import UsageError
from traceprobe.render import notebook

__all__ = ["browser"]

altair = Lazy("altair")
REPORTS = {
    "io": lambda: make_report("io", memory=make_memory(input=0)),
    "hostile": make_hostile_report,
    "ranks": lambda: make_run(12),
}
NAMES = {
    "io": ["iterations", "steps", "memory", "memory-predicted", "memory-measured"],
    "hostile": ["iterations"],
    "ranks": ["ranks", "iterations", "steps"],
}


@pytest.mark.parametrize(("kind", "name"), [(k, name) for k in NAMES for name in NAMES[k]])
def test_every_chart_is_an_altair_chart_with_its_data(kind, name):
    chart = REPORTS[kind]().chart(name)
    assert isinstance(chart, altair.Chart | altair.LayerChart)
    spec = chart.to_dict(validate=True)
    assert spec["description"]
    assert sum(map(len, spec["datasets"].values())) > 0
    assert "currentColor" not in chart.to_json()


def test_a_chart_of_one_rank_is_chosen_by_its_number():
    report = REPORTS["ranks"]()
    assert report.chart("iterations").to_dict() == report.chart("iterations", rank=0).to_dict()
    rows = report.chart("iterations", rank=3).to_dict()["datasets"]["segments"]
    assert [row["iteration"] for row in rows][:1] == ["0"]
    with pytest.raises(UsageError, match="'iterations-99'"):
        report.chart("iterations", rank=99)


@pytest.mark.parametrize("name", ["nonsense", "", "chart-ranks", "iterations-"])
def test_an_unknown_name_is_answered_with_the_known_ones(name):
    with pytest.raises(UsageError, match=r"there are: iterations-0, steps-0$"):
        make_report("io").chart(name)
    with pytest.raises(UsageError, match="there are: none"):
        make_empty_report().chart(name)


def test_other_records_have_charts_too():
    records = every_record()
    for kind, name in (("scaling", "rates"), ("comparison", "order"), ("roofline", "roofline")):
        assert notebook.chart(records[kind], name).to_dict()["datasets"]["points"]


def framed(shown):
    """The page in the frame that a cell shows."""
    return unescape(re.search('srcdoc="([^"]*)"', shown)[1])


def test_a_frame_is_as_high_as_its_content_up_to_a_limit():
    def height(kind):
        shown = every_record()[kind]._repr_html_()
        return int(re.search(r'style="width: 100%; height: (\d+)px', shown)[1])

    assert notebook.SHORTEST < height("peaks") < height("whatif") < height("ladder")
    assert height("report") == notebook.TALLEST


def test_every_other_record_is_a_line_at_a_prompt():
    for kind, record in every_record().items():
        assert "\n" not in repr(record), kind
        assert len(repr(record)) < 400, kind
    assert repr(every_record()["roofline"]) == "<RooflineRecord: Compute decides.>"
    assert repr(every_record()["peaks"]) == "<MeasuredPeaks: peaks>"


@pytest.mark.slow
@pytest.mark.parametrize("system", ["light", "dark"])
def test_cells_are_as_dark_as_the_notebook(browser, tmp_path, system):
    report = REPORTS["io"]()
    other = {"light": "false", "dark": "true"}[system]
    path = tmp_path / "notebook.html"
    path.write_text(
        f'<title>n</title><body data-jp-theme-light="{other}">{2 * report._repr_html_()}',
        encoding="utf-8",
    )
    with tabs(browser) as open_page:
        page = open_page(path, color_scheme=system)
        turned = page.eval_on_selector_all(
            "iframe", "frames => frames.map(f => getComputedStyle(f).filter)"
        )
        assert [text.startswith("invert") for text in turned] == [True, True]
        page.evaluate("document.body.removeAttribute('data-jp-theme-light')")
        assert page.eval_on_selector("iframe", "f => getComputedStyle(f).filter") == "none"
        for frame in page.frames[1:]:
            wide = frame.evaluate("document.documentElement.scrollWidth > innerWidth")
            assert (frame.title(), wide) == (page.frames[1].title(), False)
        assert page.asked == [path.as_uri()]
        assert page.logged == []


@pytest.mark.parametrize("kind", REPORTS)
def test_a_cell_shows_verdict_and_findings_in_a_small_frame_without_scripts(kind):
    report = REPORTS[kind]()
    shown = report._repr_html_()
    assert len(shown) < 200_000
    page = ParsedPage(framed(shown))
    applying = [f for f in report.findings if f.status != "not-applicable"]
    assert {"verdict", *(f"finding-{f.id}" for f in applying)} <= set(page.ids)
    assert page.tags["script"] == page.tags["button"] == 0
    assert "allow-scripts" not in shown.rpartition("sandbox")[2]


@pytest.mark.parametrize(
    ("made", "line"),
    [
        (make_report, "<Report: I/O-bound, 765 ms a step, 1 rank, 12 steps>"),
        (REPORTS["ranks"], "<Report: Communication-bound, 100 ms a step, 12 ranks, 12 steps>"),
        (make_empty_report, "<Report: Inconclusive, no steps, 1 rank, 0 steps>"),
    ],
)
def test_its_representation_is_one_line(made, line):
    report = made()
    assert repr(report) == str(report) == line


def test_a_cell_is_shown_without_the_chart_library():
    code = (
        "import sys; from tests.report_factory import make_report;"
        "make_report('io')._repr_html_(); sys.exit('altair' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
