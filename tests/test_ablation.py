"""From the trials of the ranks to an ablation, and from there to every output."""

from __future__ import annotations

import json

import jsonschema_rs
import msgspec
import pytest

from tests.rendering import html_of, markdown_of, terminal_of
from tests.report_factory import (
    make_ablation,
    make_hostile_ablation,
    make_report,
    make_run,
)
from tests.report_rules import schema, validator
from traceprobe.capture.oracle.ablation_plan import RankTrials
from traceprobe.capture.oracle.ablation_record import summarize_ablation
from traceprobe.records.ablation import INCLUDES, Ablation
from traceprobe.records.report import Report
from traceprobe.render import terminal
from traceprobe.render.pages import ablation as ablation_text
from traceprobe.verdict.agreement import compare

WHY = "the program has no DistributedDataParallel model"

ABLATIONS = {
    "io": make_ablation,
    "communication": lambda: make_ablation("communication"),
    "hostile": make_hostile_ablation,
}


def rank(seconds, **changes):
    """A rank that made 10 steps a trial."""
    fields = {
        "seconds": seconds,
        "steps": dict.fromkeys(seconds, 10),
        "absent": {},
        "busy_ns": None,
        "collectives": False,
        "workload": {"samples_per_step": 64, "tokens_per_step": 6400},
        "hardware": {"cpu_count": 2},
        "libraries": {},
        "flags": {},
    }
    return RankTrials(**{**fields, **changes})


def schema_of_an_ablation():
    whole = schema()
    return jsonschema_rs.Draft202012Validator(
        {"$ref": "#/$defs/Ablation", "$defs": whole["$defs"], "$schema": whole["$schema"]}
    )


def test_collectives_that_stay_leave_overhead_unknown():
    seconds = {"io": [0.1], "synthetic-device": [1.0], "full": [1.0]}
    oracle = summarize_ablation({0: rank(seconds, busy_ns=60e6)}).oracle
    assert oracle.shares["overhead"].value == pytest.approx(0.4)
    mixed = summarize_ablation({0: rank(seconds, busy_ns=60e6, collectives=True)})
    assert mixed.oracle.shares["overhead"] is None
    assert mixed.gpu_busy_ms == 60


def test_training_alone_that_is_slower_than_all_is_told_to_be_disturbed():
    seconds = {"io": [0.1], "synthetic-device": [1.2], "full": [1.0]}
    assert any(
        "disturbance" in reason for reason in summarize_ablation({0: rank(seconds)}).oracle.reasons
    )


def test_a_trial_takes_as_long_as_its_slowest_rank():
    first = rank({"io": [1.0, 0.2], "synthetic-device": [1.0, 1.0], "full": [2.0, 1.0]})
    second = rank({"io": [0.5, 0.4], "synthetic-device": [1.1, 0.9], "full": [1.0, 3.0]})
    found = summarize_ablation({0: first, 1: second})
    assert {v.name: v.trial_ms for v in found.variants} == {
        "io": [100.0, 40.0],
        "synthetic-device": [110.0, 100.0],
        "full": [200.0, 300.0],
    }
    assert found.ranks == 2
    full = found.variants[-1]
    assert full.step_ms.median == 250.0
    assert full.samples_per_second.median == pytest.approx((320 + 64 / 0.3) / 2)
    assert full.tokens_per_second.median == pytest.approx(100 * full.samples_per_second.median)


def test_the_busy_time_is_that_of_the_busiest_rank():
    seconds = {"synthetic-device": [1.0], "full": [2.0]}
    ranks = {0: rank(seconds, busy_ns=30e6), 1: rank(seconds, busy_ns=40e6)}
    found = summarize_ablation(ranks)
    assert found.gpu_busy_ms == 40.0
    assert found.oracle.shares["compute"].value == 0.2
    assert summarize_ablation({0: rank(seconds)}).gpu_busy_ms is None


def test_a_loop_that_nothing_was_taken_out_of_is_not_called_computing():
    found = summarize_ablation({0: rank({"full": [2.0, 2.1], "full-fused": [1.9, 2.0]})})
    assert found.oracle.bound == "inconclusive"
    assert set(found.oracle.shares.values()) == {None}
    assert "nothing could be taken out of it" in found.oracle.reasons[1]
    assert "Inconclusive" in ablation_text.document(found).title
    alone = summarize_ablation({0: rank({"full": [2.0]}, busy_ns=190e6)})
    assert alone.oracle.bound == "compute"


