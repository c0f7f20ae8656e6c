"""The templates are found from a source tree and from a wheel."""

from __future__ import annotations

import pytest

from traceprobe.report import resources


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder that the module believes it is installed in."""
    module = tmp_path / "traceprobe" / "report" / "resources.py"
    monkeypatch.setattr(resources, "__file__", str(module))
    return tmp_path


def put(folder):
    folder.mkdir(parents=True)
    (folder / "report.html.j2").touch()
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
