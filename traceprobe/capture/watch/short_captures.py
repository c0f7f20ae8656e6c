"""Short captures of a watched run: torch.profiler over a few steps, now and then.

The program comes first. Nothing is captured beside a profiler of its own or while it captures a
CUDA graph, and what goes wrong ends the captures, not the run. PyTorch writes a trace with the
interpreter locked, so the loop stands still for that; a thread compresses it.
"""

from __future__ import annotations

import json
import shutil
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

from traceprobe.capture.device import synchronize
from traceprobe.capture.hardware import collect_environment
from traceprobe.capture.other_profilers import other_profilers
from traceprobe.capture.profiler_backend import TorchBackend
from traceprobe.capture.progress import write_result
from traceprobe.capture.recording_plan import RecordingPlan, trace_name
from traceprobe.capture.watch.capture_trigger import CaptureTrigger, Reason
from traceprobe.capture.watch.loader_waits import Note
from traceprobe.capture.watch.rows import Kind
from traceprobe.capture.watch_plan import WatchPlan

SETTLE, ACTIVE = 1, 4
"""Steps under the profiler that are thrown away, and that are kept; one more ends the last."""
LEAD = SETTLE + 1
"""Steps that a capture begins before the one that it is made for."""
MOST_S = 60.0
"""A capture is ended at the step that ends after that."""
MOST_BYTES = 1 << 30
"""Of a trace before it is compressed; a longer one is thrown away, and no other is made."""
PACK_S = 60.0
"""Time that the last trace has when the program ends."""
FOLDER, ABOUT = "capture-{}", "capture.json"
"""Where a capture is put together, by its step, and the file that says that it is complete."""


class ShortCaptures:
    """Begins and ends captures between steps.

    Args:
        note: told of the steps that a capture lengthened.
        rank: of this process.
    """

    def __init__(self, plan: WatchPlan, note: Note, rank: int) -> None:
        self._work, self._note, self._rank = Path(plan.folder), note, rank
        self._trigger = CaptureTrigger(plan.captures, plan.every, LEAD)
        self._backend: TorchBackend | None = None
        self._packing: threading.Thread | None = None
        self._reason: Reason | None = None
        self._first = self._made = self._number = 0
        self._lengthened = -1
        """The last step that is known to be longer by a capture."""
        self._began_ns = self._pause_ns = 0
        self._ended = False

    def see(self, number: int, ns: int) -> None:
        """A step has ended, perhaps long ago."""
        busy = self._backend is not None or self._packing is not None
        if number > self._lengthened and not (busy and number >= self._first):
            self._trigger.see(number, ns)

    def explain(self, number: int, ns: int) -> None:
        """So much of a step is due to what was timed."""
        self._trigger.explain(number, ns)

    def between(self, number: int) -> None:
        """Step `number` begins, and the one before has ended."""
        if self._ended:
            return
        self._number = number
        try:
            self._between(number)
        except Exception as error:
            self._fail(error)

    def close(self) -> None:
        """The program ends: what is not complete is dropped, what is complete is kept."""
        if self._backend is not None:
            self._give_up()
        self._ended = True
        if self._packing is not None:
            self._packing.join(PACK_S)
            self._mark()

    def forget(self) -> None:
        """In a process that was forked: the captures are those of its parent."""
        self._ended, self._backend, self._packing = True, None, None

    def _between(self, number: int) -> None:
        if self._backend is not None:
            self._made += 1
            if _captures_graph():
                return
            late = time.perf_counter_ns() - self._began_ns > MOST_S * 1e9
            if self._made <= SETTLE + ACTIVE and not late:
                with other_profilers.ours():
                    self._backend.step()
            else:
                self._stop()
            return
        if self._packing is not None:
            if not self._packing.is_alive():
                self._packing = None
                self._mark()
            return
        reason = self._trigger.due(number)
        if reason is not None and not _captures_graph() and other_profilers.borrow(self._give_up):
            self._start(number, reason)

    def _start(self, number: int, reason: Reason) -> None:
        self._began_ns = time.perf_counter_ns()
        self._first, self._made, self._reason = number, 0, reason
        folder = self._work / FOLDER.format(number)
        folder.mkdir()
        self._backend = TorchBackend(
            RecordingPlan(folder=str(folder), settle=SETTLE, active=ACTIVE), self._rank
        )
        with other_profilers.ours():
            self._backend.start(ACTIVE)
        self._pause_ns = time.perf_counter_ns() - self._began_ns

    def _stop(self) -> None:
        began = time.perf_counter_ns()
        backend = self._backend
        assert backend is not None
        with other_profilers.ours():
            synchronize()
            backend.stop()
        self._backend = None
        other_profilers.release()
        plain = backend.unload()
        if plain.stat().st_size > MOST_BYTES:
            shutil.rmtree(plain.parent)
            raise MemoryError(
                f"a trace of {self._made} steps is longer than {MOST_BYTES >> 30} GiB"
            )
        self._pause_ns += time.perf_counter_ns() - began
        self._packing = threading.Thread(
            target=self._pack, args=(backend, plain), name="traceprobe-capture", daemon=True
        )
        self._packing.start()

    def _pack(self, backend: TorchBackend, plain: Path) -> None:
        reason = self._reason
        assert reason is not None
        try:
            usual = {"unprofiled_step_ms": reason.usual_ms} if reason.usual_ms else {}
            # A step that comes now and then is none that the usual ones can be held against.
            backend.pack(plain, {**collect_environment(), **({} if reason.period else usual)})
            about = {"first": self._first, "steps": self._made, "trace": trace_name(self._rank)}
            write_result(plain.parent / ABOUT, json.dumps({**about, **reason._asdict()}))
        except Exception as error:
            self._fail(error)

    def _mark(self) -> None:
        """All steps from the first that was captured to this one may be longer by it."""
        self._lengthened = self._number
        steps = self._number - self._first + 1
        self._note(Kind.CAPTURE, steps, time.perf_counter_ns(), self._pause_ns)

    def _give_up(self) -> None:
        """Drop what is being captured: the program ends, or starts a profiler of its own."""
        backend, self._backend = self._backend, None
        other_profilers.release()
        with suppress(Exception), other_profilers.ours():
            if backend is not None:
                backend.abandon()
        self._mark()

    def _fail(self, error: Exception) -> None:
        """No more captures; the run goes on and is watched on."""
        self._ended = True
        other_profilers.release()
        if self._backend is not None:
            self._give_up()
        if sys.stderr is not None:
            sys.stderr.write(
                f"traceprobe: no more captures are made, the run is watched on: "
                f"{type(error).__name__}: {error}\n"
            )


def _captures_graph() -> bool:
    """Whether the program captures a CUDA graph, when nothing else may be asked of the device."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is None or not cuda.is_initialized():
        return False
    return bool(cuda.is_current_stream_capturing())
