"""What the page says of a timeline without scripts: a sentence, a legend, a table."""

from __future__ import annotations

import msgspec
import pytest

from tests.builders import pictures as made
from tests.report_factory import make_empty_report, make_report, make_run
from traceprobe.model.taxonomy import PARTITION
from traceprobe.records.picture import Picture
from traceprobe.render.document import Timeline
from traceprobe.render.pages import report_timeline as module

MS = made.MS


def report_of(*canvases):
    report = make_run(len(canvases)) if len(canvases) > 1 else make_report("overhead")
    ranks = [
        msgspec.structs.replace(rank, picture=canvas.picture(canvas.window()))
        for rank, canvas in zip(report.ranks, canvases, strict=True)
    ]
    return msgspec.structs.replace(report, ranks=ranks)


def timeline_of(report, ranks=None):
    section = module.timeline_section(report, report.ranks if ranks is None else ranks)
    assert section.id == "timeline"
    [timeline] = section.blocks
    assert isinstance(timeline, Timeline)
    return timeline


def test_the_sentence_tells_the_partition():
    timeline = timeline_of(report_of(made.io_bound()))
    assert timeline.summary.startswith(
        "Iteration 3 (a typical one) takes 100 ms, and the GPU is busy for 38.0 % of it. Most of "
        "the rest, 62.0 %, is “idle: waiting for data”"
    )
    assert "All 301 GPU operations" in timeline.summary


def test_a_cpu_is_no_gpu():
    report = report_of(made.io_bound())
    on_cpu = [
        msgspec.structs.replace(r, device=msgspec.structs.replace(r.device, kind="cpu"))
        for r in report.ranks
    ]
    timeline = timeline_of(msgspec.structs.replace(report, ranks=on_cpu))
    assert "and operators run for 38.0 % of it" in timeline.summary
    assert "GPU" not in timeline.summary
    lanes = {row[3] for row in timeline.table.rows}
    assert "thread 7" in lanes
    assert not any(lane.startswith("stream") for lane in lanes)


def test_the_partition_is_that_of_the_picture():
    canvas = made.overhead_bound()
    window = canvas.window()
    assert module.partition_of(canvas.picture(window), window) == made.partition_of(canvas)


def test_ranks_are_those_in_detail_by_their_place_in_the_report():
    report = report_of(*made.two_ranks())
    timeline = timeline_of(report, report.ranks[1:])
    assert list(timeline.ranks) == [1]
    assert list(timeline_of(report).ranks) == [0, 1]
    assert "of rank 0" in timeline_of(report).summary


def test_the_legend_has_what_occurs_and_the_labels_have_everything():
    timeline = timeline_of(report_of(made.io_bound()))
    words = [word for word, _ in timeline.legend]
    assert "idle: waiting for data" in words
    assert "communication" not in words
    assert "waiting CUDA call" not in words
    host, path = ("range", "operator", "call", "wait"), ("host", "data-wait", "launch", "delay")
    assert {*PARTITION, *host, *path, "other"} == set(timeline.labels)
    assert all(len(entry) == 3 for entry in timeline.labels.values())
    assert all(meaning for key, (_, _, meaning) in timeline.labels.items() if key != "other")


def test_the_table_has_the_longest_in_the_order_of_time():
    table = timeline_of(report_of(made.io_bound())).table
    assert len(table.rows) == module.MAX_TABLE_ROWS
    starts = [float(row[0].removesuffix(" ms")) for row in table.rows]
    assert starts == sorted(starts)
    idle = next(row for row in table.rows if row[4] == "idle: waiting for data")
    assert idle[:3] == ["0.0000 ms", "62.0 ms", "0"]
    copy = next(row for row in table.rows if row[5] == "Memcpy HtoD")
    assert copy[:2] == ["62.0000 ms", "8.00 ms"]
    rows = 1 + 301 + sum(1 for _ in made.io_bound().host)
    assert table.caption == f"40 longest of {rows:,} segments"


def test_an_older_report_says_why_there_is_none():
    report = make_report("io")
    bare = [msgspec.structs.replace(rank, picture=msgspec.UNSET) for rank in report.ranks]
    section = module.timeline_section(msgspec.structs.replace(report, ranks=bare), bare)
    assert "Analyse the trace again" in section.text[0]
    assert not section.blocks


def test_where_nothing_was_measured_there_is_no_section():
    report = make_empty_report()
    assert module.timeline_section(report, report.ranks) is None


@pytest.mark.parametrize("windows", [[], None])
def test_a_picture_without_windows_is_none(windows):
    report = make_report("io")
    empty = Picture(classes=[], streams=[], threads=[], names=[], kinds=[], windows=[])
    picture = empty if windows is not None else msgspec.UNSET
    ranks = [msgspec.structs.replace(report.ranks[0], picture=picture)]
    section = module.timeline_section(msgspec.structs.replace(report, ranks=ranks), ranks)
    assert section.text
