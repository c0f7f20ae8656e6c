"""The program's environment stays its own: its Python, its packages, its import path."""

from __future__ import annotations

import ast
import importlib
import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from functools import cache
from pathlib import Path

import pytest

from tests.cli_runner import environment as cli_environment
from tests.cli_runner import spawn
from tests.conftest import ROOT
from traceprobe.capture.process import launch
from traceprobe.capture.process.environment import HOOK, program_environment
from traceprobe.capture.recording.recording_plan import RecordingPlan

OLDEST = (3, 10)
"""Python that the torch of today still runs on."""
FAST = ("--warmup", "1", "--most-warmup", "1", "--calibrate", "2", "--active", "3")


def inside():
    """The modules that may run inside the program, found by following all of their imports."""
    due = ["traceprobe", "traceprobe.capture", "traceprobe.capture.loop.optimizer_hook"]
    found = {}
    while due:
        name = due.pop()
        path = ROOT.joinpath(*name.split("."))
        path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        if name in found or not path.is_file():
            continue
        found[name] = path
        if name.startswith("traceprobe.capture"):
            for other, _ in imports(path):
                due.extend([other, other.rpartition(".")[0]] if "traceprobe" in other else [])
    return {name: found[name] for name in sorted(found) if name != "traceprobe.options"}


def imports(path):
    """Modules that a file imports when it is run, wherever it says so; names imported count too."""
    tree = ast.parse(path.read_text())
    typing = {
        id(node)
        for guard in ast.walk(tree)
        if isinstance(guard, ast.If) and getattr(guard.test, "id", "") == "TYPE_CHECKING"
        for node in ast.walk(guard)
    }
    for node in ast.walk(tree):
        if id(node) in typing:
            continue
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module, node.lineno
            yield from ((f"{node.module}.{alias.name}", node.lineno) for alias in node.names)


INSIDE = inside()


def test_all_that_runs_inside_a_program_is_known():
    names = {name.rpartition(".")[2] for name in INSIDE}
    assert {"step_recorder", "recording_session", "profiler_backend"} <= names
    assert {
        "program_ablation",
        "memory_prediction_session",
        "step_simulation",
        "allocation_log",
        "memory_measurement",
        "other_profilers",
        "flop_counter",
    } <= names
    assert names.isdisjoint({"launch", "program", "run_recording", "nsys_tool", "ladder"})


@pytest.mark.parametrize("name", [n for n in INSIDE if n != "traceprobe"])
def test_what_runs_inside_a_program_needs_python_and_torch_only(name):
    allowed = {*sys.stdlib_module_names, "torch", "traceprobe"}
    foreign = [
        f"line {line}: {module}"
        for module, line in imports(INSIDE[name])
        if module.partition(".")[0] not in allowed
    ]
    assert foreign == []


@pytest.mark.parametrize(
    "path", [*INSIDE.values(), HOOK / "sitecustomize.py"], ids=lambda path: path.stem
)
def test_it_is_written_for_the_oldest_python(path):
    ast.parse(path.read_text(), feature_version=OLDEST)


IMPORT_ALL = """
import importlib, importlib.abc, sys
class Blocked(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        top = name.partition(".")[0]
        if top not in sys.stdlib_module_names and top != "traceprobe":
            raise ImportError(f"{name} is no part of the standard library", name=name)
sys.meta_path.insert(1, Blocked())
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except ImportError as error:
        assert error.name.startswith("torch"), f"{name}: {error}"
print(sys.version_info[:2])
"""


@cache
def pythons():
    """Interpreters of this machine by their minor version, the one that runs the tests included."""
    found = {sys.version_info[:2]: sys.executable}
    for minor in range(OLDEST[1], 15):
        name = f"python3.{minor}"
        places = (Path.home() / ".pyenv" / "versions").glob(f"3.{minor}.*/bin/{name}")
        for tool in filter(None, [shutil.which(name), *map(str, sorted(places))]):
            asked = [tool, "-I", "-c", "import sys; print(sys.version_info[:2])"]
            done = subprocess.run(asked, capture_output=True, text=True)
            if done.stdout.strip() == f"(3, {minor})":
                found.setdefault((3, minor), tool)
    return found


@pytest.fixture(params=range(OLDEST[1], 15), ids="3.{}".format)
def version(request):
    """That of each Python of this machine."""
    if (3, request.param) not in pythons():
        pytest.skip("this Python is not installed here")
    return 3, request.param


def hooked(folder, **changes):
    """The environment of a program that a recording starts."""
    return {
        **program_environment(RecordingPlan.VARIABLE, RecordingPlan(folder=str(folder)).save()),
        **changes,
    }


