"""The reports of the sample traces, to the last digit; the ranks of one run in one report.

`pytest --update-goldens` accepts the reports as they are now; look at the diff before you commit
it. A golden is a report with some changes, so that it stays readable and below 60 kB:

- the version of traceprobe is left out;
- of the gaps and the operators of a rank the five longest stay;
- of the packed tables of a picture and a tree only rows and a digest of their numbers stay (what
  they deflate to depends on the library), of their names and of what `whatif` plays only a digest;
- what was cut is replaced by a count, a sum and a digest of the whole list, so that any change in
  it shows.

Integers depend on the trace alone. Floats are rounded by the product, beyond what libraries differ
in.
"""

from __future__ import annotations

import difflib
import hashlib
import json

import msgspec
import pytest

from tests.analyses import report_of, runs
from tests.conftest import ROOT
from traceprobe.records.packed import Table

GOLDENS = ROOT / "tests" / "goldens"
KEPT = 5
LARGEST = 75_000


def golden_of(report) -> str:
    content = json.loads(report.to_json())
    del content["traceprobe_version"]
    for finding in content["findings"]:  # the same in every report, and held against the page
        del finding["rule"], finding["verify"]
        for field in ("advice", "saving_ms_per_step"):  # most say nothing: without them, short
            if not finding[field]:
                del finding[field]
    for rank in content["ranks"]:
        lengths = [gap["end_ns"] - gap["start_ns"] for gap in rank["gaps"]]
        rank["gaps"] = cut(rank["gaps"], lengths)
        if "replay" in rank:
            rank["replay"] = digest(rank["replay"])
        for sequence in rank["summary"].get("sequences", []):
            sequence["kernels"] = digest(sequence["kernels"])
        if "operators" in rank["summary"]:
            called = rank["summary"]["operators"]
            rank["summary"]["operators"] = cut(called, [each["device_ns"] for each in called])
        rank["picture"]["names"] = digest(rank["picture"]["names"])
        rank["tree"] = {
            "names": digest(rank["tree"]["names"]),
            "nodes": numbers_of(rank["tree"]["nodes"]),
        }
        for window in rank["picture"]["windows"]:
            for name in ("ops", "parts", "host"):
                window[name] = numbers_of(window[name])
    if "critical_path" in content:
        content["critical_path"]["stretches"] = digest(content["critical_path"]["stretches"])
    separators = (",", ":")
    text = json.dumps(content, indent=1, separators=separators, sort_keys=True, ensure_ascii=False)
    return text + "\n"


def numbers_of(packed: dict) -> dict:
    """A packed table by its rows and a digest of its numbers."""
    table = msgspec.convert(packed, Table)
    numbers = {column: n.tolist() for column, n in table.columns().items()}
    return {"rows": table.rows, "sha256": digest(numbers)}


def cut(entries: list, lengths: list[int]):
    """The first entries and what identifies all of them; a short list as it is."""
    if len(entries) <= KEPT:
        return entries
    return {
        "first": entries[:KEPT],
        "count": len(entries),
        "total_ns": sum(lengths),
        "sha256": digest(entries),
    }


def digest(content) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def golden_file(run):
    return GOLDENS / f"{run.removesuffix('.gz')}.json"


@pytest.mark.parametrize("run", runs())
def test_golden(run, request):
    text, file = golden_of(report_of(*runs()[run])), golden_file(run)
    if request.config.getoption("--update-goldens"):
        GOLDENS.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
    assert file.is_file(), f"there is no {file.name}; pytest --update-goldens writes it"
    before, after = file.read_text(encoding="utf-8").splitlines(), text.splitlines()
    changes = [*difflib.unified_diff(before, after, "golden", "now", lineterm="", n=1)]
    assert not changes, "\n".join([*changes[:60], "pytest --update-goldens accepts all changes"])


def test_goldens_stay_small():
    assert [file.name for file in GOLDENS.iterdir() if file.stat().st_size > LARGEST] == []


def test_every_golden_has_a_sample():
    assert set(GOLDENS.iterdir()) == {golden_file(run) for run in runs()}


def test_a_change_in_what_was_cut_shows():
    entries = list(range(20))
    other = [*entries[:-1], 99]
    assert cut(entries, entries) != cut(other, entries)
    assert cut(entries[:3], entries[:3]) == entries[:3]
