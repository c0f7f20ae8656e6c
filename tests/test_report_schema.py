"""The JSON Schema and the documentation say what the types say, and everything they promise."""

from __future__ import annotations

import json
import re
from copy import deepcopy
from importlib.resources import files

import jsonschema_rs
import pytest

from scripts import write_schema
from tests.conftest import ROOT
from tests.report_factory import PARTITIONS, make_report, make_run
from tests.report_rules import MEMBERS, SCHEMA, schema, validator
from traceprobe.findings import RULES
from traceprobe.model.taxonomy import IDLE_CAUSES, PARTITION
from traceprobe.records.report import Report
from traceprobe.timeline.phases import RANGE_NAMES
from traceprobe.verdict.thresholds import Thresholds

PAGE = (ROOT / "docs" / "report-json.md").read_text(encoding="utf-8")
DEFINITIONS = (ROOT / "docs" / "definitions.md").read_text(encoding="utf-8")
FINDINGS = (ROOT / "docs" / "findings.md").read_text(encoding="utf-8")
SOURCES = "\n".join(
    path.read_text(encoding="utf-8") for path in sorted((ROOT / "traceprobe").rglob("*.py"))
)
PHASES = "forward, backward, recompute, optimizer, graph, input, unattributed"
SHARE = "io, communication, overhead, compute, other"
MANDATORY = {
    "Report": "schema_version, traceprobe_version, inputs, quality, ranks, run, workload, verdict, "
    "findings, ablation",
    "Input": "name, sha256, format, dialect, producer, bytes",
    "Quality": "gpu_ops, gpu_ops_linked, launches_without_gpu_op, events_repaired, events_lost, "
    "observer_effect, warnings",
    "ObserverEffect": "profiled_step_ms, unprofiled_step_ms, ratio",
    "Message": "code, message",
    "Rank": "rank, pid, device, step_marker, iterations, summary, gaps",
    "DeviceInfo": "index, name, kind",
    "StepMarker": "kind, pattern, count",
    "Iteration": "index, label, start_ns, end_ns, coverage, used, skip_reason, collectives, "
    "launches, partition_ns, busy_ns",
    "Summary": "iterations_used, step_ms, window_ns, partition_ns, share, busy_ns, communication, "
    "h2d, collectives_per_step",
    "StepTimes": "mean, p10, p50, p90",
    "Communication": "total_ns, exposed_ns, overlapped_ns, overlap_pct",
    "HostToDevice": "total_ns, exposed_ns, overlapped_ns, overlap_pct, bytes, gbps",
    "Gap": "start_ns, end_ns, cause, evidence, before, after",
    "Run": "world_size, transfer_ns, skew_ns, straggler_rank",
    "Verdict": "bound, secondary, confidence, shares, reasons, missing, thresholds",
    "Finding": "id, status, title, saving_ms_per_step, evidence, advice",
    "Shares": SHARE,
    "Ablation": "schema_version, workload, ranks, variants, absent, gpu_busy_ms, overlap, oracle",
    "Variant": "name, steps_per_trial, trial_ms, step_ms, samples_per_second, tokens_per_second",
    "Interval": "median, low, high, p10, p90",
    "Overlap": "serial, full, parallel, position",
    "Share": "value, low, high",
    "AblationVerdict": "bound, secondary, margin, shares, reasons, thresholds",
    "AblationShares": "io, communication, overhead, compute",
    "BusyNs": f"{PHASES}, communication, h2d, d2h, memory",
    "PartitionNs": f"{PHASES}, communication, h2d, d2h, memory, idle_data_wait, idle_host, "
    "idle_sync, idle_latency, idle_profiler, idle_unexplained",
}
"""What schema version 1.0 must hold, written out by hand: code that drops a field fails here."""


def table(page, heading):
    """First cells of the tables below a heading, up to the next one."""
    text = page.partition(f"\n## {heading}\n")[2] or page.partition(f"\n### {heading}\n")[2]
    return re.findall(r"^\| `([^`]+)` \|", re.split(r"^##", text, flags=re.MULTILINE)[0], re.M)


def test_the_schema_file_is_what_the_script_writes():
    assert SCHEMA.read_text(encoding="utf-8") == write_schema.render()


def test_the_schema_is_part_of_the_package():
    assert json.loads(files("traceprobe.records").joinpath("report.schema.json").read_text("utf-8"))


