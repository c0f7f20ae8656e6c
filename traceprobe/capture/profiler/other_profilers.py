"""A profiler of the program's own, beside which ours cannot run.

PyTorch has one profiler in a process. A second one that is started while another runs, or is
prepared to, takes its events, fails in the middle of the program or crashes it. So PyTorch's
functions that prepare, start and stop a profiler are watched from the beginning, whoever calls
them and on whichever thread.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

from traceprobe.capture.process.progress import refuse

OWN_PROFILER = (
    "this program runs a PyTorch profiler of its own, and {} cannot record beside it; take it out, "
    "or let it write its trace and read that: traceprobe analyze TRACE"
)
_STARTS = ("_prepare_profiler", "_enable_profiler", "_enable_profiler_legacy")
_STOPS = ("_disable_profiler", "_disable_profiler_legacy")
_MODULES = ("torch.autograd.profiler", "torch.autograd.profiler_legacy")


class OtherProfilers:
    """Who uses the profiler of this process."""

    def __init__(self) -> None:
        self._watched: set[str] = set()
        self._theirs: tuple[Any, ...] | None = None
        """The arguments that one of the program's own was started with; None while none runs."""
        self._claim: tuple[str, str] | None = None
        """Folder and backend of our recording, while it lasts."""
        self._give_up: Callable[[], None] | None = None
        """Ends our short capture, while one lasts."""
        self._ours = 0

    def watch(self) -> None:
        """See every profiler that begins from now on."""
        for name in _MODULES:
            module = sys.modules.get(name)
            if module is None or name in self._watched:
                continue
            self._watched.add(name)
            for place in _STARTS:
                self._wrap(module, place, self._begins)
            for place in _STOPS:
                self._wrap(module, place, self._ends)

    def claim(self, folder: str, backend: str) -> None:
        """Our recording begins. It has the profiler alone until it is released.

        Raises:
            SystemExit: the program uses it already; the reason is in the folder.
        """
        self.watch()
        import torch

        if self._theirs is None and torch.autograd._profiler_enabled():
            self._theirs = ()  # since before this was watched
        self._claim = folder, backend
        if self._theirs is not None:
            self._check(self._theirs)

    def borrow(self, give_up: Callable[[], None]) -> bool:
        """Whether the profiler is free for a short capture, until it is released.

        The program comes first: where it starts a profiler of its own, `give_up` is called before.
        """
        self.watch()
        import torch

        if self._theirs is not None or torch.autograd._profiler_enabled():
            return False
        self._give_up = give_up
        return True

    def release(self) -> None:
        """Our recording or capture has ended."""
        self._claim = self._give_up = None

    @contextmanager
    def ours(self) -> Iterator[None]:
        """What is started and stopped inside is our own profiler."""
        self._ours += 1
        try:
            yield
        finally:
            self._ours -= 1

    def _begins(self, *arguments: Any) -> None:
        if self._ours:
            return
        self._check(arguments)
        self._theirs = arguments

    def _ends(self, *_: Any) -> None:
        if self._ours:
            return
        if self._theirs is None:  # one that was refused is cleaned up: it would stop ours
            self._check(())
        self._theirs = None

    def _check(self, arguments: tuple[Any, ...]) -> None:
        give_up, self._give_up = self._give_up, None
        if give_up is not None:
            give_up()
        if self._claim is None:
            return
        folder, backend = self._claim
        if backend == "torch" or _traces_devices(arguments):
            tool = {"torch": "torch.profiler", "nsys": "Nsight Systems"}[backend]
            refuse(folder, OWN_PROFILER.format(tool))

    def _wrap(self, module: Any, place: str, observe: Callable[..., None]) -> None:
        wrapped = getattr(module, place, None)
        if wrapped is None:
            return

        @wraps(wrapped)
        def call(*arguments: Any, **options: Any) -> Any:
            observe(*arguments)
            return wrapped(*arguments, **options)

        setattr(module, place, call)


def _traces_devices(arguments: tuple[Any, ...]) -> bool:
    """Whether a profiler uses CUPTI, which serves one tool only.

    Ranges for other tools (`emit_nvtx`) and profilers of the CPU do not.
    """
    return len(arguments) < 2 or any(
        getattr(activity, "name", "") != "CPU" for activity in arguments[1]
    )


other_profilers = OtherProfilers()
"""Those of this process."""
