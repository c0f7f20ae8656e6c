"""Memory that is refused, and other ends that no library announces."""

from __future__ import annotations

import signal
import subprocess
import sys

import polars as pl
import pytest

from tests.cli_runner import environment, write_trace
from traceprobe.options import Options
from traceprobe.pipeline.trace_part import Lost, read_or_lose
from traceprobe.system import child, isolated

linux = pytest.mark.skipif(sys.platform != "linux", reason="the watching process needs Linux")
LIMIT = 8 << 30
PANIC = "Worker threads cannot be set to 0"
PREPARED = (
    "import resource; from traceprobe.system.memory_limit import run_under_memory_limit; "
    f"resource.setrlimit(resource.RLIMIT_AS, ({LIMIT}, {LIMIT}))\n"
)


def start(body: str) -> subprocess.Popen[str]:
    """A process that runs some code under a limit of memory."""
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    code = f"{PREPARED}def command():\n{lines}run_under_memory_limit(command)\nprint('late')"
    return subprocess.Popen(
        isolated.command(code),
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@linux
@pytest.mark.parametrize(
    "body",
    [
        "import os; os.abort()",  # as a library in Rust ends
        "import os; os.kill(os.getpid(), 11)",
        "import ctypes; ctypes.CDLL(None).exit(1)",  # as OpenBLAS ends
        "raise MemoryError",
        "raise ImportError('failed to map segment from shared object')",
        "bytearray(16 << 30)",
    ],
)
def test_memory_that_is_refused_ends_in_a_message(body):
    process = start(body)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert err.startswith("traceprobe: memory ran out below the limit of 8192 MiB (ulimit -v); ")
    assert (err.count("\n"), out) == (1, "")


@linux
@pytest.mark.parametrize("code", [0, 1, 70])
def test_under_a_limit_the_exit_code_is_that_of_the_command(code):
    process = start(f"import sys; print('done'); sys.exit({code})")
    assert process.communicate(timeout=60) == ("done\n", "")
    assert process.returncode == code


WAITS = """import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(143))
print(os.getpid(), flush=True)
time.sleep(60)"""


@linux
def test_under_a_limit_signals_reach_the_command():
    process = start(WAITS)
    assert process.stdout is not None
    assert int(process.stdout.readline()) != process.pid
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == 143
    process.communicate()


@linux
def test_under_a_limit_the_command_does_not_outlive_who_waits_for_it():
    process = start(WAITS)
    assert process.stdout is not None
    process.stdout.readline()
    process.kill()
    process.communicate(timeout=30)  # until nobody has its standard output any more
    assert process.returncode == -signal.SIGKILL


@pytest.mark.parametrize(
    ("error", "words"),
    [(MemoryError(), "memory ran out"), (pl.exceptions.PanicException(PANIC), "internal error")],
)
def test_of_several_files_it_costs_the_one_that_was_read(monkeypatch, tmp_path, error, words):
    def fails(*_):
        raise error

    monkeypatch.setattr("traceprobe.pipeline.trace_part.read_trace", fails)
    lost = read_or_lose(tmp_path / "run.json", Options())
    assert isinstance(lost, Lost)
    assert lost.reason.startswith(f"run.json: {words}")
    assert lost.internal == (words == "internal error")


def test_a_command_tells_a_panic_and_want_of_memory(monkeypatch, cli):
    write_trace(cli.folder / "run.json")
    raised: list[BaseException] = [pl.exceptions.PanicException(PANIC), MemoryError()]

    def fails(*_):
        raise raised.pop(0)

    monkeypatch.setattr("traceprobe.ingest.read_trace.read_trace", fails)
    done = cli("analyze", "run.json", "-o", "-")
    assert (done.code, done.out) == (70, "")
    assert done.err.startswith(f"traceprobe: internal error: PanicException: {PANIC}\n")
    done = cli("analyze", "run.json", "-o", "-")
    assert done.code == 2
    assert done.err.startswith("traceprobe: memory ran out")


@pytest.mark.parametrize("threads", ["0", "-1", "", "two", "9" * 30])
def test_a_number_of_threads_that_is_none_is_refused_by_name(monkeypatch, cli, threads):
    monkeypatch.setenv("POLARS_MAX_THREADS", threads)
    (line,) = cli("analyze", "run.json").expect(2).err.splitlines()
    assert line.startswith(f"traceprobe: POLARS_MAX_THREADS={threads}: is no number of threads")


def panics(tell) -> None:
    raise pl.exceptions.PanicException(PANIC)


def test_a_panic_in_a_reader_is_an_answer():
    with child.children() as started:
        started.append(reader := child.Child())
        assert isinstance(reader.answer(), child.Ready)
        reader.give(panics)
        answer = reader.answer()
    assert isinstance(answer, child.Failed)
    assert str(answer.error) == f"PanicException: {PANIC}"
