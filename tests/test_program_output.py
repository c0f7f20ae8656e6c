"""What a program writes is shown while it runs, and can steer nothing."""

from __future__ import annotations

import os
import sys

from traceprobe.capture.process import launch
from traceprobe.capture.process.program_output import MOST_BYTES, OutputFollower


def test_lines_are_passed_on_once_they_are_whole(tmp_path):
    log, shown = tmp_path / "log", []
    output = OutputFollower([log, tmp_path / "never"], shown.append)
    output.poll()  # it is not there yet
    with log.open("ab", buffering=0) as file:
        file.write(b"epoch 0\nloss   1.25, ep")
        output.poll()
        assert shown == ["    | epoch 0"]
        file.write(b"och\n\nno end")
        output.poll()
    assert shown[1:] == ["    | loss   1.25, epoch"]
    output.finish()
    assert shown[2:] == ["    | no end"]


def test_a_bar_is_told_as_it_stands_in_the_end(tmp_path):
    log, shown = tmp_path / "log", []
    log.write_bytes(b"\r 0 %\r 50 %\r100 %\r\n\x1b[32mdone\x1b[0m\t::error::x\x07\n")
    OutputFollower([log], shown.append).finish()
    assert shown == ["    | 100 %", "    | done    ::error::x"]


def test_what_the_profiler_logs_of_itself_is_not_the_programs(tmp_path):
    log, shown = tmp_path / "log", []
    start = b"USDT:2026-01-02 08:26:55 25007:25007 SyncActivityProfilerHandler.cpp:52] start\n"
    log.write_bytes(start + b"[default1]:" + start + b"WARN" + start[4:] + b"USDT: a stock\n")
    OutputFollower([log], shown.append).finish()
    assert [line[6:10] for line in shown] == ["WARN", "USDT"]


def test_of_gigabytes_the_end_is_shown(tmp_path):
    log, shown = tmp_path / "log", []
    log.write_bytes(b"x" * 80 + b"\n" + b"y\n" * MOST_BYTES)
    OutputFollower([log], shown.append).finish()
    assert shown[0] == f"    | … {81 + MOST_BYTES:,} bytes left out …"
    assert set(shown[1:]) == {"    | y"}
    assert len(shown) <= MOST_BYTES


def test_both_streams_of_a_program_are_shown_while_it_runs(tmp_path):
    """The program waits for a file that is written once its first line has been shown."""
    go, shown = tmp_path / "go", []

    def seen(line):
        shown.append(line)
        go.touch()

    program = (
        "import os, sys, time\n"
        "print('to standard output', flush=True)\n"
        f"while not os.path.exists({str(go)!r}): time.sleep(0.01)\n"
        "sys.stderr.write('to standard error')"
    )
    end = launch.run_program(
        [sys.executable, "-c", program], os.environ, tmp_path, lambda _: None, print, seen
    )
    end.expect_success()
    assert shown == ["    | to standard output", "    | to standard error"]
