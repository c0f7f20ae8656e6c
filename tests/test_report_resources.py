"""The templates are found from a source tree and from a wheel, and kept compiled."""

from __future__ import annotations

import marshal
import pickle
import sys
from importlib.util import cache_from_source
from pathlib import Path

import pytest
from jinja2 import DictLoader, Environment
from jinja2.bccache import bc_magic

from traceprobe.render import compiled, resources


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder that the module believes it is installed in."""
    module = tmp_path / "traceprobe" / "report" / "resources.py"
    monkeypatch.setattr(resources, "__file__", str(module))
    return tmp_path


def put(folder):
    folder.mkdir(parents=True)
    (folder / "page.html.j2").touch()
    return folder


def test_source_tree_has_them_beside_the_package(site):
    folder = put(site / "templates")
    assert resources.templates_dir() == folder


def test_wheel_has_them_inside_the_package_and_those_win(site):
    put(site / "templates")
    folder = put(site / "traceprobe" / "templates")
    assert resources.templates_dir() == folder


def test_incomplete_installation_says_where_it_looked(site):
    with pytest.raises(FileNotFoundError, match="installed without") as caught:
        resources.templates_dir()
    assert str(site / "templates") in str(caught.value)


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """The folder in which the compiled page is kept, and what renders a page."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path))
    folder = Path(cache_from_source(compiled.__file__)).parent
    folder.mkdir(parents=True)
    text = {"page": "one {{ 1 + 1 }}"}

    def render():
        loader = DictLoader(text)
        return Environment(loader=loader, bytecode_cache=compiled.Compiled()).get_template("page")

    return folder, text, lambda: render().render()


def test_the_compiled_page_is_kept_and_used_again(kept):
    folder, _, render = kept
    assert render() == "one 2"
    (file,) = folder.iterdir()
    other = Environment().compile("other {{ 2 }}")
    before = file.read_bytes()
    head = before[: len(bc_magic) + len(pickle.dumps("0" * 40, 2))]
    file.write_bytes(head + marshal.dumps(other))
    assert render() == "other 2"


@pytest.mark.parametrize("content", [b"", b"junk", bc_magic + b"\x80"])
def test_a_damaged_compiled_page_is_made_again(kept, content):
    folder, _, render = kept
    render()
    (file,) = folder.iterdir()
    whole = file.read_bytes()
    file.write_bytes(content)
    assert render() == "one 2"
    assert [f.read_bytes() for f in folder.iterdir()] == [whole]


def test_a_changed_page_is_compiled_again(kept):
    folder, text, render = kept
    render()
    text["page"] = "two {{ 1 + 1 }}"
    assert render() == "two 2"
    assert len(list(folder.iterdir())) == 1


def test_nothing_is_kept_where_python_keeps_nothing(kept, monkeypatch):
    folder, _, render = kept
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    assert render() == "one 2"
    assert not list(folder.iterdir())
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    folder.rmdir()
    assert render() == "one 2"
