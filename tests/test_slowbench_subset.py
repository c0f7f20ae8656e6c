"""Small recordings with known causes: what traceprobe says of them gets no worse."""

from __future__ import annotations

import json

import pytest

from benchmarks.slowbench import subset
from benchmarks.slowbench.captures import rows_of

MOST_BYTES = 3_000_000


def rows():
    return rows_of(subset.CAPTURES)


def expected():
    return json.loads(subset.EXPECTED.read_text(encoding="utf-8"))


def test_there_are_enough_of_many_causes_and_they_are_small():
    assert {row["id"] for row in rows()} == expected().keys()
    assert len(rows()) >= 24
    assert len({cause["id"] for row in rows() for cause in row["causes"]}) >= 10
    assert sum(path.stat().st_size for path in subset.CAPTURES.iterdir()) <= MOST_BYTES


def test_one_is_called_what_it_is_called_in_the_list():
    row = next(row for row in rows() if expected()[row["id"]].get("place") == 1)
    assert subset.outcome(row) == expected()[row["id"]]


@pytest.mark.slow
def test_classes_causes_and_alarms_get_no_worse():
    before = expected()
    found = {row["id"]: subset.worse(before[row["id"]], subset.outcome(row)) for row in rows()}
    assert {case: reasons for case, reasons in found.items() if reasons} == {}


@pytest.mark.parametrize(
    ("before", "now", "reasons"),
    [
        ({"class": True, "place": 1}, {"class": True, "place": 1}, 0),
        ({"class": True, "place": 2}, {"class": True, "place": 1}, 0),
        ({"class": False, "place": 0}, {"class": False, "place": 5}, 0),
        ({"class": True, "place": 1}, {"class": False, "place": 0}, 2),
        ({"class": True, "place": 1}, {"class": None, "place": 3}, 2),
        ({"alarms": 1}, {"alarms": 1}, 0),
        ({"alarms": 1}, {"alarms": 2}, 1),
    ],
)
def test_worse_is_a_wrong_class_a_later_place_or_another_alarm(before, now, reasons):
    assert len(subset.worse(before, now)) == reasons
