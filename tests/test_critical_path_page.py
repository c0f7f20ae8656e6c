"""What terminal, Markdown and page say of a critical path."""

from __future__ import annotations

import msgspec
import pytest

from tests.builders.critical_paths import MS, across_ranks, path_of
from tests.rendering import html_of, markdown_of, terminal_of
from tests.report_factory import HOSTILE, make_hostile_report, make_report, make_run
from traceprobe.model.taxonomy import PATH_LABELS
from traceprobe.records.critical_path import Edges, Slack, Stretch
from traceprobe.render.colours import PATH_COLOURS
from traceprobe.render.document import Bars, Facts
from traceprobe.render.pages import report_path as module
from traceprobe.render.pages.report import document
from traceprobe.render.pages.report_timeline import labels

ONE = [
    (0, "data-wait", 0, 63 * MS),
    (0, "backward", 63 * MS, 96 * MS),
    (0, "d2h", 96 * MS, 100 * MS),
]
NAME = "On the critical path"


def with_path(report, path):
    return msgspec.structs.replace(report, critical_path=path)


def one_rank(**changes):
    return with_path(make_report("io"), path_of(ONE, **changes))


def two_ranks(**changes):
    path = msgspec.structs.replace(across_ranks(), **changes)
    return with_path(make_run(2), path)


def blocks_of(report):
    return {block.id: block for block in module.section(report).blocks if hasattr(block, "id")}


def told(report, **options):
    [block] = module.line(report, **options)
    [(name, text)] = block.facts
    assert name == NAME
    return text


def test_the_line_has_the_largest_parts_and_names_the_rank_of_several():
    assert told(one_rank()) == "63 % waiting for data, 33 % backward"
    assert told(two_ranks()) == (
        "45 % backward (rank 1), 30 % communication (rank 0), 12 % optimizer (rank 0), "
        "8 % host (rank 1); communication blocks 8.10 of its 23.6 ms"
    )


def test_what_blocks_longer_than_it_is_busy_is_no_part_of_that():
    assert told(two_ranks(blocking_ms=30.0)).endswith("; communication blocks 30.0 ms")


def test_a_report_without_a_path_says_nothing_of_it():
    for report in (make_report("io"), with_path(make_report("io"), path_of([]))):
        assert module.line(report) == []
        assert module.section(report) is None
        assert NAME not in terminal_of(report, 80, False) + markdown_of(report)
        assert module.TITLE not in html_of(report)


def near_tie(slack_ms, **changes):
    """A path of the host, and work of the GPU that is shorter by `slack_ms`."""
    path = path_of([(0, "host", 0, 100 * MS)])
    work = Slack(part="backward", rank=0, busy_ms=100 - slack_ms, slack_ms=slack_ms)
    return with_path(make_report("compute"), msgspec.structs.replace(path, slack=[work], **changes))


def test_a_host_that_is_hardly_longer_than_the_work_of_the_gpu_is_said_to_be():
    assert told(near_tie(7.0)) == "100 % host; the GPU's work alone takes 7.00 ms less"
    assert "a step gets much shorter only where both do" in html_of(near_tie(7.0))
    assert told(near_tie(25.0)) == "100 % host"
    assert "only where both do" not in html_of(near_tie(25.0))


def test_every_output_has_it_under_the_verdict():
    screen = terminal_of(two_ranks(), 80, False).splitlines()
    [at] = [n for n, line in enumerate(screen) if line.startswith(f"{NAME}: 45 % backward")]
    assert at < screen.index("Try first:")
    assert f"**{NAME}:** 45 % backward (rank 1)" in markdown_of(two_ranks())
    whole = terminal_of(two_ranks(), 80, False, verbose=True)
    assert "1,203 dependencies between streams recorded, 14 inferred" in whole
    assert "62 % of the host's recorded time is the program's own" in " ".join(whole.split())


PARTS = [name for name in PATH_LABELS if name.startswith("idle_")]


@pytest.mark.parametrize("report", [one_rank, two_ranks])
def test_a_short_line_fits_a_line_for_one_rank_and_two_for_several(report):
    long = [
        (n % 2, part, 10 * n * MS, (10 * n + 10) * MS) for n, part in enumerate([*PARTS, "host"])
    ]
    crowded = with_path(report(), path_of(long))
    screen = terminal_of(crowded, 80, False).splitlines()
    [at] = [n for n, line in enumerate(screen) if line.startswith(NAME)]
    assert screen.index("") < at
    assert screen.index("", at) - at <= len(crowded.ranks)
    assert len(told(crowded)) > 80


