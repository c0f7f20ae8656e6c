"""The public surface: what can be imported, what it takes and raises, and its documentation."""

from __future__ import annotations

import dataclasses
import inspect
import os
import re
import subprocess
import sys
import typing
from pathlib import Path

import msgspec
import pytest

import traceprobe
from tests.cli_runner import LOOP, environment, write_trace
from tests.conftest import ROOT
from tests.saved_records import record_types
from traceprobe.errors import UnsupportedInput, UsageError
from traceprobe.records.report import Report
from traceprobe.timeline.phases import RANGE_NAMES
from traceprobe.verdict import Thresholds

PAGE = (ROOT / "docs" / "library.md").read_text(encoding="utf-8")
ERRORS = (
    *("UnsupportedInput", "DamagedInput", "EmptyTrace", "DamagedRecord", "OtherVersion"),
    *("UsageError", "ImpossibleChange", "InternalError"),
)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return write_trace(tmp_path_factory.mktemp("library") / "run.json")


@pytest.fixture(scope="module")
def trace(path):
    return traceprobe.load(path)


@pytest.fixture(scope="module")
def report(trace):
    return traceprobe.analyze(trace)


def test_the_public_names_are_sorted_and_importable():
    assert list(traceprobe.__all__) == sorted(set(traceprobe.__all__))
    space: dict = {}
    exec("from traceprobe import *", space)
    assert set(traceprobe.__all__) <= space.keys()


@pytest.mark.parametrize("name", traceprobe.__all__)
def test_public_names_are_documented(name):
    if name == "__version__":
        return
    thing = getattr(traceprobe, name)
    assert len(inspect.getdoc(thing).splitlines()[0]) > 10
    assert f"`{name}" in PAGE or f".{name}" in PAGE


def test_a_name_that_does_not_exist():
    with pytest.raises(AttributeError, match="nonsense"):
        traceprobe.nonsense  # noqa: B018


def test_every_error_is_a_traceprobe_error():
    assert issubclass(traceprobe.TraceprobeError, Exception)
    for name in ERRORS:
        assert getattr(traceprobe, name).__bases__ == (traceprobe.TraceprobeError,)
        assert f"── {name}" in traceprobe.__doc__
    assert re.findall(r"^\| `(\w+)` \|", PAGE.partition("## Errors")[2], re.M) == [*ERRORS]


@pytest.mark.parametrize("module", ["traceprobe", "traceprobe.cli"])
@pytest.mark.parametrize("heavy", ["polars", "pandas", "altair", "torch", "numpy", "msgspec"])
def test_an_import_loads_nothing_that_takes_long(module, heavy):
    code = f"import sys, {module}; sys.exit({heavy!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], env=environment()).returncode == 0


@pytest.mark.parametrize("reader", ["kineto", "nsight"])
def test_a_file_is_being_read_before_what_analyses_it_is_imported(reader):
    code = f"import sys, traceprobe.ingest.{reader}.read; sys.exit('polars' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], env=environment()).returncode == 0


def test_options_are_frozen_and_documented():
    names = [field.name for field in dataclasses.fields(traceprobe.Options)]
    section = PAGE.partition("field of `Options`")[2].partition("```")[0]
    assert re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE) == names
    for name in names:
        assert f"{name}:" in traceprobe.Options.__doc__
    with pytest.raises(dataclasses.FrozenInstanceError):
        traceprobe.Options().rank = 1


def test_the_defaults_change_nothing(trace, report):
    assert traceprobe.analyze(trace, traceprobe.Options()) == report
    assert traceprobe.analyze([trace]) == report
    assert report.verdict.thresholds == Thresholds().as_dict()


def test_who_gives_a_path_is_told_what_to_give():
    for wrong in ("run.json", Path("run.json"), ["run.json"], [None]):
        with pytest.raises(UsageError, match=r"traceprobe\.analyze\(traceprobe\.load\(path\)\)"):
            traceprobe.analyze(wrong)


def test_thresholds_are_options(trace, report):
    share = report.verdict.shares[report.verdict.bound]
    higher = traceprobe.Options(thresholds=Thresholds(bound=share + 0.01))
    changed = traceprobe.analyze(trace, higher).verdict
    assert (report.verdict.bound, changed.bound) == ("io", "inconclusive")
    assert "judge by a lower threshold" in changed.missing[0]
    assert changed.thresholds["bound"] == share + 0.01
    assert changed.shares == report.verdict.shares


