"""Scores of slowbench: what is right about an answer, and what is no answer."""

from __future__ import annotations

import json
import sys
import tarfile
from dataclasses import asdict, replace

import pytest

from benchmarks.slowbench import words
from benchmarks.slowbench.answers import Answer, Said, from_json
from benchmarks.slowbench.asking import answers_of, ask_all
from benchmarks.slowbench.causes import BY_ID
from benchmarks.slowbench.columns import SUFFIX, pack
from benchmarks.slowbench.marks import mark
from benchmarks.slowbench.page import page
from benchmarks.slowbench.score_commands import PAGE, RESULTS
from benchmarks.slowbench.scores import from_text, score, to_text
from benchmarks.slowbench.shares import share, wilson
from benchmarks.slowbench.tables import advised_text
from benchmarks.slowbench.tools import hta, nsys_ai, traceml
from benchmarks.slowbench.tools.tool import Tool
from traceprobe.findings import RULES

CAUSE = {"file": "photos.py", "line": 71, "rank": None, "ms": 6.0, "low": 5.5, "high": 6.5}
ROW = {
    "id": "photos-pageable-copies-s1n1-torch",
    "program": "photos",
    "backend": "torch",
    "split": "open",
    "seed": 1,
    "ranks": 1,
    "causes": [{"id": "pageable-copies", "class": "io", **CAUSE}],
    "healthy_ms": 10.0,
    "slow_ms": 16.0,
    "felt": True,
    "failed": None,
    "machine": {"gpus": ["a GPU"], "cpus": 16, "python": "3.12"},
}
HEALTHY = {**ROW, "id": "photos-healthy-s1n2-torch", "causes": [], "felt": False}
SLOW_WAIT = Said("data-wait", "at least 4 workers instead of 1 would hide the loader")
PAGEABLE = Said(
    *("h2d-pageable", "all of it", True, True),
    ("photos.py(70): train", "photos.py(71): train"),
    saving_ms=(4.0, 5.0, 5.8),
)
ANSWER = Answer("traceprobe", "io", said=(SLOW_WAIT, PAGEABLE), confidence=0.9, step_ms=15.5)


def test_an_answer_is_held_against_the_cause_its_class_line_and_ms():
    found = mark(ROW, ANSWER)
    assert (found.verdict, found.cls, found.place, found.line) == (True, True, 2, 2)
    assert found.width == 1
    assert mark(ROW, replace(ANSWER, said=(SLOW_WAIT,))).place == 0


@pytest.mark.parametrize(
    ("step_ms", "saving", "error", "inside", "near"),
    [
        (16.0, (4.0, 6.0, 6.5), 0.0, True, True),
        (20.0, (8.0, 9.0, 10.0), 0.1, True, True),  # it was slower as it was recorded
        (16.0, (4.0, 5.0, 5.8), 0.1, False, True),  # 10.0 is not in 10.2 to 12.0; 9.5 to 10.5 is
        (16.0, (1.0, 2.0, 3.0), 0.4, False, False),
    ],
)
def test_the_step_without_a_cause_is_held_against_the_one_that_is_predicted(
    step_ms, saving, error, inside, near
):
    said = replace(PAGEABLE, saving_ms=saving)
    found = mark(ROW, replace(ANSWER, said=(said,), step_ms=step_ms))
    assert found.step_error == pytest.approx(error)
    assert (found.step_inside, found.step_near) == (inside, near)


def test_where_the_step_that_is_left_is_told_that_counts():
    said = replace(PAGEABLE, saving_ms=(4.0, 5.0, 5.8), left_ms=(9.5, 10.5, 12.0))
    found = mark(ROW, replace(ANSWER, said=(said,), step_ms=16.0))
    assert found.step_error == pytest.approx(0.05)
    assert (found.step_inside, found.step_near) == (True, True)


def test_of_two_causes_the_other_one_stays_in_the_step():
    other = {**CAUSE, "id": "piecewise-optimizer", "class": "overhead", "ms": 2.0}
    pair = {**ROW, "causes": [*ROW["causes"], other], "slow_ms": 18.0}
    said = replace(PAGEABLE, saving_ms=(5.0, 6.0, 7.0))
    assert mark(pair, replace(ANSWER, said=(said,), step_ms=18.0)).step_error == 0
    assert mark(pair, replace(ANSWER, said=(said,), step_ms=None)).step_error is None


def test_advice_is_followed_where_it_comes_first():
    said = replace(PAGEABLE, saving_ms=(4.0, 5.0, 6.0))
    assert mark(ROW, replace(ANSWER, said=(said,))).advised == (5.0, CAUSE["ms"])
    assert mark(ROW, replace(ANSWER, said=(SLOW_WAIT, said))).advised is None


