"""Processes that tests start: which of them are there, and waiting for what they do."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

needs_adoption = pytest.mark.skipif(sys.platform != "linux", reason="only Linux adopts orphans")
needs_proc = pytest.mark.skipif(sys.platform != "linux", reason="asks /proc what is open")
STAYS = """
import os, pathlib, signal, sys, time
def stay():
    pathlib.Path(sys.argv[1], str(os.getpid())).touch()
    time.sleep(300)
"""
"""The beginning of a program: `stay()` notes the process's id in a folder, and stays."""


def ids_in(folder):
    """Ids of the processes that `STAYS` has noted there."""
    return [int(path.name) for path in (folder / "ids").iterdir()]


def is_alive(process):
    """Whether a process is there and has not ended."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def survivors(path):
    """Processes whose command line names the script, traceprobe's own aside."""
    listed = subprocess.run(
        ["ps", "-ww", "-eo", "args"], capture_output=True, text=True, check=True
    )
    lines = [line for line in listed.stdout.splitlines() if path in line]
    return [line for line in lines if "traceprobe" not in line.split(path)[0]]


def wait_until(condition, seconds=60.0):
    """Return once the condition holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.05)


def wait_until_it_reads(process, path):
    """Return once the process is a few blocks into the file."""
    descriptors, deadline = Path(f"/proc/{process.pid}/fd"), time.monotonic() + 60
    while process.poll() is None and time.monotonic() < deadline:
        for link in descriptors.iterdir():
            try:
                if link.readlink() == path:
                    position = Path(f"/proc/{process.pid}/fdinfo/{link.name}").read_text()
                    if int(position.split()[1]) > 4_000_000:
                        return
            except OSError:  # closed meanwhile
                continue
        time.sleep(0.002)
    pytest.fail(f"the process ended, or never read: {process.poll()}")
