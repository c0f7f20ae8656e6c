"""What the process of the command line is told before it imports anything big."""

from __future__ import annotations

import atexit
import gc
import os

import pytest

import traceprobe.__main__ as program
from traceprobe.system import memory_limit
from traceprobe.system.allocator import as_it_was, keep_briefly

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


@pytest.mark.parametrize("told", [None, "narenas:4"])
def test_programs_that_are_recorded_have_the_allocator_as_the_user_told_it(monkeypatch, told):
    monkeypatch.setenv(ALLOCATOR, told or "")
    if told is None:
        monkeypatch.delenv(ALLOCATOR)
    before = dict(os.environ)
    keep_briefly()
    assert os.environ[ALLOCATOR] != told
    assert as_it_was(os.environ) == before
