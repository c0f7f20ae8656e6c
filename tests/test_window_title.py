"""The state of a run in the title of a terminal's window."""

from __future__ import annotations

import io
import os
import sys

import pytest

from traceprobe.cli.console import window_title


@pytest.fixture
def terminal():
    """A file that is a terminal, and a function that gives what it got."""
    ours, theirs = os.openpty()
    with os.fdopen(theirs, "w") as file:
        yield file, lambda: _until(ours, b"\x1b[23;2t")
    os.close(ours)


def _until(handle, end):
    got = b""
    while not got.endswith(end):
        got += os.read(handle, 4_096)
    return got.decode()


def test_the_title_is_set_and_given_back(terminal, monkeypatch):
    file, got = terminal
    monkeypatch.setattr(sys, "stderr", file)
    monkeypatch.setenv("TERM", "xterm-256color")
    with window_title(quiet=False) as title:
        title("4 steps\x07\x1b]0;x")
    text = got()
    assert text.startswith("\x1b[22;2t\x1b]2;traceprobe: 4 steps")
    assert text.endswith("\x1b]2;\x07\x1b[23;2t")
    assert text.count("\x07") == 2


@pytest.mark.parametrize(("term", "quiet"), [("dumb", False), ("linux", False), ("xterm", True)])
def test_a_terminal_without_titles_is_left_alone(terminal, monkeypatch, term, quiet):
    monkeypatch.setattr(sys, "stderr", terminal[0])
    monkeypatch.setenv("TERM", term)
    with window_title(quiet=quiet) as title:
        assert title is None


def test_what_is_no_terminal_is_left_alone(monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with window_title(quiet=False) as title:
        assert title is None
    assert sys.stderr.getvalue() == ""