def test_what_advice_promises_is_held_against_what_was_gained_in_order():
    gains = [(1.0, 2.0), (3.0, 3.0), (2.0, 4.0), (9.0, 9.0)]
    cases = [
        {"class": "io", "felt": True, "answers": {"traceprobe": {"marks": {"advised": gain}}}}
        for gain in gains
    ]
    assert advised_text(cases).endswith("rank correlation of the two, in ms, is 0.80.")
    assert advised_text(cases[:2]).startswith("Too few")


def test_a_cause_that_bounds_no_run_may_have_its_class_in_what_is_said_first():
    little = {**ROW, "slow_ms": 100.0}
    told = replace(ANSWER, verdict="compute")
    assert mark(ROW, told).cls is False
    assert (mark(little, told).verdict, mark(little, told).cls) == (False, True)


def test_what_a_tool_cannot_read_or_has_no_word_for_is_no_answer():
    assert mark(ROW, Answer("HTA", failed="crashed")) == mark(ROW, Answer("HTA", failed="late"))
    assert mark(ROW, Answer("HTA", failed="crashed")).cls is None
    clock = {**ROW, "causes": [{**ROW["causes"][0], "id": "clock-drop", "class": "compute"}]}
    assert mark(clock, Answer("HTA", "idle")).place is None
    assert mark(clock, Answer("traceprobe", "compute")).place == 0
    assert mark(ROW, Answer("nsys analyze")).verdict is None
    assert mark(HEALTHY, Answer("HTA", "compute")).alarms is None


def test_alarms_of_a_healthy_run_name_a_cause_or_promise_something():
    said = (
        replace(SLOW_WAIT, alarm=True),
        Said("memory-traffic", "", alarm=True, promises=True),
        Said("phase-attribution", "", alarm=True),
        Said("optimizer-cost", "", alarm=False),
    )
    found = mark(HEALTHY, Answer("traceprobe", "compute", said=said))
    assert (found.verdict, found.alarms, found.place) == (True, 2, None)
    assert mark(HEALTHY, Answer("traceprobe", "io")).verdict is False


def test_of_a_pair_the_better_place_counts_and_only_what_is_felt():
    other = {**ROW["causes"][0], "id": "few-workers", "ms": 9.0}
    pair = {**ROW, "causes": [ROW["causes"][0], other], "each_felt": [True, True]}
    assert (mark(pair, ANSWER).place, mark(pair, ANSWER).all_in_three) == (1, True)
    one = {**pair, "each_felt": [True, False]}
    assert mark(one, ANSWER).place == 2


def test_a_phrase_decides_what_a_word_stands_for_and_repetitions_take_no_place():
    assert words.meaning("traceprobe", "data-wait", SLOW_WAIT.text) == {"few-workers"}
    assert "slow-decode" in words.meaning("traceprobe", "data-wait", "waits")
    assert words.meaning("traceprobe", "phase-attribution") == frozenset()
    twice = replace(ANSWER, said=(SLOW_WAIT, Said("phase-attribution"), SLOW_WAIT, PAGEABLE))
    assert [said.word for said, _ in words.named(twice)] == ["data-wait", "h2d-pageable"]


def test_words_are_about_causes_and_findings_that_there_are():
    assert set(BY_ID) & words.claimed("traceprobe")
    assert {word.says for word in words.WORDS["traceprobe"]} <= RULES.keys()
    classes = {c for bounds in words.BOUNDS.values() for each in bounds.values() for c in each}
    assert classes == {"io", "communication", "overhead", "compute", "none"}


def test_wilson_agrees_with_published_values():
    # Newcombe, Statistics in Medicine 17 (1998), table I: 81 of 263, 15 of 148, 0 of 20, 1 of 29.
    for right, asked, low, high in (
        *((81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605)),
        *((0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)),
    ):
        assert wilson(right, asked) == pytest.approx((low, high), abs=1e-4)
    assert str(share([True, False, None])) == "50% (1 of 2; 9–91), 1 without answer"
    assert str(share([None])) == "no answer (1)"


def test_other_tools_are_understood_as_they_print():
    assert hta._shares(
        [{"idle_time_pctg": 52.54, "non_compute_time_pctg": 1.41}],
        [{"kernel_type": "COMPUTATION", "sum": 276317}, {"kernel_type": "MEMORY", "sum": 8384}],
    ) == pytest.approx({"idle": 0.5254, "memory": 0.0141, "communication": 0.0})
    summary = {
        "primary_diagnosis": {"kind": "RESIDUAL_HEAVY", "severity": "crit", "action": "Inspect"},
        "step_time": {"issues": [{"kind": "INPUT_BOUND", "severity": "crit", "ranks": [0]}]},
    }
    answer = traceml.interpret(summary)
    assert words.bound(answer) == {"overhead", "communication"}
    assert [said.word for said, _ in words.named(answer)] == ["RESIDUAL_HEAVY", "INPUT_BOUND"]


