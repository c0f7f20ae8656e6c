"""What libraries are told before they are imported."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from traceprobe.system.allocator import VARIABLE, keep_freed_memory_briefly
from traceprobe.system.blas import have_no_threads_of_blas


@pytest.mark.parametrize("given", ["", "narenas:1"])
def test_what_the_user_says_comes_last(monkeypatch, given):
    monkeypatch.setenv(VARIABLE, given)
    keep_freed_memory_briefly()
    assert os.environ[VARIABLE].endswith(given or "muzzy_decay_ms:0")


def test_the_command_is_imported_without_polars():
    code = "import sys, traceprobe.cli.analyze; print('polars' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


@pytest.mark.parametrize("given", [None, "3"])
def test_blas_has_as_many_threads_as_the_user_says_else_none(monkeypatch, given):
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", given or "")
    if given is None:
        monkeypatch.delenv("OPENBLAS_NUM_THREADS")
    have_no_threads_of_blas()
    assert os.environ["OPENBLAS_NUM_THREADS"] == (given or "1")
