"""Running the command line: in a process of its own, or in this one where that is enough."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.builders import kineto, nsight
from tests.builders.loop import Loop
from tests.builders.scenario import Process
from tests.conftest import CHANGES_OUTPUT, ROOT
from traceprobe.cli import main

MODULE = (sys.executable, "-m", "traceprobe")
SCRIPT = (str(Path(sys.executable).with_name("traceprobe")),)
MS = 1_000_000
LOOP = Loop(
    steps=10,
    data_wait_ns=20 * MS,
    h2d_ns=MS,
    forward_ns=4 * MS,
    backward_ns=8 * MS,
    optimizer_ns=MS,
)


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str

    def expect(self, code: int) -> Done:
        """The same, if it ended as expected and without a traceback."""
        assert "Traceback" not in self.err, self.err
        assert "internal error" not in self.err, self.err
        assert self.code == code, self.err
        return self


def environment(**changes: str) -> dict[str, str]:
    """That of the tests, in which the package is found from any folder."""
    clean = {k: v for k, v in os.environ.items() if k not in CHANGES_OUTPUT}
    return clean | {"PYTHONPATH": str(ROOT)} | changes


def interruptible() -> None:
    """What a shell does for a command in the foreground, whatever started the tests (`nohup`)."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def spawn(*arguments: object, cwd: Path, command=MODULE, env=None, **options) -> Done:
    """Run in a process of its own; `options` are those of `subprocess.run`."""
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
    done = subprocess.run(
        [*command, *map(str, arguments)],
        cwd=cwd,
        env=environment(**(env or {})),
        stdin=subprocess.DEVNULL,
        timeout=120,
        **options,
    )
    out, err = ((stream or b"").decode("utf-8", "replace") for stream in (done.stdout, done.stderr))
    return Done(done.returncode, out, err)


def on_a_terminal(*arguments: str, cwd: Path, env: dict[str, str]) -> str:
    """Everything that a command shows on a terminal."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*MODULE, *arguments], cwd=cwd, env=environment(**env), stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    shown = b""
    while True:
        try:
            block = os.read(ours, 65536)
        except OSError:  # Linux says that the other end is closed
            break
        if not block:
            break
        shown += block
    os.close(ours)
    assert process.wait(timeout=60) == 0
    return shown.decode("utf-8", "replace")


class Cli:
    """Calls `main` in this process, in a folder."""

    def __init__(self, folder: Path, monkeypatch, capfdbinary) -> None:
        self.folder, self._patch, self._capture = folder, monkeypatch, capfdbinary
        monkeypatch.chdir(folder)

    def __call__(self, *arguments: object) -> Done:
        self._patch.setattr(sys, "argv", ["traceprobe", *map(str, arguments)])
        self._capture.readouterr()
        with pytest.raises(SystemExit) as stop:
            main()
        captured = self._capture.readouterr()
        return Done(stop.value.code or 0, *(s.decode("utf-8", "replace") for s in captured))

    def files(self) -> set[str]:
        """What lies in the folder."""
        return {path.name for path in self.folder.iterdir()}


def needs_workers_of_dask() -> None:
    """Skip a test where `--dask local:N` cannot be."""
    pytest.importorskip("distributed", reason="Dask is not installed")
    if sys.version_info < (3, 11):
        pytest.skip("--dask local:N is refused before Python 3.11")


def write_trace(path: Path, loop: Loop = LOOP) -> Path:
    """A small trace, in the format that the suffix says."""
    write = nsight.write if ".sqlite" in path.suffixes else kineto.write
    return write(loop.scenario(), path, gz=path.suffix == ".gz")


def loop_of_rank(number: int) -> Loop:
    """The loop as one rank of four."""
    return replace(LOOP, world_size=4, process=Process(1_000 + number, rank=number))
