"""Processes of ours: what they may import, how they begin, how they end."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli_runner import environment, spawn, write_trace
from tests.conftest import ROOT
from tests.processes import needs_proc
from traceprobe.options import Options
from traceprobe.pipeline import parallel as workers
from traceprobe.pipeline.trace_part import Lost, TracePart
from traceprobe.system import child, isolated

PAIR = [ROOT / "sample_traces" / f"h200_collectives.rank{n}.json.gz" for n in (0, 1)]


def test_the_import_path_is_that_of_this_process_without_the_working_folder(tmp_path, monkeypatch):
    (tmp_path / "link").symlink_to(tmp_path / "here")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    given = ["", ".", "..", "sub", str(tmp_path / "here"), str(tmp_path / "link"), "/else"]
    monkeypatch.setattr(sys, "path", [*given, *sys.path])
    found = isolated.import_path()
    assert found == ["/else", *sys.path[len(given) :]]
    done = subprocess.run(
        isolated.command("print(sys.path)"), capture_output=True, text=True, check=True
    )
    assert done.stdout == f"{found}\n"


@pytest.mark.parametrize("folder", [ROOT, Path(os.__file__).parent], ids=lambda path: path.name)
def test_a_working_folder_that_is_needed_comes_last(monkeypatch, folder):
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [str(folder), "/else"])
    assert isolated.import_path() == ["/else", str(folder)]


def test_a_working_folder_that_is_gone(tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    monkeypatch.setattr(sys, "path", ["", "gone", "/else"])
    assert isolated.import_path() == ["/else"]


def test_variables_of_python_do_not_reach_a_process_of_ours(tmp_path, monkeypatch):
    (tmp_path / "sitecustomize.py").write_text("print('hostile')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(sys, "pycache_prefix", "/else")
    code = "print(sys.dont_write_bytecode, sys.pycache_prefix, sys.argv[1:])"
    done = subprocess.run(isolated.command(code, "a b"), capture_output=True, text=True, check=True)
    assert done.stdout == "True /else ['a b']\n"


STARTERS = {
    "system/memory_limit.py": "a fork: the same interpreter with the same import path",
    "system/isolated.py": "knows how",
    "capture/process/supervised.py": "starts the supervisor",
    "capture/process/program.py": "names the interpreter of the built-in workloads",
    "pipeline/dask.py": "prepares for Dask, which starts its workers itself",
    "system/child.py": "has pipes of multiprocessing, and none of its processes",
    "capture/loader/loader_worker.py": "runs in a worker that the program started",
    "capture/oracle/worker_delay.py": "the same",
    "capture/loader/batch_source.py": "looks at the loader of the program that it runs in",
}


def test_no_other_module_starts_python():
    """They must not need to know what is safe."""
    starts = re.compile(r"sys\.executable|multiprocessing|ProcessPool|\bos\.(fork|exec|spawn)")
    package = ROOT / "traceprobe"
    found = {
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        if starts.search(path.read_text(encoding="utf-8"))
    }
    assert found == set(STARTERS)


def test_the_library_leaves_the_import_path_alone(tmp_path):
    write_trace(tmp_path / "run.json")
    code = (
        "import sys; before = list(sys.path); import traceprobe; "
        "traceprobe.analyze(traceprobe.load('run.json')); import traceprobe.cli; "
        "assert before[0] == '' and sys.path == before"
    )
    spawn("-c", code, cwd=tmp_path, command=(sys.executable,)).expect(0)


PLAIN = f"""
from pathlib import Path
from traceprobe.pipeline.merge import merge
from traceprobe.options import Options
from traceprobe.pipeline.parallel import read_all

print("once")
parts = read_all([Path(p) for p in {list(map(str, PAIR))}], Options(), None, 2, lambda *_: None)
print(len(merge(parts, Options()).ranks))
"""


def test_a_script_without_a_guard_may_read_in_processes(tmp_path):
    """The module that was started is not imported again by those that it starts."""
    (tmp_path / "plain.py").write_text(PLAIN)
    done = spawn("plain.py", cwd=tmp_path, command=(sys.executable,)).expect(0)
    assert (done.out, done.err) == ("once\n2\n", "")


def read(jobs=2):
    return workers.read_all(PAIR, Options(), None, jobs, lambda position, fraction: None)


@pytest.mark.parametrize(
    ("code", "why"), [("raise SystemExit(3)", "exit code 3"), ("os.kill(os.getpid(), 9)", "KILL")]
)
def test_a_process_that_never_began_is_told_from_one_that_was_killed(monkeypatch, code, why):
    monkeypatch.setattr(child, "CODE", f"import os; {code}")
    parts = read()
    assert all(isinstance(part, Lost) for part in parts)
    assert all("no process could be started to read it (" in part.reason for part in parts)
    assert all(why in part.reason and "memory runs out" not in part.reason for part in parts)


def test_a_process_that_ended_by_itself_was_not_killed():
    assert "memory runs out" in workers.died("a.json").reason
    ended = workers.died("a.json", "exit code 1")
    assert ended.internal
    assert "memory" not in ended.reason
    assert "exit code 1" in ended.reason


def test_processes_that_the_system_refuses(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    assert "could be started to read it (No such file or directory)" in read()[1].reason


def test_files_of_a_process_that_never_began_are_read_by_the_others(monkeypatch):
    commands = iter([isolated.command("raise SystemExit(3)")])
    real = isolated.command
    monkeypatch.setattr(isolated, "command", lambda code: next(commands, None) or real(code))
    assert [type(part) for part in read()] == [TracePart, TracePart]


def fails(tell):
    class Odd(Exception):
        pass

    raise Odd("no module knows this class")


def chatters(tell):
    print("a library says something")
    os.write(1, b"and without Python, too")
    tell(0.5)
    return "done"


def test_a_child_answers_whatever_is_printed_and_raised():
    with child.children() as started:
        started.append(one := child.Child())
        assert one.answer() == child.Ready()
        one.give(chatters)
        assert [one.answer(), one.answer()] == [child.Progress(0.5), child.Done("done")]
        one.give(fails)
        failed = one.answer()
        assert isinstance(failed, child.Failed)
        assert str(failed.error) == "Odd: no module knows this class"
        one.tell_to_end()
        with pytest.raises(child.ChildEnded):
            one.answer()


HOLDS = """
import os, sys, tempfile, time
def holds(folder, tell):
    with tempfile.TemporaryDirectory(dir=folder):
        tell(0.5)
        time.sleep(60)
"""
PARENT = """
import os, sys
from traceprobe.system.child import Child
from holding import holds
one = Child()
one.answer()
one.give(holds, sys.argv[1])
one.answer()
assert os.listdir(sys.argv[1])
os.kill(os.getpid(), 9)
"""


@needs_proc
def test_a_child_whose_parent_is_killed_cleans_up_and_ends(tmp_path):
    (tmp_path / "code").mkdir()
    (tmp_path / "held").mkdir()
    (tmp_path / "code" / "holding.py").write_text(HOLDS)
    (tmp_path / "code" / "parent.py").write_text(PARENT)
    parent = subprocess.Popen(
        [sys.executable, tmp_path / "code" / "parent.py", tmp_path / "held"],
        stderr=subprocess.PIPE,
        env=environment(),
    )
    _, err = parent.communicate(timeout=60)  # until the last process has closed it
    assert (parent.returncode, err) == (-9, b"")
    assert list((tmp_path / "held").iterdir()) == []
