"""Every string of every record is clean in every output, whatever made the record."""

from __future__ import annotations

import json
import re

import msgspec
import pytest
from msgspec.structs import replace

import traceprobe
from tests.builders import kineto
from tests.cli_runner import LOOP, Cli
from tests.every_record import RECORD_NAMES, every_record, refilled
from tests.memory_records import make_memory
from tests.report_factory import make_ablation, make_report
from traceprobe.formatting import clean
from traceprobe.records import cleaning, kinds
from traceprobe.records.ablation import Ablation
from traceprobe.records.cleaning import MAX_KEY, MAX_TEXT, Clean, cleaned
from traceprobe.records.diagnosis import Diagnosis, Outcome, Section
from traceprobe.records.report import Report
from traceprobe.records.sweep import RungResult, Sweep

DIRTY = (
    "\x1b]0;taken over\x07\x1b[31mred \u202egnp\u2066\u200b\ufeff\u2028\x00\x7f\x85\x9b2J\n\t"
    "\x1b]8;;http://a.example\x1b\\link\ud800\U000e0041 %"
)

KINDS = [*RECORD_NAMES, "ablation", "memory", "sweep", "diagnosis"]


def dirty(number, value):
    return DIRTY.replace("%", f"{value} {number}")


def records():
    rung = {"name": "a", "change": "", "side": False, "base": "", "ranks": 1, "state": "failed"}
    rung = RungResult(**rung, arguments=["x"], environment_digest="a:b", reason="why")
    sweep = {"ladder": "l", "workload": "w", "backend": "torch"}
    sweep |= {"warmup": 1, "calibrate": 1, "active": 1}
    outcome = Outcome(id="a", status="fail", found="b", meaning="c", fix="d")
    return {
        **every_record(),
        "ablation": make_ablation(),
        "memory": make_memory(),
        "sweep": Sweep(schema_version="1.0", traceprobe_version="1", rungs=[rung], **sweep),
        "diagnosis": Diagnosis(
            schema_version="1.0",
            traceprobe_version="1",
            sections=[Section(subject="run.json", checks=[outcome])],
        ),
    }