def test_a_crowded_screen_first_goes_without_the_next_command_then_without_it():
    """What to do comes before both where 24 lines cannot hold all."""
    seen = []
    for lines in range(11):
        verdict = msgspec.structs.replace(one_rank().verdict, missing=["", *["one more"] * lines])
        crowded = msgspec.structs.replace(one_rank(), verdict=verdict)
        screen = terminal_of(crowded, 80, False).splitlines()
        assert len(screen) <= 24
        assert "Try first:" in screen
        assert screen[-1].startswith("more with -v")
        shown = [any(line.startswith(word) for line in screen) for word in (NAME, "next, ")]
        seen.append(tuple(shown))
        whole = terminal_of(crowded, 80, False, verbose=True)
        assert NAME in whole
        assert "next, " in whole
    expected = [(True, True), (True, False), (False, False)]
    assert sorted(set(seen), key=seen.index) == expected


def test_the_bar_is_the_path_part_by_part():
    [bars] = [block for block in module.section(two_ranks()).blocks if isinstance(block, Bars)]
    [bar] = bars.bars
    pieces = [(piece.word, piece.value, piece.note) for piece in bar.pieces]
    assert pieces[:2] == [
        ("backward, rank 1", 18.0, "18.0 ms"),
        ("communication, rank 0", 12.0, "12.0 ms"),
    ]
    assert sum(piece.value for piece in bar.pieces) == 40.0
    assert bar.text == "40.0 ms a step"


def test_many_parts_end_in_the_rest():
    many = path_of([(rank, "host", rank * MS, (rank + 1) * MS) for rank in range(64)])
    [bars] = [b for b in module.section(with_path(make_run(2), many)).blocks if isinstance(b, Bars)]
    [bar] = bars.bars
    assert len(bar.pieces) == module.MAX_PIECES + 1
    assert bar.pieces[-1].word == "the rest"
    assert sum(piece.value for piece in bar.pieces) == pytest.approx(64)


def test_operators_slack_and_collectives_are_tables():
    blocks = blocks_of(two_ranks())
    [operators] = blocks["path-operators"].blocks
    assert operators.rows[0] == ["aten::backward", "backward", "1", "9.00", "22.5 %"]
    [slack] = blocks["path-slack"].blocks
    assert slack.rows == [["host-to-device", "0", "4.20", "1.50"]]
    collectives = blocks["path-blocking"]
    assert collectives.title == "Communication blocks 8.10 of its 23.6 ms"
    assert collectives.text[0].startswith("Exposed is not blocking.")
    [table] = collectives.blocks
    assert table.rows == [
        ["0", "26.2", "8", "23.4", "8.10"],
        ["—", "—", "0.500", "0.200", "0"],
    ]
    assert "path-blocking" not in blocks_of(one_rank())


def test_the_edges_say_where_they_come_from():
    line = module.edges_line
    assert line(Edges(recorded=1_203, inferred=14, unresolved=2)) == (
        "1,203 dependencies between streams recorded, 14 inferred, 2 waits not resolved (0.2 %)."
    )
    assert line(Edges(recorded=3, inferred=0, unresolved=0)) == (
        "3 dependencies between streams recorded, 0 inferred."
    )
    assert "no dependencies" in line(Edges(recorded=0, inferred=0, unresolved=0))


def test_every_part_has_a_word_a_colour_and_a_meaning():
    assert set(PATH_LABELS) == set(PATH_COLOURS) < set(labels())
    for part in PATH_LABELS:
        word, colour, meaning = labels()[part]
        assert (word, colour) == (PATH_LABELS[part], PATH_COLOURS[part])
        assert meaning
    words = [word for word, _, _ in labels().values()]
    assert len(set(words)) == len(words)


def test_the_section_comes_between_the_picture_and_the_time():
    ids = [section.id for section in document(two_ranks()).sections]
    assert ids[ids.index("path") - 1 :][:3] == ["timeline", "path", "time"]
    assert not any(isinstance(block, Facts) for block in module.section(two_ranks()).blocks)


def test_hostile_names_stay_names():
    path = path_of([(0, name, n * MS, n * MS + MS) for n, name in enumerate(HOSTILE)])
    stretch = Stretch(rank=-1, part=HOSTILE[0], start_ns=10**18, end_ns=-(10**18))
    operators = [
        msgspec.structs.replace(found, operator=name)
        for found, name in zip(path.operators, HOSTILE, strict=True)
    ]
    hostile = msgspec.structs.replace(path, stretches=[stretch], operators=operators)
    report = with_path(make_hostile_report(), hostile)
    page = html_of(report)
    assert "<img" not in page
    for text in (terminal_of(report, 80, False, verbose=True), markdown_of(report)):
        assert NAME in text
        assert "\x1b" not in text
    [line] = [line for line in markdown_of(report).splitlines() if NAME in line]
    assert "<" not in line.replace("\\<", "").replace("&lt;", "")
