"""Collecting the tests builds nothing, so that one test can be run in no time."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from tests.cli_runner import environment
from tests.conftest import CORPUS_FILES, HEAVY, ROOT

OF_A_TEST_MODULE = re.compile(r"^ *(?:from|import) tests\b.*\btest_\w+", re.MULTILINE)
"""An import of one, or from one."""
WATCH = """
import cProfile
import pstats
from pathlib import Path

import pytest

SOURCES = (
    *("tests/builders/kineto.py", "tests/builders/nsight.py", "traceprobe/compare/compare.py"),
    *("traceprobe/pipeline/", "traceprobe/ingest/"),
)


def called(profile):
    for path, line, name in pstats.Stats(profile).stats:
        defining = name.startswith("<") or name.lstrip("_")[:1].isupper()  # modules, classes
        making = any(source in path for source in SOURCES) or name == "scenario"
        if making and not defining:
            yield f"{Path(path).name}:{line} {name}"


@pytest.hookimpl(wrapper=True)
def pytest_collection(session):
    with cProfile.Profile() as profile:
        result = yield
    print("BUILT", sorted(called(profile)))
    return result
"""


def test_collecting_imports_nothing_that_takes_long(request):
    """Asked of the collection that led to this test."""
    assert request.config.stash[HEAVY] == set()


def test_one_worker_goes_through_the_corpus(request):
    files = {i.path.stem for i in request.session.items if "corpus_row" in i.fixturenames}
    assert files <= {f"test_{name}" for name in CORPUS_FILES}


def test_no_test_module_is_a_library():
    """What several of them need stands in a module of its own, beside them."""
    known = "from tests.test_cli import x\nimport tests.test_cli\n  from tests import test_cli"
    assert len(OF_A_TEST_MODULE.findall(known)) == 3
    sources = [path for name in ("tests", "benchmarks") for path in (ROOT / name).rglob("*.py")]
    found = {path.name: OF_A_TEST_MODULE.findall(path.read_text("utf-8")) for path in sources}
    assert {name: lines for name, lines in found.items() if lines} == {}


@pytest.mark.slow
def test_collecting_builds_no_trace_and_renders_no_page(tmp_path):
    (tmp_path / "watching.py").write_text(WATCH)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "watching", "--collect-only", "-q", "-s", "tests"],
        cwd=ROOT,
        env=environment(PYTHONPATH=os.pathsep.join((str(ROOT), str(tmp_path)))),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-2000:]
    [built] = [line for line in done.stdout.splitlines() if line.startswith("BUILT ")]
    assert built == "BUILT []"
