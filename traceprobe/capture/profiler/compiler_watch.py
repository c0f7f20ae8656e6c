"""What torch.compile does in the recorded program, and profilers do not tell.

Nsight Systems records nothing of the compiler. Dynamo calls back around whatever it compiles, so
that there is a range of NVTX; torch.profiler has ranges of its own.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Any

from traceprobe.capture.blame.own_code import own_code
from traceprobe.capture.owners.program_place import ProgramPlace
from traceprobe.capture.profiler.double_code import double_code
from traceprobe.capture.profiler.graph_breaks import graph_breaks

_STAGE = "torch.compile (dynamo_timed)"
"""Read by `traceprobe.timeline.compiled_code`, as the mark before it."""


class CompilerWatch:
    """Whatever fails here is no matter of the program's."""

    def __init__(self) -> None:
        self._handler: Any = None
        self._place: ProgramPlace | None = None
        self._open: list[Any] = []
        self._marked = False

    def mark(self) -> None:
        """Have ranges around compilations, where the program has loaded Dynamo.

        To be called before each step: it may load it later, and forgets who to call if it is reset.
        """
        handler: Any = getattr(sys.modules.get("torch._dynamo.callback"), "callback_handler", None)
        if not hasattr(handler, "register_start_callback"):
            return
        self._handler, self._marked = handler, True
        if self._began not in handler.start_callbacks:
            handler.register_start_callback(self._began)
            handler.register_end_callback(self._ended)

    def end(self) -> None:
        """No ranges from now on."""
        handler, self._handler = self._handler, None
        if handler is not None and self._began in handler.start_callbacks:
            handler.remove_start_callback(self._began)
            handler.remove_end_callback(self._ended)

    def facts(self) -> dict[str, Any] | None:
        """As `traceprobe.model.sidecar.CompilerNotes`; None where nothing was compiled."""
        found: dict[str, Any] | None = None
        double: list[str] = []
        with suppress(Exception):
            found = graph_breaks(own_code())
        with suppress(Exception):  # of another part of PyTorch, which may fail alone
            double = double_code()
        return None if found is None else {"marked": self._marked, "double": double, **found}

    # Older versions of Dynamo tell nothing of what they compile. It may end on another thread than
    # it began on where two compile at once, so that ranges are no pushed ones.
    def _began(self, *told: Any) -> None:
        with suppress(Exception):
            import torch

            nvtx = torch.cuda.nvtx
            version = getattr(next(iter(told), None), "compile_id", None)
            if version:
                nvtx.mark(f"torch.compile compile_id={version}")
            self._place = self._place or ProgramPlace()
            line = self._place.line()
            self._open.append(nvtx.range_start(f"{_STAGE} at {line}" if line else _STAGE))

    def _ended(self, *_: Any) -> None:
        with suppress(Exception):
            import torch

            torch.cuda.nvtx.range_end(self._open.pop())


compiler_watch = CompilerWatch()
"""That of this process."""
