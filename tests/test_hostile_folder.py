"""Nothing that lies in the working folder is executed, whatever it is called.

Every command runs inside a folder that has a module for each name that anything of ours imports.
"""

from __future__ import annotations

import pkgutil
import re
import sys

import pytest
import typer.main

from tests.cli_runner import LOOP, MODULE, SCRIPT, Done, needs_workers_of_dask, spawn, write_trace
from tests.conftest import ROOT
from tests.flight_records import absent
from traceprobe.cli import app

EXECUTED = "EXECUTED"
HOSTILE = f"open({EXECUTED!r}, 'a').write(__name__ + ' ')\nraise SystemExit('executed')\n"
NAMES = (
    set(sys.stdlib_module_names)
    | {module.name for module in pkgutil.iter_modules()}
    | {path.stem for path in (ROOT / "workloads").glob("*.py")}
    | {"torch", "distributed", "dask", "fsspec", "sitecustomize", "usercustomize", "traceprobe"}
    | {"org", "pyarrow", "_polars_runtime_32", "_polars_runtime_64", "_polars_runtime_compat"}
    | {"_wmi"}  # which platform.py of Python 3.12 looks for on every system
)
RANKS = ["analyze", "rank*.json", "--jobs", "2", "-q", "-f"]
FOR_TORCH = ["--size", "tiny", "--workers", "0"]
LADDER = """
name = "mine"
workload = "tiny-mlp"

[profile]
backend = "torch"
warmup = 1
calibrate = 3
active = 3

[[rungs]]
name = "one"
change = "none"
"""
COMMANDS = {
    "analyze": [
        [*RANKS, "-o", "a.html", "-o", "a.md", "--cache", "kept"],
        ["analyze", "run.sqlite.gz", "-q", "-f", "-o", "b.json"],
        ["analyze", "folder", "--redact", "-q", "-f", "-o", "-"],
    ],
    "inspect": [
        ["inspect", "run.sqlite.gz"],
        ["inspect", "--anonymise", "run.json", "-f", "-o", "copy.json.gz"],
        ["inspect", "--anonymise", "run.sqlite.gz", "-f", "-o", "copy.sqlite"],
    ],
    "render": [["render", "report.json", "-f", "-o", "c.html"], ["render", "report.json"]],
    "doctor": [["doctor"], ["doctor", "run.json"], ["doctor", "run.sqlite.gz"]],
    "compare": [["compare", "report.json", "folder", "-f", "-o", "d.html"]],
    "ladder": [["ladder", "run.json", "folder", "-f", "-o", "e.md"]],
    "scaling": [["scaling", "run.json", "folder", "--mode", "weak", "-f", "-o", "f.html"]],
    "gpus": [["gpus", "run.json", "folder", "-f", "-o", "g.html"]],
    "whatif": [
        ["whatif", ".", "--remove", "host", "-f", "-o", "h.html"],
        ["whatif", "rank*.json", "-f", "-o", "h.md"],
    ],
    "top": [["top", "run.json", "--by", "kernel"]],
    "roofline": [["roofline", "run.json", "--flops-per-step", "1e9", "-f", "-o", "i.html"]],
    "annotate": [["annotate", "run.json", "-f", "-o", "annotated.json.gz"]],
    "hang": [["hang", "dumps", "-f", "-o", "l.html"]],
    "slice": [["slice", "run.json", "--steps", "1:4", "-f", "-o", "part.json.gz"]],
}
WITH_TORCH = {
    "roofline": [["roofline", "--measure", "-f", "-o", "peaks.json"]],
    "profile": [
        ["profile", "-w", "tiny-mlp", "-f", "-o", "profiled", *FOR_TORCH],
        ["profile", "-w", "tiny-mlp", "--settings"],
    ],
    "bench": [["bench", "-w", "tiny-mlp", "--trials", "1", "--seconds", "0.01", "-f", *FOR_TORCH]],
    "watch": [["watch", "-w", "tiny-mlp", "-f", "-o", "w.json", *FOR_TORCH]],
    "memory": [["memory", "-w", "tiny-mlp", "-f", "-o", "m.json", *FOR_TORCH]],
    "sweep": [["sweep", "ladder.toml", "-f", "-o", "swept", *FOR_TORCH]],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Traces, a report, a ladder, and modules that tell when they are executed."""
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "folder").mkdir()
    (folder / "dumps").mkdir()
    absent().write(folder / "dumps")
    for name in ("run.json", "run.sqlite.gz"):
        write_trace(folder / name)
    for number in range(2):
        loop = type(LOOP)(**{**vars(LOOP), "process": type(LOOP.process)(1 + number, rank=number)})
        for where in ("", "folder/"):
            write_trace(folder / f"{where}rank{number}.json", loop)
    spawn("analyze", "run.json", "-q", "-o", "report.json", cwd=folder).expect(0)
    (folder / "ladder.toml").write_text(LADDER)
    for name in NAMES | imported_first(folder):
        (folder / f"{name}.py").write_text(HOSTILE)
    return folder


def imported_first(folder, code: str = "") -> set[str]:
    """Names that Python itself looks for before the first line of a program, and some code does."""
    variables = {"PYTHONPROFILEIMPORTTIME": "1"}
    return imported(spawn("-c", code, cwd=folder / "folder", command=MODULE[:1], env=variables))


def attacked(folder, *arguments, command=SCRIPT, **variables) -> Done:
    """How a command ended that found nothing to execute."""
    done = spawn(*arguments, cwd=folder, command=command, env=variables)
    executed = folder / EXECUTED
    assert not executed.exists(), (executed.read_text(), executed.unlink())
    return done


def test_the_trap_works(folder):
    spawn("-c", "import torch", cwd=folder, command=MODULE[:1])
    assert "torch" in (folder / EXECUTED).read_text()
    (folder / EXECUTED).unlink()


def test_every_command_is_attacked():
    assert {*COMMANDS, *WITH_TORCH} >= set(typer.main.get_command(app).commands)


def imported(done: Done) -> set[str]:
    """Names that a command says it imported."""
    return set(re.findall(r"^import time:.*\| *([\w-]+)", done.err, re.MULTILINE))


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments", [c for commands in COMMANDS.values() for c in commands], ids=" ".join
)
def test_no_command_executes_what_lies_in_the_folder(folder, arguments):
    done = attacked(folder, *arguments, PYTHONPROFILEIMPORTTIME="1")
    assert imported(done) <= NAMES | imported_first(folder)
    assert "msgspec" in imported(done)
    # The doctor may find something wrong with the machine of the tests.
    done.expect(min(done.code, 1) if arguments[0] == "doctor" else 0)


@pytest.mark.slow
@pytest.mark.usefixtures("pytorch")
@pytest.mark.parametrize(
    "arguments", [c for commands in WITH_TORCH.values() for c in commands], ids=" ".join
)
def test_no_command_that_runs_a_built_in_workload_does(folder, arguments):
    attacked(folder, *arguments).expect(0)


@pytest.mark.slow
@pytest.mark.usefixtures("pytorch")
def test_no_question_to_pytorch_is_answered_by_the_folder(folder, monkeypatch):
    from traceprobe.capture.machine.visible_gpus import visible_gpus
    from traceprobe.doctor.gather import probe

    monkeypatch.chdir(folder)
    assert visible_gpus() >= 0
    assert probe().state == "ok"
    assert not (folder / EXECUTED).exists()


@pytest.mark.slow
def test_workers_of_dask_execute_nothing_of_the_folder(folder):
    needs_workers_of_dask()
    attacked(folder, *RANKS, "-o", "j.json", "--dask", "local:1").expect(0)


def test_before_python_3_11_local_workers_are_refused(tmp_path, monkeypatch):
    from traceprobe import UsageError
    from traceprobe.pipeline import dask as on_dask

    monkeypatch.setattr(on_dask.sys, "version_info", (3, 10, 13))
    with (
        pytest.raises(UsageError, match=r"--dask local:N needs Python 3\.11"),
        on_dask._safe_path(),
    ):
        pytest.fail("no worker may be started")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "path"), [(SCRIPT, ":after"), (SCRIPT, "."), (MODULE, "")], ids=str
)
def test_only_python_itself_imports_from_an_import_path_with_the_folder(folder, command, path):
    """Python puts it there for `-m` and for an empty entry, and imports before we can leave it."""
    begun = "import re, sys" if command == SCRIPT else "import sys, runpy"
    own = imported_first(folder, begun) | {"sitecustomize", "usercustomize", "traceprobe"}
    variables = {"PYTHONPATH": path or str(ROOT)}
    command = (*command, *RANKS, "-o", "k.json")
    aside(folder, own, lambda: attacked(folder, command=command, **variables).expect(0))


def aside(folder, names, call) -> None:
    """Call something while modules of some names are not there."""
    files = [path for path in folder.glob("*.py") if path.stem in names]
    for path in files:
        path.unlink()
    try:
        call()
    finally:
        for path in files:
            path.write_text(HOSTILE)