def test_nsys_ai_is_understood_as_it_prints(tmp_path):
    bound = {"label": "Critical path is cpu-bound", "confidence": 0.8, "severity": "info"}
    idle = {
        "label": "GPU Idle Summary (58.4% of profile)",
        "severity": "warning",
        "note": "idle",
        "provenance": {"skill": "gpu_idle_gaps", "row_kind": "summary"},
    }
    pattern = {
        "pattern": "Pageable Memory in Async Memcpy",
        "severity": "warning",
        "evidence": "20 memcpy ops",
        "recommendation": "Use pinned memory",
    }
    findings = {"findings": [{**bound, "note": ""}, idle]}
    (tmp_path / "found.json").write_text(json.dumps(findings))
    (tmp_path / "causes.json").write_text(json.dumps([pattern]))
    answer = nsys_ai.interpret(tmp_path, ROW)
    assert (answer.verdict, answer.confidence) == ("cpu-bound", 0.8)
    assert [(s.word, s.alarm) for s, _ in words.named(answer)] == [
        ("Pageable Memory in Async Memcpy", True),
        ("gpu_idle_gaps", True),
    ]


@pytest.fixture
def recorded(tmp_path):
    """A folder with two cases, and a tool that says how large their recordings are."""
    folder = tmp_path / "recorded"
    folder.mkdir()
    trace = tmp_path / f"rank0.json{SUFFIX}"
    plain = tmp_path / "rank0.json"
    plain.write_text('{"traceEvents":[]}')
    trace.write_bytes(pack(plain))
    with tarfile.open(folder / "open-0.tar", "w") as tar:
        for row in (ROW, HEALTHY):
            tar.add(trace, f"{row['id']}/{trace.name}")
    lines = [json.dumps(row) for row in (ROW, {**HEALTHY, "failed": "it did"}, HEALTHY)]
    (folder / "rows.jsonl").write_text("\n".join([*lines, '{"cut of']))
    code = "import sys; open('said', 'w').write(str(len(open(sys.argv[1]).read())))"
    tool = Tool(
        *("traceprobe", "traceprobe 1", frozenset({"torch"})),
        lambda files, _: [[sys.executable, "-c", code, str(files[0])]],
        lambda out, _: replace(ANSWER, verdict="io" if (out / "said").read_text() == "18" else "?"),
    )
    return folder, tool


def test_tools_are_asked_once_and_what_they_say_is_kept(recorded):
    folder, tool = recorded
    ask_all(folder, [tool], 1)
    before = (folder / "answers.jsonl").read_text()
    ask_all(folder, [tool], 2)
    assert (folder / "answers.jsonl").read_text() == before
    version, answer = answers_of(folder)[ROW["id"], "traceprobe"]
    assert (version, answer.said, answer.verdict) == ("traceprobe 1", ANSWER.said, "io")
    assert answer.seconds is not None
    assert from_json(json.loads(json.dumps(asdict(answer)))) == answer
    ask_all(folder, [replace(tool, version="traceprobe 2", reads=frozenset({"nsys"}))], 1)
    assert "does not read" in (answers_of(folder)[ROW["id"], "traceprobe"][1].failed or "")


def test_scores_are_written_short_and_come_back_whole(recorded):
    folder, tool = recorded
    ask_all(folder, [tool, replace(tool, name="b", reads=frozenset({"nsys"}))], 1)
    found = json.loads(json.dumps(score([folder])))
    assert found["cases"][0]["answers"]["b"]["marks"]["place"] is None
    text = to_text(found)
    assert "null" not in text.split('"b":')[1].split("}")[0]
    assert from_text(text) == found


def test_the_page_has_all_tables_and_names_what_is_wrong(recorded):
    folder, tool = recorded
    ask_all(folder, [tool], 1)
    text = page(from_text(to_text(score([folder]))))
    assert "| traceprobe |" in text
    assert "## Open cases" in text
    assert "## Sealed cases" not in text
    # The verdict of a healthy run is an alarm of nothing; what it says promises something.
    assert f"- `{HEALTHY['id']}` (open; healthy): a false alarm" in text
    assert f"- `{ROW['id']}`" not in text
    assert "*Not explained yet.*" in text
    assert "| `h2d-pageable` |  | pageable-copies |" in text


def test_the_page_is_made_of_the_results():
    found = from_text(RESULTS.read_text(encoding="utf-8"))
    assert PAGE.read_text(encoding="utf-8") == page(found)