def test_variants_come_in_the_order_in_which_they_are_described():
    seconds = {name: [1.0, 1.0] for name in reversed(INCLUDES)}
    found = summarize_ablation({0: rank(seconds)})
    assert [v.name for v in found.variants] == list(INCLUDES)
    assert [v.includes for v in found.variants] == list(INCLUDES.values())


def test_without_samples_there_is_no_rate():
    seconds = {"io": [1.0], "synthetic-host": [1.0], "full": [2.0]}
    found = summarize_ablation(
        {0: rank(seconds, workload={}, absent={"synthetic-device": "no GPU"})}
    )
    assert {v.samples_per_second for v in found.variants} == {None}
    assert found.workload is None
    assert found.absent == {"synthetic-device": "no GPU"}


def test_what_was_measured_keeps_to_the_schema_and_can_be_read_back():
    seconds = {"io": [1.0, 1.2], "synthetic-host": [1.0, 0.9], "full": [2.0, 2.1]}
    found = summarize_ablation({0: rank(seconds, absent={"full-no-comm": WHY})})
    schema_of_an_ablation().validate(json.loads(found.to_json()))
    assert Ablation.from_json(found.to_json()) == found
    text = make_report(ablation=found).to_json()
    validator().validate(json.loads(text))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("schema_version",), "2.0"),
        (("oracle", "bound"), "luck"),
        (("oracle", "shares", "io", "value"), 1.5),
        (("oracle", "shares", "io"), 0.5),
        (("variants", 0, "name"), "half"),
        (("ranks",), 0),
    ],
)
def test_the_schema_refuses_other_values(path, value):
    ablation = json.loads(make_ablation().to_json())
    assert schema_of_an_ablation().is_valid(ablation)
    place = ablation
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    assert not schema_of_an_ablation().is_valid(ablation)


def test_a_report_without_the_key_is_one_without_an_ablation():
    content = json.loads(make_report().to_json())
    assert content.pop("ablation") is None
    assert Report.from_json(json.dumps(content)) == make_report()


# How the two verdicts relate


def verdict(bound, secondary=None):
    return msgspec.structs.replace(
        make_report("io" if bound == "inconclusive" else bound).verdict,
        bound=bound,
        secondary=secondary,
    )


def ablated(bound, secondary=None, unknown=()):
    base = make_ablation("communication")
    shares = {k: None if k in unknown else v for k, v in base.oracle.shares.items()}
    oracle = msgspec.structs.replace(base.oracle, bound=bound, secondary=secondary, shares=shares)
    return msgspec.structs.replace(base, oracle=oracle)


@pytest.mark.parametrize(
    ("traced", "measured", "state"),
    [
        (("io",), ("io", "overhead"), "agree"),
        (("compute", "io"), ("compute",), "agree"),
        (("mixed", "io+overhead"), ("mixed", "overhead+io"), "agree"),
        (("mixed", "io+overhead"), ("io",), "partly"),
        (("io",), ("mixed", "io+overhead"), "partly"),
        (("mixed", "io+overhead"), ("mixed", "communication+io"), "partly"),
        (("io",), ("compute", "io"), "disagree"),
        (("mixed", "io+overhead"), ("compute",), "disagree"),
        (("overhead",), ("compute", None, ["overhead"]), "unknown"),
        (("communication",), ("io", None, ["communication"]), "unknown"),
        (("compute",), ("io", None, ["overhead", "communication"]), "disagree"),
        (("inconclusive",), ("io",), "unknown"),
    ],
    ids=str,
)
def test_how_two_verdicts_relate(traced, measured, state):
    found = compare(verdict(*traced), ablated(*measured))
    assert found.state == state
    assert found.words


def test_a_disagreement_names_both_with_their_shares():
    found = compare(verdict("overhead"), ablated("communication", "overhead"))
    assert found.words == (
        "Communication-bound (communication 33.6 %, 95 % interval 31.1–35.2 %, overhead 5.5 %, "
        "95 % interval 4.0–7.0 %; 13.6 points from another answer); the trace says overhead-bound "
        "(communication 0.0 %, overhead 55.0 %)"
    )
    assert "I/O-bound" in compare(verdict("io"), ablated("compute")).words


# Outputs


@pytest.fixture
def report():
    return make_report("compute", ablation=make_ablation())


def test_the_page_has_a_section_beside_the_verdict(report):
    text = html_of(report)
    shown = text.split('<script type="application/json"')[0]
    assert shown.index('id="verdict"') < shown.index('id="time"') < shown.index('id="ablation"')
    for words in (
        "Checked by ablation",
        "They disagree",
        "86.0 %",
        "85.0–88.0 %",
        "the copy to the device and training, no loading",
        "overlap 0.46 of 1",
        WHY,
        'href="#ablation"',
        "tokens/s",
    ):
        assert words in shown
    assert "Checked by ablation" not in html_of(make_report())


