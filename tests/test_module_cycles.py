"""The check for circles of imports finds one wherever it hides."""

from __future__ import annotations

import importlib.util
from itertools import pairwise

import pytest

from tests.conftest import ROOT

HIDDEN = {
    "at the top": "import pack.a",
    "of a name": "from pack.a import name",
    "of the module": "from pack import a",
    "inside a function": "def f():\n    from pack import a",
    "for types only": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import pack.a",
    "by a name": "from importlib import import_module\nimport_module('pack.a')",
}


@pytest.fixture(scope="module")
def check():
    path = ROOT / "scripts" / "check_cycles.py"
    spec = importlib.util.spec_from_file_location("check_cycles", path)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


@pytest.fixture
def package(tmp_path):
    """Three modules in a row."""
    folder = tmp_path / "pack"
    folder.mkdir()
    (folder / "__init__.py").write_text("from pack.a import name")
    (folder / "a.py").write_text("import os\nfrom pack.b import x\nname = x")
    (folder / "b.py").write_text("from pack import c\nx = c")
    (folder / "c.py").write_text("from os import path")
    return folder


def test_a_row_is_no_circle(check, package):
    imports = check.imports_of(package)
    assert imports == {
        "pack": {"pack.a"},
        "pack.a": {"pack.b"},
        "pack.b": {"pack.c"},
        "pack.c": set(),
    }
    assert check.cycle_of(imports) is None


@pytest.mark.parametrize("source", HIDDEN.values(), ids=HIDDEN)
def test_a_planted_circle_is_found_and_named(check, package, source, monkeypatch, capsys):
    (package / "c.py").write_text(source)
    monkeypatch.setattr("sys.argv", ["check_cycles", str(package)])
    assert check.main() == 1
    told = capsys.readouterr().out.strip().rpartition(": ")[2].split(" → ")
    assert told[0] == told[-1]
    assert set(told) == {"pack.a", "pack.b", "pack.c"}
    assert all(b in check.imports_of(package)[a] for a, b in pairwise(told))
