"""Small recordings with known causes: what traceprobe says of them gets no worse."""

from __future__ import annotations

import json
import tarfile

import pytest

import traceprobe
from benchmarks.slowbench import subset
from benchmarks.slowbench.captures import members, rows_of, unpacked

MOST_BYTES = 3_000_000
MOST_OF_A_RANK = 150_000
MOST_OF_A_FILE = 2_000_000


def rows(folder=subset.CAPTURES):
    return rows_of(folder)


def expected(folder=subset.CAPTURES):
    return json.loads((folder / subset.EXPECTED).read_text(encoding="utf-8"))


def sizes(folder):
    """Bytes of the recording of each rank of each case."""
    for bundle, names in members(folder).values():
        with tarfile.open(bundle) as tar:
            yield from (tar.getmember(name).size for name in names)


def test_there_are_enough_of_many_causes_and_they_are_small():
    assert {row["id"] for row in rows()} == expected().keys()
    assert len(rows()) >= 24
    assert len({cause["id"] for row in rows() for cause in row["causes"]}) >= 10
    files = [path for path in subset.CAPTURES.iterdir() if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= MOST_BYTES


def test_those_of_gpus_have_both_formats_and_both_splits():
    found = rows(subset.HARDWARE)
    assert {row["id"] for row in found} == expected(subset.HARDWARE).keys()
    assert {(row["backend"], row["split"]) for row in found} == {
        (backend, split) for backend in ("torch", "nsys") for split in ("open", "sealed")
    }
    assert all(member_bytes <= MOST_OF_A_RANK for member_bytes in sizes(subset.HARDWARE))
    assert all(path.stat().st_size <= MOST_OF_A_FILE for path in subset.HARDWARE.iterdir())


def test_one_is_called_what_it_is_called_in_the_list():
    row = next(row for row in rows() if expected()[row["id"]].get("place") == 1)
    assert subset.outcome(row, members(subset.CAPTURES)) == expected()[row["id"]]


def some(rows):
    """Of each cause and format the first and the last: others take minutes more.

    `python -m benchmarks.slowbench subset` writes down what is said of all of them.
    """
    groups = {}
    for row in rows:
        causes = tuple(cause["id"] for cause in row["causes"])
        groups.setdefault((causes, row["backend"]), []).append(row)
    return [each[place] for each in groups.values() for place in {0, len(each) - 1}]


@pytest.mark.slow
@pytest.mark.parametrize("folder", [subset.CAPTURES, subset.HARDWARE], ids=["cpu", "h200"])
def test_classes_causes_and_alarms_get_no_worse(folder):
    before, where = expected(folder), members(folder)
    found = {
        row["id"]: subset.worse(before[row["id"]], subset.outcome(row, where))
        for row in some(rows(folder))
    }
    assert len(found) > len(rows(folder)) / 3
    assert {case: reasons for case, reasons in found.items() if reasons} == {}


def test_the_rank_whose_loader_is_late_without_the_profiler_is_named():
    """Two H100s; the five steps of the recording have their batches ready."""
    bundle, names = members(subset.HARDWARE)["documents-straggler-loader-s8n3-torch"]
    with unpacked(bundle, names) as files:
        report = traceprobe.analyze([traceprobe.load(path) for path in files])
    assert (report.run.straggler_rank, report.run.straggler_cause) == (1, "io")
    found = {finding.id: finding for finding in report.findings}
    timed = [rank.timed_wait_ms for rank in report.ranks]
    assert timed[1] > 20 > 1 > timed[0]
    assert (
        f"where the loop's waits were timed: {timed[1]:.1f} ms on rank 1, {timed[0]:.4f} ms on "
        "rank 0" in found["data-wait"].evidence[0]
    )
    assert "rank 1, whose loader is late" in " ".join(found["communication-skew"].evidence)
    longest = report.critical_path.parts[0]
    assert (longest.part, longest.rank) == ("data-wait", 1)
    assert longest.ms > report.critical_path.step_ms / 2


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
