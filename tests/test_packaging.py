"""The frame: version, folders beside the package, what a start costs."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import traceprobe
from traceprobe.render.resources import templates_dir

ROOT = Path(__file__).resolve().parents[1]
HEAVY = ("altair", "pandas", "torch")


def modules_after(*arguments):
    """Top-level modules that a fresh interpreter has loaded after running with `arguments`."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *arguments],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    return {line.rpartition("|")[2].strip().split(".")[0] for line in done.stderr.splitlines()}


def test_the_demo_shows_a_gpus_report_before_anything_heavy_is_installed(tmp_path):
    done = subprocess.run(
        ["make", "--dry-run", "demo", f"VENV={tmp_path}/venv"],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    shown = done.stdout.index("traceprobe sample_traces/h200_unet_w1.json.gz")
    assert shown < done.stdout.index("[torch]") < done.stdout.index("traceprobe profile")
    assert "torch" not in done.stdout[:shown]


@pytest.mark.parametrize(
    "arguments",
    [
        ("-c", "import traceprobe"),
        ("-m", "traceprobe", "--help"),
        ("-m", "traceprobe", "analyze", "--help"),
        ("-m", "traceprobe", "--version"),
    ],
    ids=" ".join,
)
def test_a_start_loads_no_heavy_module(arguments):
    loaded = modules_after(*arguments)
    assert "traceprobe" in loaded
    assert loaded.isdisjoint(HEAVY)


def test_the_guard_above_can_see_a_heavy_module():
    assert "pandas" in modules_after("-c", "import pandas")


def test_every_exported_name_exists():
    assert sorted(traceprobe.__all__) == list(traceprobe.__all__)
    assert [name for name in traceprobe.__all__ if not hasattr(traceprobe, name)] == []


def test_templates_come_from_the_source_tree():
    assert templates_dir() == ROOT / "templates"


def test_workloads_lie_beside_the_templates():
    assert (ROOT / "workloads" / "README.md").is_file()


@pytest.mark.parametrize("command", [[sys.executable, "-m", "traceprobe"], ["traceprobe"]])
def test_version_is_the_only_thing_printed(command):
    if command == ["traceprobe"]:
        command = [str(Path(sys.executable).with_name("traceprobe"))]
        if not Path(command[0]).exists():
            pytest.skip("traceprobe is not installed in this environment")
    done = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.split()[-1] == traceprobe.__version__
    assert re.fullmatch(r"\d+\.\d+\.\d+\S*", traceprobe.__version__)
    assert done.stderr == ""


def test_every_dependency_has_a_reason_in_the_changelog():
    frame = (ROOT / "pyproject.toml").read_text()
    listed = re.search(r"^dependencies = \[(.*?)^\]", frame, re.DOTALL | re.MULTILINE)
    names = re.findall(r'"([a-z0-9]+)[><=]', listed[1])
    changelog = (ROOT / "CHANGELOG.md").read_text()
    assert len(names) == 9
    assert [name for name in names if f"`{name}`" not in changelog] == []


def test_altair_writes_for_the_vendored_vega_lite():
    import altair

    vendored = json.loads((ROOT / "templates" / "vendor" / "VERSIONS.json").read_text())
    (version,) = (p["version"] for p in vendored["load_order"] if p["package"] == "vega-lite")
    assert version == altair.VEGALITE_VERSION
