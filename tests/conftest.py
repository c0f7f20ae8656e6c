"""What every test gets: a clean environment, the sample traces and, where there is one, the corpus.

The corpus holds traces that may be tested with but not passed on. Tests that need it take the
fixture `corpus` (its folder) or `corpus_row` (one entry of its manifest; such a test runs once for
each). They are slow. They are skipped where it is absent, unless TRACEPROBE_REQUIRE_CORPUS=1 says
that it must be there.
"""

from __future__ import annotations

import gc
import importlib.util
import json
import os
import signal
import sys
from pathlib import Path

import pytest

pytest.register_assert_rewrite(
    *("tests.builders.truth", "tests.cli_runner", "tests.drawn_timelines", "tests.operands"),
    *("tests.parsed_page", "tests.processes"),
)

ROOT = Path(__file__).resolve().parents[1]
CORPUS = Path(os.environ.get("TRACEPROBE_CORPUS") or ROOT.parent / "shared" / "corpus")
REQUIRED = os.environ.get("TRACEPROBE_REQUIRE_CORPUS") == "1"
TORCH_REQUIRED = os.environ.get("TRACEPROBE_REQUIRE_TORCH") == "1"
ABSENT = f"no corpus at {CORPUS}; TRACEPROBE_CORPUS names another place"

CHANGES_OUTPUT = (
    "CLICOLOR",
    "CLICOLOR_FORCE",
    "COLUMNS",
    "FORCE_COLOR",
    "GITHUB_ACTIONS",
    "LINES",
    "NO_COLOR",
    "PY_COLORS",
    "TERM",
    "TERMINAL_WIDTH",
    "TTY_COMPATIBLE",
    "TTY_INTERACTIVE",
)
for variable in CHANGES_OUTPUT:  # some are read when typer is imported, before any fixture
    os.environ.pop(variable, None)


CORPUS_FILES = (
    "attribution",
    "anonymise",
    "cache",
    "collectives",
    "doctor",
    "report_contract",
    "comparison",
    "corpus",
    "corpus_counts",
    "forecast",
)
"""Files that go through the whole corpus. One worker runs them all: the first analyses it, the
others find the reports that `tests/analyses.py` keeps in the process."""
SLOWEST = (
    "slowbench_subset",
    "injections",
    "validation",
    "profile",
    "kept_recordings",
    "program_environment",
    "integrations",
    "training_session",
    *CORPUS_FILES,
    "watch_program",
    "report_browser",
    "causal",
    "blame_recording",
    "endings",
    "many_ranks",
    "timeline_browser",
    "owners_browser",
    "hostile_folder",
    "bench",
    "document_browser",
    "hostile_values",
    "loader_watch",
    "faults",
    "all_reduces",
    "workloads",
    "annotate",
    "github_action",
    "supervisor",
    "memory_cli",
    "growth",
    "limits",
    "slowbench_cases",
    "noted_owners",
    "critical_path_browser",
    "doctor_traces",
    "pipeline",
)
"""Files whose tests take long. They come first, or one worker ends with them while others idle."""


def pytest_collection_modifyitems(items):
    """Slow files first; the others keep their order."""
    places = {f"test_{name}": place for place, name in enumerate(SLOWEST)}
    items.sort(key=lambda item: places.get(item.path.stem, len(SLOWEST)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """`--dist loadfile` gives the tests of a file to one worker, and those of the corpus."""
    if config.option.dist != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class ByInput(LoadFileScheduling):
        def _split_scope(self, nodeid):
            file = super()._split_scope(nodeid)
            name = Path(file).stem.removeprefix("test_")
            return "corpus" if name in CORPUS_FILES else file

    return ByInput(config, log)


HEAVY = pytest.StashKey[set[str]]()
"""Modules that take long to import and were imported while the tests were collected."""


def pytest_collection_finish(session):
    """Remember what collecting has imported; it is over."""
    session.config.stash[HEAVY] = {"torch", "altair", "playwright", "distributed"} & {*sys.modules}
    # Ten thousand tests and the reports of all files stay, and are no garbage to be looked through.
    gc.freeze()
    gc.set_threshold(50_000)


def pytest_itemcollected(item):
    """What reads the corpus is slow."""
    if {"corpus", "corpus_row"} & {*item.fixturenames}:
        item.add_marker("slow")


def pytest_addoption(parser):
    """`--update-goldens` accepts the reports as they are now."""
    parser.addoption("--update-goldens", action="store_true", help="rewrite tests/goldens/*.json")


@pytest.fixture(scope="session", autouse=True)
def every_report_is_checked():
    """A report that breaks the contract of report.json fails the test that made it."""
    from tests import report_rules

    with report_rules.watching():
        yield


@pytest.fixture(scope="session", autouse=True)
def own_state(tmp_path_factory):
    """What traceprobe keeps of its user is not that of the developer."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch):
    """No variable of the developer's shell changes what a test sees."""
    for variable in CHANGES_OUTPUT:
        monkeypatch.delenv(variable, raising=False)


@pytest.fixture(autouse=True)
def signals_stay_as_they_are():
    """No test leaves a signal ignored or blocked, which later ones and their programs inherit."""

    def state():
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        handlers = [signal.getsignal(number) for number in numbers]
        return handlers, signal.pthread_sigmask(signal.SIG_BLOCK, ())

    before = state()
    yield
    assert state() == before


@pytest.fixture(scope="session")
def samples():
    """The folder of the sample traces."""
    return ROOT / "sample_traces"


@pytest.fixture
def cli(tmp_path, monkeypatch, capfdbinary):
    """The command line, in a folder of its own."""
    from tests.cli_runner import Cli

    return Cli(tmp_path, monkeypatch, capfdbinary)


@pytest.fixture(scope="session")
def pytorch():
    """PyTorch is installed. It is not imported: most tests need it in another process only."""
    if importlib.util.find_spec("torch") is None:
        message = "PyTorch is not installed; pip install traceprobe[torch]"
        (pytest.fail if TORCH_REQUIRED else pytest.skip)(message)


@pytest.fixture(scope="session")
def corpus():
    """The folder of the corpus."""
    if not (CORPUS / "manifest.json").is_file():
        (pytest.fail if REQUIRED else pytest.skip)(ABSENT)
    return CORPUS


def pytest_generate_tests(metafunc):
    """Run a test that takes `corpus_row` once for each file of the manifest."""
    if "corpus_row" not in metafunc.fixturenames:
        return
    manifest = CORPUS / "manifest.json"
    if manifest.is_file():
        rows = [pytest.param(r, id=r["file"]) for r in json.loads(manifest.read_text())]
    else:
        absent = pytest.mark.skipif(not REQUIRED, reason=ABSENT)
        rows = [pytest.param(None, id="absent", marks=absent)]
    metafunc.parametrize("corpus_row", rows)


def trace_files(row):
    """The files of an entry of the corpus: itself, or the ranks in its folder."""
    path = CORPUS / row["file"]
    return sorted(path.glob("*.gz")) if path.is_dir() else [path]