def test_it_is_imported_without_any_package_by_every_python(tmp_path, version):
    done = subprocess.run(
        [pythons()[version], "-S", "-c", "import sitecustomize\n" + IMPORT_ALL, *INSIDE],
        env=hooked(tmp_path),
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.stderr == ""
    assert done.stdout.strip() == str(version)


LOOK = """
import json, sys
import sitecustomize
print(json.dumps({"path": sys.path, "site": getattr(sitecustomize, "__file__", None)}))
"""


def test_the_import_path_is_what_it_would_be_alone(tmp_path, version, monkeypatch):
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("import sys; sys.stderr.write('ran once')")
    monkeypatch.setenv("PYTHONPATH", str(own))
    seen = [
        subprocess.run(
            [pythons()[version], "-c", LOOK], env=env, cwd=tmp_path, capture_output=True, text=True
        )
        for env in (dict(os.environ), hooked(tmp_path))
    ]
    assert [done.stderr for done in seen] == ["ran once", "ran once"]
    alone, recorded = (json.loads(done.stdout) for done in seen)
    assert alone == recorded
    assert recorded["site"] == str(own / "sitecustomize.py")


def test_the_program_gets_one_folder_with_one_module(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/their/own")
    given = program_environment(RecordingPlan.VARIABLE, tmp_path)
    assert given["PYTHONPATH"].split(os.pathsep) == [str(HOOK), "/their/own"]
    assert [p.name for p in HOOK.iterdir() if p.name != "__pycache__"] == ["sitecustomize.py"]
    assert program_environment(RecordingPlan.VARIABLE, tmp_path, {"PYTHONPATH": "/rung"})[
        "PYTHONPATH"
    ].endswith("/rung")


def test_a_sitecustomize_that_fails_is_the_program_s_own_matter(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import no_such_module_anywhere")
    done = subprocess.run(
        [sys.executable, "-c", "import traceprobe.capture; print('runs')"],
        env=hooked(tmp_path, PYTHONPATH=f"{HOOK}{os.pathsep}{tmp_path}"),
        capture_output=True,
        text=True,
    )
    assert done.stdout == "runs\n"
    assert "no_such_module_anywhere" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("command", ["profile", "bench", "memory"])
def test_a_program_of_another_python_starts_with_its_own_packages(tmp_path, command):
    others = [tool for version, tool in pythons().items() if version != sys.version_info[:2]]
    if not others:
        pytest.skip("only one Python is installed here")
    tool = others[0]
    code = """
        import json, sys
        try:
            import numpy, polars
            found = True
        except ImportError:
            found = False
        json.dump([list(sys.version_info[:2]), found, sys.path], open("seen.json", "w"))
    """
    (tmp_path / "train.py").write_text(textwrap.dedent(code))
    subprocess.run([tool, "train.py"], cwd=tmp_path, env=cli_environment(), check=True)
    alone = (tmp_path / "seen.json").read_text()
    done = spawn(command, "--", tool, "train.py", cwd=tmp_path).expect(2)
    assert re.search("before 40 steps were made|before its (trials did|loop began)", done.err)
    assert (tmp_path / "seen.json").read_text() == alone


TRAIN = """
import json, os, sys
import numpy, tests.without_compiler, torch
torch.set_num_threads(1)
if "RANK" in os.environ:
    torch.distributed.init_process_group("gloo")
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
seen = [numpy.__version__, sys.executable, sys.path[0], "data" in sys.modules]
json.dump(seen, open(f"seen{os.environ.get('RANK', 0)}.json", "w"))
for _ in range(50):
    model(torch.randn(2, 8)).sum().backward()
    optimizer.step()
"""


OTHER_NUMPY = """
__version__ = "0.other"
def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return type(name, (), {})
"""


@pytest.fixture(scope="module")
def elsewhere(pytorch, tmp_path_factory):
    """An environment with another numpy, and torch from that of the tests behind it."""
    torch = importlib.import_module("torch")
    folder = tmp_path_factory.mktemp("elsewhere")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    site = next((folder / "lib").glob("python*/site-packages"))
    (site / "numpy").mkdir()
    (site / "numpy" / "__init__.py").write_text(OTHER_NUMPY)
    (site / "zz_torch.pth").write_text(f"{Path(torch.__file__).parents[1]}\n")
    return folder / "bin" / "python"


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [None, 2])
def test_a_program_of_another_environment_is_recorded_with_its_own_numpy(
    tmp_path, elsewhere, ranks
):
    """A `torch.py` in the folder of the command is not what starts the ranks either."""
    (tmp_path / "scripts").mkdir()
    script = tmp_path / "scripts" / "train.py"
    script.write_text(TRAIN)
    (tmp_path / "torch.py").write_text("raise SystemExit('imported from the folder')")
    several = () if ranks is None else ("--nproc-per-node", ranks)
    program = ("--", elsewhere, script)
    command = (sys.executable, "-I", "-m", "traceprobe")
    arguments = ("-o", "out", *FAST, *several, *program)
    spawn("profile", *arguments, cwd=tmp_path, command=command).expect(0)
    for rank in range(ranks or 1):
        seen = json.loads((tmp_path / f"seen{rank}.json").read_text())
        assert seen == ["0.other", str(elsewhere), str(script.parent), False]
        assert (tmp_path / "out" / f"rank{rank}.json.gz").is_file()


@pytest.mark.slow
def test_ranks_are_started_by_the_interpreter_of_the_program(tmp_path):
    command = launch.rank_command(["/opt/python3", "-O", "train.py"], 2, tmp_path)
    assert command[:2] == ["/opt/python3", "-c"]
    assert command[-4:] == ["--no-python", "/opt/python3", "-O", "train.py"]