@pytest.mark.parametrize(
    "options",
    [
        {"step": "("},
        {"step": "matches nothing"},
        {"phases": {"sideways": "x"}},
        {"phases": {"forward": "("}},
        {"steps": (100, 200)},
        {"rank": 5},
        {"unprofiled_step_ms": 0.0},
        {"unprofiled_step_ms": float("nan")},
        {"unprofiled_step_ms": float("inf")},
    ],
    ids=str,
)
def test_options_that_make_no_sense(trace, options):
    with pytest.raises(traceprobe.UsageError):
        traceprobe.analyze(trace, traceprobe.Options(**options))


def test_every_phase_name_is_an_option(trace):
    for name in RANGE_NAMES:
        traceprobe.analyze(trace, traceprobe.Options(phases={name: "some other name"}))


def test_no_input_at_all():
    with pytest.raises(traceprobe.UsageError):
        traceprobe.analyze([])


def test_load_takes_a_path_or_a_string_and_reports_progress(path, trace):
    seen = []
    again = traceprobe.load(str(path), lambda done, total: seen.append((done, total)))
    assert again.origin == trace.origin
    assert again.gpu_ops.equals(trace.gpu_ops)
    size = path.stat().st_size
    assert seen[-1] == (size, size)
    assert seen == sorted(seen)


def test_load_does_not_touch_its_input(path):
    before = path.stat().st_mtime_ns, sorted(path.parent.iterdir())
    traceprobe.load(path)
    assert (path.stat().st_mtime_ns, sorted(path.parent.iterdir())) == before


def test_load_of_a_file_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError):
        traceprobe.load(tmp_path / "absent.json")


def test_the_trace_is_not_changed_by_an_analysis(path, trace, report):
    assert traceprobe.load(path).gpu_ops.equals(trace.gpu_ops)
    assert traceprobe.analyze(trace).to_json() == report.to_json()


def test_every_output_is_text(report):
    assert report.to_json().startswith("{\n")
    assert report.to_html().startswith("<!doctype html>")
    assert report.to_markdown().startswith("#")


def test_a_report_can_be_read_back(report):
    again = traceprobe.Report.from_json(report.to_json())
    assert again == report
    assert traceprobe.Report.from_json(report.to_json().encode()) == report
    for render in ("to_json", "to_html", "to_markdown"):
        assert getattr(again, render)() == getattr(report, render)()


def test_text_that_is_no_report():
    with pytest.raises(msgspec.DecodeError):
        traceprobe.Report.from_json("no")
    with pytest.raises(msgspec.ValidationError, match="schema_version"):
        traceprobe.Report.from_json("{}")


def test_a_reader_ignores_what_a_later_version_adds(report):
    text = report.to_json().replace('"findings": [', '"added_later": {"a": [1]}, "findings": [', 1)
    assert traceprobe.Report.from_json(text) == report


def test_records_are_frozen(report):
    with pytest.raises(AttributeError):
        report.verdict.bound = "compute"
    records = record_types()
    assert len(records) > 50
    assert [r.__name__ for r in records if not r.__struct_config__.frozen] == []


def test_signatures_are_typed():
    for function in (traceprobe.load, traceprobe.analyze, *public_methods(traceprobe.Report)):
        assert "return" in function.__annotations__, function
        assert inspect.getdoc(function), function
    assert "bytes" in traceprobe.load.__doc__
    assert "ns" in traceprobe.analyze.__doc__


def public_methods(kind):
    return [
        getattr(kind, name)
        for base in kind.__mro__
        if base.__module__.startswith("traceprobe.")
        for name, thing in vars(base).items()
        if not name.startswith("_") and isinstance(thing, (typing.Callable, classmethod))
    ]


def test_the_examples_of_the_documentation_run(monkeypatch, capsys):
    """All of them in one session, from the root of the source tree, as they are printed."""
    monkeypatch.chdir(ROOT)
    space: dict = {}
    examples = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    assert len(examples) >= 4
    for example in examples:
        exec(compile(example, "docs/library.md", "exec"), space)
    printed = capsys.readouterr().out
    assert space["report"].verdict.bound == "io"
    assert "data-wait" in printed
    assert "README.md: is neither a Chrome trace" in printed


def test_the_example_of_the_contract_runs():
    page = (ROOT / "docs" / "report-json.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    space: dict = {}
    exec(compile(example, "docs/report-json.md", "exec"), space)
    assert space["schema"]["$id"] == f"urn:traceprobe:report:{Report.SCHEMA_VERSION}"


def test_the_loop_of_these_tests_is_bound_by_io(report):
    expected = LOOP.expected()
    assert report.verdict.shares["io"] == pytest.approx(expected.shares["io"], abs=1e-5)


def test_a_pipe_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "trace.json")
    with pytest.raises(UnsupportedInput, match="is not a regular file"):
        traceprobe.load(tmp_path / "trace.json")
