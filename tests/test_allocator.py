"""What the allocator is told before polars is imported."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from traceprobe.system.allocator import VARIABLE, keep_freed_memory_briefly


@pytest.mark.parametrize("given", ["", "narenas:1"])
def test_what_the_user_says_comes_last(monkeypatch, given):
    monkeypatch.setenv(VARIABLE, given)
    keep_freed_memory_briefly()
    assert os.environ[VARIABLE].endswith(given or "muzzy_decay_ms:0")


def test_the_command_is_imported_without_polars():
    code = "import sys, traceprobe.cli.analyze; print('polars' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