def test_the_schema_is_valid_and_of_the_stated_version():
    jsonschema_rs.meta.validate(schema())
    assert schema()["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema()["$id"] == f"urn:traceprobe:report:{Report.SCHEMA_VERSION}"
    assert f"schema version {Report.SCHEMA_VERSION}" in PAGE


def test_every_field_has_a_meaning():
    for name, record in schema()["$defs"].items():
        for field, kind in record.get("properties", {}).items():
            assert len(kind["description"]) > 3, f"{name}.{field}"


@pytest.mark.parametrize("record", MANDATORY)
def test_mandatory_fields_are_required(record):
    required = schema()["$defs"][record]["required"]
    assert set(MANDATORY[record].split(", ")) - set(required) == set()


def test_the_script_sees_a_difference_between_types_and_tables():
    pages = write_schema.documented(PAGE)
    pages["Term"]["value"] = ("integer", "wrong")
    pages["Term"]["odd"] = ("integer", "not there")
    del pages["Gap"]["cause"]
    assert write_schema.disagreements(write_schema.structure(), pages) == [
        "Gap.cause is not documented",
        "Term.odd is documented and does not exist",
        "Term.value is number, documented as integer",
    ]


@pytest.mark.parametrize("bound", PARTITIONS)
def test_hand_made_reports_keep_to_the_schema(bound):
    validator().validate(json.loads(make_report(bound).to_json()))


def test_a_hand_made_run_of_several_ranks_keeps_to_the_schema():
    validator().validate(json.loads(make_run(3).to_json()))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("schema_version",), "2.0"),
        (("verdict", "bound"), "balanced"),
        (("verdict", "confidence"), 1.5),
        (("verdict", "shares", "io"), -0.1),
        (("verdict", "shares", "io"), None),
        (("ranks", 0, "summary", "window_ns"), 1.5),
        (("ranks", 0, "summary", "window_ns"), -1),
        (("ranks", 0, "summary", "partition_ns", "forward"), "1"),
        (("ranks", 0, "gaps", 0, "cause"), "idle_other"),
        (("findings", 0, "id"), "Data_Wait"),
        (("findings", 0, "status"), "error"),
        (("inputs", 0, "sha256"), "abc"),
    ],
    ids=lambda value: ".".join(map(str, value)) if isinstance(value, tuple) else repr(value),
)
def test_the_schema_refuses_other_values(path, value):
    report = json.loads(make_report("io").to_json())
    place = report
    for key in path[:-1]:
        place = place[key]
    assert validator().is_valid(report)
    place[path[-1]] = value
    assert not validator().is_valid(report)


@pytest.mark.parametrize(
    "path", [(), ("quality",), ("verdict",), ("ranks", 0), ("ranks", 0, "summary", "busy_ns")]
)
def test_the_schema_requires_every_field_and_allows_further_ones(path):
    report = json.loads(make_report("io").to_json())
    place = report
    for key in path:
        place = place[key]
    place["added_in_a_later_version"] = 1
    assert validator().is_valid(report)
    del place["added_in_a_later_version"]
    for field in place.keys() - {"picture", "recording"}:  # those here that may be left out
        without = deepcopy(report)
        inner = without
        for key in path:
            inner = inner[key]
        del inner[field]
        assert not validator().is_valid(without), field


def test_warning_codes_are_documented():
    used = re.findall(
        r'(?:quality\.(?:warn|damaged)\(|Message\(\s*code=|warnings\[|doubts \|= \{)\s*"([a-z-]+)"',
        SOURCES,
    )
    assert len(used) > 8
    assert table(PAGE, "Warning codes") == sorted(set(used))


def test_confidence_terms_are_documented():
    used = re.findall(r'_term\(\s*"([a-z-]+)"', SOURCES)
    assert len(used) > 8
    assert set(table(DEFINITIONS, "Confidence")) - {"compute", "mixed"} == set(used)


def test_idle_causes_are_documented():
    assert table(PAGE, "IdleCause") == sorted(IDLE_CAUSES)
    assert set(table(DEFINITIONS, "Idle causes")) == set(IDLE_CAUSES) - {"idle_latency"}
    assert "**`idle_latency`**" in DEFINITIONS


def test_classes_are_listed_in_the_order_in_which_they_claim_time():
    assert table(PAGE, "PartitionNs") == list(PARTITION)


def test_shares_are_documented_as_they_are_summed():
    section = DEFINITIONS.partition("\n## Shares\n")[2].partition("\n## ")[0]
    rows = dict(re.findall(r"^\| `(\w+)` \| ([^|]+) \|$", section, re.MULTILINE))
    for share, members in MEMBERS.items():
        phases = set(PARTITION[: PARTITION.index("communication")])
        named = set(re.findall(r"`(\w+)`", rows[share]))
        assert (named | phases if share == "compute" else named) == set(members)


def test_built_in_range_names_are_documented():
    section = DEFINITIONS.partition("### Range names")[2].partition("\n## ")[0]
    rows = dict(re.findall(r"^\| `(\w+)` \| `(.+)` \|$", section, re.MULTILINE))
    assert {name: row.replace(r"\|", "|") for name, row in rows.items()} == dict(RANGE_NAMES)
    assert list(rows) == list(RANGE_NAMES)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("bound", "at least 20 %"),
        ("notable", "from 5 %"),
        ("mixed", "both at least 15 %"),
        ("mixed_margin", "at most 5 points"),
        ("whole_capture", "no share reaches 50 %"),
        ("unexplained", "more than 30 %"),
        ("coverage", "coverage below 90 %"),
        ("min_iterations", "fewer than 3 used"),
        ("min_gpu_ops", "fewer than 100 GPU"),
        ("low_confidence", "at most 0.30"),
    ],
)
def test_thresholds_are_documented_as_they_are(name, text):
    value = Thresholds().as_dict()[name]
    assert text in " ".join(DEFINITIONS.split())
    number = float(re.search(r"[\d.]+", text)[0])
    assert value in (number, number / 100)


def test_every_finding_has_its_section():
    ids = sorted(RULES)
    sections = re.split(r"^## ", FINDINGS, flags=re.MULTILINE)[1:]
    assert [section.partition("\n")[0] for section in sections] == ids
    listed = re.findall(r"^\| \[`([\w-]+)`\]\(#([\w-]+)\) \|", FINDINGS, re.MULTILINE)
    assert listed == [(name, name) for name in ids]
    for section in sections:
        parts = re.findall(r"^- \*\*(\w+)\.\*\* ", section, re.MULTILINE)
        assert parts == ["Rule", "Threshold", "Precedent", "Advice", "Verify"]
