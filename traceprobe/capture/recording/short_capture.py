"""A short capture: torch.profiler over a few steps of a program that runs on.

The program comes first. Nothing is captured beside a profiler of its own or while it captures a
CUDA graph. PyTorch writes a trace with the interpreter locked, so the loop stands still for that; a
thread compresses it.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

from traceprobe.capture.machine.device import captures_graph, synchronize
from traceprobe.capture.profiler.other_profilers import other_profilers
from traceprobe.capture.profiler.profiler_backend import TorchBackend
from traceprobe.capture.recording.block_lengths import MOST_AHEAD
from traceprobe.capture.recording.recording_plan import RecordingPlan, trace_name

SETTLE, ACTIVE = 1, 4
"""Steps under the profiler that are thrown away, and that are kept; one more ends the last."""
READY_S = 20.0
"""Time that may be spent on using up what a loader has ready; up to twice that, as it is looked at
after 1, 2, 4, 8 … steps, so that ranks, which step together, throw away the same number."""
MOST_S = 60.0
"""A capture is ended at the step that ends after that."""
MOST_BYTES = 1 << 30
"""Of a trace before it is compressed; a longer one is thrown away."""
PACK_S = 60.0
"""Time that the last trace has when the program ends."""
_LOADERS = "torch.utils.data.dataloader"
KINETO_QUIET = "KINETO_LOG_LEVEL", "6"
"""Variable and value; else the profiler's library writes a line where each capture begins and ends.
The library looks once, when it is first used."""


def may_capture(give_up: Callable[[], None]) -> bool:
    """Whether the profiler is free, which it then is until the capture has ended.

    Args:
        give_up: called where the program starts a profiler of its own meanwhile.
    """
    return not captures_graph() and other_profilers.borrow(give_up)


def ready_steps(step_s: float) -> int:
    """Steps that use up what loaders of this process make while a profiler starts, at most.

    What time allows is a power of two: the times of ranks differ a little, and all should throw
    away the same number.

    Args:
        step_s: how long one takes; 0 where that is not known.
    """
    from traceprobe.capture.oracle.instances import instances

    kind = getattr(sys.modules.get(_LOADERS), "_MultiProcessingDataLoaderIter", None)
    with suppress(Exception):  # loaders of any make
        ready = [i._num_workers * i._prefetch_factor for i in instances(kind or _NoLoader)]
        affordable = MOST_AHEAD if step_s <= 0 else _power_of_2(READY_S / step_s)
        return min(max(ready, default=0), MOST_AHEAD, affordable)
    return 0


def _power_of_2(most: float) -> int:
    """The largest one that is not above; 0 below 1."""
    return 1 << int(most).bit_length() >> 1


class _NoLoader:
    """What a process without PyTorch's loaders has none of."""


class ShortCapture:
    """One capture; it begins here, after `may_capture`.

    Args:
        folder: of its trace.
        rank: of this process.
        active: steps that are kept.
        steps: as of `TorchBackend`.
        ready: steps that are thrown away besides, as of `ready_steps`.
    """

    def __init__(
        self,
        folder: Path,
        rank: int,
        active: int = ACTIVE,
        steps: Literal["numbered", "named"] = "numbered",
        ready: int = 0,
    ) -> None:
        self.began_ns = time.perf_counter_ns()
        self.steps = 0
        """That have ended since it began."""
        self.trace = folder / trace_name(rank)
        self._settle, self._active = SETTLE + ready, active
        plan = RecordingPlan(folder=str(folder), active=active)
        self._backend = TorchBackend(plan, rank, steps)
        try:
            with other_profilers.ours(), _quiet():
                self._backend.start(active, self._settle)
        except Exception:
            self.abandon()
            raise
        self.pause_ns = time.perf_counter_ns() - self.began_ns
        """For how long the loop stood still."""

    @property
    def kept(self) -> int:
        """Steps so far that the trace will have."""
        return max(self.steps - self._settle, 0)

    @property
    def cut_to(self) -> int | None:
        """Steps that are whole, where it was ended in the middle of one; else None."""
        return self.kept if self.kept <= self._active else None

    def step(self) -> bool:
        """A step has ended; whether the capture goes on."""
        self.steps += 1
        if captures_graph():
            return True
        late = time.perf_counter_ns() - self.began_ns > MOST_S * 1e9
        if self.steps > self._settle + self._active or late:
            return False
        with other_profilers.ours():
            self._keep_in_time()
            self._backend.step()
        return True

    def _keep_in_time(self) -> None:
        """Throw away no more steps where those before took too long: else none would be kept.

        How long a step takes is not always known when the capture begins, and may have changed.
        """
        spent_s = (time.perf_counter_ns() - self.began_ns) / 1e9
        if self.steps < self._settle and spent_s > READY_S and self.steps.bit_count() == 1:
            self._backend.skip(self._settle - self.steps)
            self._settle = self.steps

    def stop(self) -> Path:
        """End it.

        Returns:
            A plain file with the trace, for `pack`.

        Raises:
            MemoryError: the trace is too long; its file is gone.
        """
        began = time.perf_counter_ns()
        with other_profilers.ours():
            synchronize()
            self._backend.stop()
        other_profilers.release()
        plain = self._backend.unload()
        if plain.stat().st_size > MOST_BYTES:
            plain.unlink()
            raise MemoryError(
                f"a trace of {self.steps} steps is longer than {MOST_BYTES >> 30} GiB"
            )
        self.pause_ns += time.perf_counter_ns() - began
        return plain

    def pack(self, plain: Path, metadata: dict[str, Any]) -> None:
        """Make the plain file the trace. Other threads run on."""
        self._backend.pack(plain, metadata)

    def abandon(self) -> None:
        """Drop it: the program ends, or starts a profiler of its own."""
        other_profilers.release()
        with suppress(Exception), other_profilers.ours():
            self._backend.abandon()


@contextmanager
def _quiet() -> Iterator[None]:
    """Ask the profiler's library to be quiet, where the user asks it for nothing."""
    name, value = KINETO_QUIET
    if name in os.environ:
        yield
        return
    os.environ[name] = value
    try:
        yield
    finally:
        os.environ.pop(name, None)
