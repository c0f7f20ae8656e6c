"""SECURITY.md names tests that exist."""

from __future__ import annotations

import ast
import re

import pytest

from tests.conftest import ROOT

PAGE = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py(?:::\w+)?)`", PAGE)))


def test_every_promise_names_a_test():
    rows = [line for line in PAGE.splitlines() if line.startswith("| ")][2:]
    assert len(rows) >= 10
    cells = [row.strip("| ").split(" | ") for row in rows]
    assert [promise for promise, *_, tests in cells if not tests.startswith("`tests/")] == []


@pytest.mark.parametrize("name", NAMED)
def test_every_named_test_exists(name):
    file, _, test = name.partition("::")
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    defined = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    assert not test or test in defined
    assert test or defined


def test_it_says_how_to_report_without_an_address():
    assert "Report a vulnerability" in PAGE
    assert not re.search(r"[\w.]+@[\w.]+", PAGE)
