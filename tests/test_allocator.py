"""What libraries are told before they are imported."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys

import pytest

from traceprobe.system.allocator import VARIABLE, keep_freed_memory_briefly, share_freed_memory
from traceprobe.system.blas import have_no_threads_of_blas


@pytest.mark.parametrize("given", ["", "narenas:1"])
def test_what_the_user_says_comes_last(monkeypatch, given):
    monkeypatch.setenv(VARIABLE, given)
    keep_freed_memory_briefly()
    assert os.environ[VARIABLE].endswith(given or "muzzy_decay_ms:0")


_ARENAS = """
import ctypes, threading
from traceprobe.system.allocator import share_freed_memory

share_freed_memory()
held, wait = [], threading.Barrier(5)

def hold():
    held.append(bytearray(5_000))
    wait.wait()

threads = [threading.Thread(target=hold) for _ in range(4)]
for thread in threads:
    thread.start()
wait.wait()
for thread in threads:
    thread.join()
libc = ctypes.CDLL(None)
libc.malloc_info(0, ctypes.c_void_p.in_dll(libc, "stdout"))
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_info"), reason="glibc alone has arenas")
@pytest.mark.parametrize("given", [None, "3"])
def test_threads_share_an_arena_unless_the_user_says_otherwise(monkeypatch, given):
    monkeypatch.setenv("MALLOC_ARENA_MAX", given or "")
    if given is None:
        monkeypatch.delenv("MALLOC_ARENA_MAX")
    done = subprocess.run([sys.executable, "-c", _ARENAS], capture_output=True, text=True)
    assert (done.stdout.count("<heap nr=") == 1) == (given is None)
    share_freed_memory()
    assert os.environ["MALLOC_ARENA_MAX"] == (given or "1")


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
