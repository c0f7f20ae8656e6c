"""The published results and the page of the gate are what their scripts make of records."""

from __future__ import annotations

import json

import pytest

from benchmarks import gate, published_page
from tests.conftest import ROOT
from traceprobe.records import kinds

VALIDATION = ROOT / "docs" / "validation"
RECORDS = sorted(
    path
    for folder in ("comparisons", "ladders", "scaling")
    for path in (VALIDATION / folder).glob("*.json")
)


def test_the_page_of_published_numbers_is_up_to_date():
    assert published_page.PAGE.read_text(encoding="utf-8") == published_page.page()


def test_the_page_of_the_gate_is_up_to_date():
    rows = json.loads((VALIDATION / "gate.json").read_text(encoding="utf-8"))
    assert (VALIDATION / "gate.md").read_text(encoding="utf-8") == gate.page(rows)


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_pages_beside_a_record_are_made_of_it(path):
    record = kinds.read(path.read_text(encoding="utf-8"))
    assert record.to_json() == path.read_text(encoding="utf-8")
    assert record.to_markdown() == path.with_suffix(".md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (1512.4, "1,512"),
        (84.1, "84.1"),
        (0.324, "0.324"),
        (7.32, "7.32"),
        (0.0, "0.000"),
    ],
)
def test_numbers(value, text):
    assert published_page.number(value) == text
