"""The catalogue of damage names tests that exist, and a share of `python -m tests.damage`."""

from __future__ import annotations

import ast
import re

import pytest

from tests.analyses import SAMPLES
from tests.conftest import ROOT
from tests.damage import kineto, nsight
from tests.damage.reading import attempt, cases, read

PAGE = (ROOT / "docs" / "damaged-input.md").read_text(encoding="utf-8")
REPORT = (ROOT / "docs" / "report-json.md").read_text(encoding="utf-8")
NAMED = re.findall(r"`(tests/\w+\.py)::(\w+)`", PAGE)
SMALL = sorted(SAMPLES, key=lambda path: path.stat().st_size)[:6]
SHARE = cases(SMALL, 8)


def test_the_catalogue_is_not_empty():
    assert len(NAMED) > 70
    rows = [line for line in PAGE.splitlines() if line.count(" | ") >= 2 and "`tests/" not in line]
    assert all(re.match(r"\| (-+|symptom|limit|hostile|`\w+`)", row) for row in rows), rows


@pytest.mark.parametrize("file", sorted({file for file, _ in NAMED}))
def test_every_test_of_the_catalogue_exists(file):
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    assert {name for named, name in NAMED if named == file} <= defined


def test_every_code_of_the_catalogue_is_a_warning():
    cells = re.findall(r"^\|[^|]*\|[^|]*\| ([^|]*) \| `tests/", PAGE, re.MULTILINE)
    codes = {code for cell in cells for code in re.findall(r"`([a-z]+(?:-[a-z]+)+)`", cell)}
    documented = REPORT.partition("## Warning codes")[2]
    assert len(codes) > 10
    assert [code for code in sorted(codes) if f"| `{code}` |" not in documented] == []


def test_there_are_many_kinds_of_damage():
    assert len(kineto.DAMAGE) > 50
    assert len(nsight.DAMAGE) > 100


@pytest.mark.parametrize("sample", SMALL[:2], ids=lambda path: path.name)
def test_an_undamaged_file_gives_a_report(sample):
    assert attempt(sample.name, sample).word == "report"


@pytest.mark.slow
@pytest.mark.parametrize("case", SHARE, ids=str)
def test_a_damaged_file_gives_a_report_or_one_line(tmp_path, case):
    outcome = read(tmp_path, case)
    assert outcome.word in ("report", "refused"), outcome.detail
