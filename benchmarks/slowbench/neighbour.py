"""Another process that computes on the same device while it is asked to."""

from __future__ import annotations

import os
import time
from pathlib import Path

import torch

_ON, _READY = "neighbour.on", "neighbour.ready"
_SIDE, _SIDE_CPU = 4096, 256
_BURST_S, _POLL_S = 0.01, 0.002
_PATIENCE_S = 40.0


class Neighbour:
    """The other process, as the case sees it; the session starts it.

    Args:
        folder: of the case.
    """

    def __init__(self, folder: Path) -> None:
        self._on, self._ready = folder / _ON, folder / _READY

    def wait_until_ready(self) -> None:
        """Until it could begin.

        Raises:
            TimeoutError: it does not come.
        """
        ends = time.monotonic() + _PATIENCE_S
        while not self._ready.exists():
            if time.monotonic() > ends:
                raise TimeoutError("there is no neighbour")
            time.sleep(_POLL_S)

    def __enter__(self) -> Neighbour:
        """Let it compute."""
        self._on.touch()
        time.sleep(5 * _POLL_S)
        return self

    def __exit__(self, *_: object) -> None:
        """Let it rest."""
        self._on.unlink(missing_ok=True)
        time.sleep(_BURST_S + 5 * _POLL_S)


def compute_beside(folder: Path, opened: Path, busy: float) -> None:
    """Compute in bursts, a share of the time, while it is asked to; until the case is over.

    Args:
        opened: file that is there while the device is open to all.
    """
    while not opened.exists():
        time.sleep(_POLL_S)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.set_num_threads(1)
    side = _SIDE if device == "cuda" else _SIDE_CPU
    a = torch.randn(side, side, device=device, dtype=torch.bfloat16)
    _burst(a)
    (folder / _READY).touch()
    parent = os.getppid()
    while os.getppid() == parent and folder.exists():
        if not (folder / _ON).exists():
            time.sleep(_POLL_S)
            continue
        _burst(a)
        time.sleep(_BURST_S * (1 - busy) / busy)
    os._exit(0)


def _burst(a: torch.Tensor) -> None:
    ends = time.monotonic() + _BURST_S
    while time.monotonic() < ends:
        torch.mm(a, a)
        if a.is_cuda:
            torch.cuda.synchronize()
