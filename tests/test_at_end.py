"""A process that ends at once has done all that it would have done, and says how it ended."""

import os
import subprocess
import sys

import pytest

CODE = """
import atexit, sys
from traceprobe.system.at_end import ended_at_once
with ended_at_once():
    atexit.register(print, "handler")
    print("written")
    {ends}
"""


def run(ends):
    command = [sys.executable, "-c", CODE.format(ends=ends)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("ends", "code"),
    [("pass", 0), ("sys.exit()", 0), ("sys.exit(3)", 3), ("sys.exit('why')", 1), ("1 / 0", 1)],
)
def test_handlers_run_and_nothing_written_is_lost(ends, code):
    done = run(ends)
    assert (done.returncode, done.stdout) == (code, "written\nhandler\n")


def test_what_python_says_at_the_end_is_said():
    assert run("sys.exit('why')").stderr == "why\n"
    assert "ZeroDivisionError" in run("1 / 0").stderr


def test_output_that_nobody_takes_is_an_error_as_ever():
    command = [sys.executable, "-c", CODE.format(ends="pass")]
    buffered = {k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=buffered
    ) as process:
        process.stdout.close()
        assert b"BrokenPipeError" in process.stderr.read()
    assert process.returncode == 120