def test_every_kind_is_tried():
    assert set(records()) == set(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_every_output_of_every_record_is_clean(kind):
    record = refilled(records()[kind], dirty)
    outputs = [record.to_json()]
    if hasattr(record, "to_html"):
        outputs += [record.to_html(), record.to_markdown()]
        embedded = re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', outputs[1])
        outputs += [text for content in embedded for text in strings(json.loads(content))]
    for text in [*outputs, *strings(json.loads(outputs[0]))]:
        text.encode()
        assert {c for c in text if not c.isprintable()} <= {"\n", "\u200b"}, text[:200]
        assert "taken over" not in text
    assert all("\n" not in text for text in strings(json.loads(outputs[0])))
    assert kind == "peaks" or "red gnp" in outputs[0]


def strings(value):
    """Every string of JSON, keys too. Markdown has lines."""
    if isinstance(value, str):
        yield value
    for item in value if isinstance(value, list) else ():
        yield from strings(item)
    for key, item in value.items() if isinstance(value, dict) else ():
        yield from (key, *strings(item))


@pytest.mark.parametrize(
    "read",
    [Report.from_json, lambda text: msgspec.json.decode(text, type=Report)],
    ids=["from_json", "decode"],
)
def test_what_is_read_back_is_clean(read):
    content = json.loads(make_report().to_json())
    content["verdict"]["headline"] = "a\u202e\x1b[31mb\nc"
    content["workload"] = {"k\x07ey": ["\x9b31m"]}
    report = read(json.dumps(content))
    assert report.verdict.headline == "ab c"
    assert report.workload == {"key": ["31m"]}


def test_other_records_that_are_read_back_are_clean():
    text = make_ablation().to_json().replace("NVIDIA H200", r"\u202eH\u001b[1m200")
    assert Ablation.from_json(text).hardware == {"gpu": "H200"}
    peaks = every_record()["peaks"]
    text = peaks.to_json().replace("NVIDIA H200", r"\u202eH\u001b[1m200")
    assert kinds.read(text).device == "H200"


def test_a_record_with_other_values_is_clean():
    report = replace(make_report(), traceprobe_version="1\x07")
    assert report.traceprobe_version == "1"
    assert make_report(workload={"a": "\x1b[1mb"}).workload == {"a": "b"}


def test_a_device_and_a_label_of_a_trace_are_clean_from_the_start(
    tmp_path, monkeypatch, capfdbinary
):
    trace = json.loads(kineto.dumps(LOOP.scenario()))
    trace["deviceProperties"] = [{"id": 0, "name": "H100 \u202e\u009b31m gnp.exe"}]
    for event in trace["traceEvents"]:
        event["name"] = event["name"].replace("step", "step\u200b\x1b[1m")
    (tmp_path / "a.json").write_text(json.dumps(trace))
    report = traceprobe.analyze(traceprobe.load(tmp_path / "a.json"))
    assert report.ranks[0].device.name == "H100 31m gnp.exe"
    assert report.ranks[0].iterations[0].label == clean(report.ranks[0].iterations[0].label)
    cli = Cli(tmp_path, monkeypatch, capfdbinary)
    out = cli("analyze", "a.json", "-o", "-", "-o", "a.html").expect(0).out
    page = (tmp_path / "a.html").read_text(encoding="utf-8")
    for text in (out, re.sub("<script>.*?</script>", "", page, flags=re.DOTALL)):
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", text)


def test_texts_are_bounded_and_say_so():
    report = make_report(workload={"k" * 10**6: "v" * 10**6, "same": '"' * 10**6})
    (key, value), (_, quotes) = report.workload.items()
    assert (len(key), key[-1]) == (MAX_KEY, "…")
    assert (len(value), value[-1]) == (MAX_TEXT, "…")
    assert len(quotes) == MAX_TEXT


def test_keys_that_become_one_lose_no_value():
    found = cleaned({"a": 1, "a\x00": 2, "a\x01": [3], 4: 5})
    assert found == {"a": 1, "a (2)": 2, "a (3)": [3], 4: 5}


def test_long_columns_of_numbers_are_no_long_texts(monkeypatch):
    walked = []
    monkeypatch.setattr(cleaning, "cleaned", walked.append)
    long = make_report(workload={"numbers": [1] * 10**5})
    assert long.workload == {"numbers": [1] * 10**5}
    assert walked == []


@pytest.mark.parametrize(
    "text",
    [DIRTY, "a \u200b b", " a  b ", "\x1b\u200b[31m", "\u2028a\u2029", "é ü \U0001f600", ""],
)
def test_what_is_clean_stays_as_it_is(text):
    assert clean(clean(text)) == clean(text)
    assert clean(text).isprintable()


def test_a_record_that_is_clean_is_not_walked_through(monkeypatch):
    """Reports of thousands of ranks have millions of strings."""
    reports = [make_report("io", workload={"a": 'quoted "name" \\d+'}), make_report("mixed")]
    texts = [Report.from_json(report.to_json()).to_json() for report in reports]
    walked = []
    monkeypatch.setattr(cleaning, "cleaned", walked.append)
    assert [Report.from_json(text).to_json() for text in texts] == texts
    assert walked == []


@pytest.mark.parametrize(
    "value",
    ["a\nb", "a\\\nb", "\\\\\x01", "a  b", "é\u202e", "\x7f", "x" * 5000, '"' * 5000, "\ud800"],
)
def test_whatever_is_not_clean_is_seen(value):
    class Note(Clean, frozen=True, kw_only=True):
        texts: list[str]

    for texts in ([value], ["plain", value, "plain"], ["\\", value], ['"', value]):
        assert Note(texts=texts).texts == [cleaned(text) for text in texts]
