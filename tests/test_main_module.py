"""What the process of the command line is told before it imports anything big."""

from __future__ import annotations

import atexit
import gc
import os

import pytest

import traceprobe.__main__ as program
from traceprobe.system import memory_limit

ALLOCATOR = "_RJEM_MALLOC_CONF"


@pytest.mark.parametrize("given", ["", "narenas:1"])
def test_the_allocator_hears_the_user_last(monkeypatch, given):
    monkeypatch.setattr(gc, "disable", lambda: None)
    monkeypatch.setattr(atexit, "register", lambda function: None)
    monkeypatch.setattr(memory_limit, "run_watched", lambda command: None)
    monkeypatch.setattr(program, "leave_working_folder", lambda: None)
    monkeypatch.setenv(ALLOCATOR, given)
    program.program()
    assert os.environ[ALLOCATOR].endswith(given or "muzzy_decay_ms:0")