@pytest.mark.parametrize(
    ("bound", "words"),
    [
        ("io", "They agree."),
        ("mixed", "They agree in part"),
        ("inconclusive", "cannot be compared"),
    ],
)
def test_the_page_says_whether_they_agree(bound, words):
    other = make_report(bound, ablation=make_ablation())
    if bound == "mixed":
        other = msgspec.structs.replace(other, verdict=verdict("mixed", "io+overhead"))
    assert words in html_of(other)


def test_tokens_have_a_column_only_where_they_are_known():
    variants = [
        msgspec.structs.replace(v, tokens_per_second=None) for v in make_ablation().variants
    ]
    plain = make_ablation(variants=variants)
    assert "tokens/s" not in html_of(make_report(ablation=plain)).split("<script type")[0]
    assert "tokens/s" not in rendered(plain, 120, False)


@pytest.mark.parametrize("name", ABLATIONS)
def test_markdown_says_it_in_at_most_eight_lines(name):
    ablation = ABLATIONS[name]()
    without = markdown_of(make_run(2)).splitlines()
    text = markdown_of(msgspec.structs.replace(make_run(2), ablation=ablation))
    assert 0 < len(text.splitlines()) - len(without) <= 8
    assert "- checked by ablation: " in text


def test_the_terminal_says_it_in_two_lines(report):
    without = terminal_of(make_report("compute"), 400, False, verbose=True).splitlines()
    text = terminal_of(report, 400, False, verbose=True)
    added = [line for line in text.splitlines() if line not in without]
    assert len(added) == 2
    assert added[0] == "by ablation: I/O-bound; the trace disagrees"
    assert added[1] == (
        "I/O 86.0 % (85.0–88.0), overhead 1.0 % (0.0–3.0), compute 13.0 % (12.0–14.0)"
    )


# The ablation alone, on a terminal


def rendered(ablation, *look):
    return terminal.render(ablation_text.document(ablation), *look)


@pytest.mark.parametrize("width", [40, 80, 200])
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
@pytest.mark.parametrize("name", ABLATIONS)
def test_a_terminal_is_kept_to_its_width_and_encoding(name, encoding, width):
    ablation = ABLATIONS[name]()
    text = rendered(ablation, width, False, encoding)
    text.encode(encoding)
    assert "\x1b" not in text
    assert max(len(line) for line in text.splitlines()) <= width


def test_a_terminal_shows_the_short_words_in_columns():
    lines = rendered(make_ablation("communication"), 80, False).splitlines()
    assert lines[0] == "Communication-bound, then overhead  by ablation"
    assert "communication    33.6 %  31.1–35.2 %" in lines
    assert not [line for line in lines if "exposed" in line]


def test_a_loader_that_does_nothing_has_no_rate():
    (line,) = [
        line
        for line in rendered(make_ablation("communication"), 100, False).splitlines()
        if line.startswith("io ")
    ]
    assert line.split("  ")[0] == "io"
    assert "< 0.01" in line
    assert line.count("no limit") == 2
    assert "160,000,000" not in line


def test_further_lines_of_a_sentence_are_indented():
    lines = rendered(make_ablation(), 40, False).splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("- not measured"))
    assert lines[start + 1].startswith("  ")


def test_ascii_has_stand_ins():
    text = rendered(make_ablation(), 80, False, "ascii")
    assert "85.0-88.0 %" in text
    assert "?" not in text


@pytest.mark.parametrize(
    ("position", "words"),
    [
        (-0.2, "slow each other down"),
        (0.3, "hardly overlap"),
        (0.9, "loading and training overlap"),
        (None, "could not show"),
    ],
)
def test_overlap_in_words(position, words):
    overlap = msgspec.structs.replace(make_ablation().overlap, position=position)
    assert words in ablation_text.overlap_sentence(make_ablation(overlap=overlap))
    assert ablation_text.overlap_sentence(make_ablation(overlap=None)) is None


def test_where_a_share_is_unknown_it_is_said_where_it_counts():
    cpu = ablated("compute", None, ["overhead", "communication"])
    assert [s.split(" ")[0] for s in ablation_text.reasons(cpu) if "counts as" in s] == [
        "overhead",
        "communication",
    ]
    fsdp = ablated("overhead", None, ["communication"])
    assert any("counts as overhead" in s for s in ablation_text.reasons(fsdp))
    assert not any("counts as" in s for s in ablation_text.reasons(make_ablation()))
