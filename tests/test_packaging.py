"""The frame: version, folders beside the package, what a start costs."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import traceprobe
from traceprobe.cli.commands import LISTED
from traceprobe.render.resources import templates_dir

ROOT = Path(__file__).resolve().parents[1]
HEAVY = ("altair", "pandas", "torch")
NEEDLESS_IN_HELP = (*HEAVY, "jinja2", "msgspec", "numpy", "polars", "pydantic", "rich")
NEEDLESS_IN_ANALYSIS = {
    *(*HEAVY, "jinja2", "multiprocessing", "pydantic", "rich", "tomllib"),
    *("traceprobe.capture", "traceprobe.hang", "traceprobe.watch", "traceprobe.whatif"),
}
"""Of one file without a page; `jinja2` fills in the page."""
UNUSED_BY_ONE_FILE = {
    *("traceprobe.cli.nccl_records", "traceprobe.ingest.nccl", "traceprobe.ingest.nsight"),
    *("traceprobe.pipeline.dask", "traceprobe.pipeline.nccl_records", "traceprobe.render.html"),
    "traceprobe.pipeline.parallel",
}
DATACLASSES = ("traceprobe.options.",)
"""Where one is left. Making one takes 0.8 ms, and a struct of msgspec 0.02 ms."""
SELDOM_MATCHED = {
    *("traceprobe.vocabulary", "traceprobe.findings.vendors", "traceprobe.timeline.kernel_period"),
    *("traceprobe.ingest.collective_metadata", "traceprobe.ingest.profiler_messages"),
}
"""Modules whose regular expressions are compiled when a trace asks for them."""
MADE = """
import json, re, sys
from traceprobe.cli import main
try:
    main()
except SystemExit as end:
    assert not end.code, end.code

def compiled(value):
    if isinstance(value, (list, tuple)):
        return any(map(compiled, value))
    return isinstance(value, re.Pattern)

ours = {name: vars(module) for name, module in sys.modules.items() if "traceprobe." in name}
classes = [c for names in ours.values() for c in names.values() if isinstance(c, type)]
json.dump({
    "modules": [*sys.modules],
    "dataclasses": sorted(
        {f"{c.__module__}.{c.__name__}" for c in classes if "__dataclass_fields__" in vars(c)}
    ),
    "expressions": [name for name, names in ours.items() if compiled([*names.values()])],
}, sys.stdout)
"""


def modules_after(*arguments):
    """Modules, and what they are in, that an interpreter has loaded after running `arguments`."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *arguments],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    names = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    return {".".join(name.split(".")[:depth]) for name in names for depth in (1, 2)}


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


@pytest.mark.parametrize("arguments", [["--help"], ["analyze", "--help"], ["profile", "--help"]])
def test_help_loads_nothing_that_a_command_works_with(arguments):
    loaded = modules_after("-m", "traceprobe", *arguments)
    assert loaded.isdisjoint(NEEDLESS_IN_HELP)
    ours = {name for name in loaded if name.startswith("traceprobe.")}
    assert ours <= {f"traceprobe.{name}" for name in ("cli", "errors", "system", "version")}


@pytest.mark.parametrize("name", ["h200_unet_w1.json.gz", "h200_ddp2_gpt2_sock.sqlite.gz"])
def test_an_analysis_of_one_file_loads_nothing_that_it_does_not_need(name, tmp_path):
    trace, target = ROOT / "sample_traces" / name, tmp_path / "out.json"
    loaded = modules_after("-m", "traceprobe", "analyze", "-q", str(trace), "-o", str(target))
    assert target.exists()
    assert "polars" in loaded
    assert loaded.isdisjoint(NEEDLESS_IN_ANALYSIS)


def test_an_analysis_makes_nothing_as_it_starts_that_takes_long(tmp_path):
    trace, target = ROOT / "sample_traces" / "h200_unet_w1.json.gz", tmp_path / "out.json"
    done = subprocess.run(
        [sys.executable, "-c", MADE, "analyze", "-q", str(trace), "-o", str(target)],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    assert target.exists()
    made = json.loads(done.stdout)
    assert {*made["modules"]}.isdisjoint(UNUSED_BY_ONE_FILE)
    assert not [name for name in made["dataclasses"] if not name.startswith(DATACLASSES)]
    assert {*made["expressions"]}.isdisjoint(SELDOM_MATCHED)
    assert "traceprobe.model.kernel_classes" in made["expressions"]


def test_a_command_is_started_without_the_others():
    code = (
        "import sys; from traceprobe.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print(*(name for name in sys.modules if name.startswith('traceprobe.cli.')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "render", "absent.json"],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    assert "absent.json" in done.stderr
    loaded = {name.rpartition(".")[2] for name in done.stdout.split()}
    assert loaded & {*LISTED} == {"render"}


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
