"""Short captures of a watched run, now and then; what goes wrong ends them, not the run."""

from __future__ import annotations

import json
import shutil
import sys
import threading
import time
from pathlib import Path

from traceprobe.capture.machine.hardware import collect_environment
from traceprobe.capture.process.progress import write_result
from traceprobe.capture.profiler.other_profilers import other_profilers
from traceprobe.capture.recording.short_capture import (
    PACK_S,
    SETTLE,
    ShortCapture,
    may_capture,
    ready_steps,
)
from traceprobe.capture.watch.capture_trigger import CaptureTrigger, Reason
from traceprobe.capture.watch.loader_waits import Note
from traceprobe.capture.watch.rows import Kind
from traceprobe.capture.watch.watch_plan import WatchPlan

LEAD = SETTLE + 1
"""Steps that a capture begins before the one that it is made for."""
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
        self._capture: ShortCapture | None = None
        self._packing: threading.Thread | None = None
        self._reason: Reason | None = None
        self._first = self._number = 0
        self._lengthened = -1
        """The last step that is known to be longer by a capture."""
        self._pause_ns = 0
        self._ended = False

    def see(self, number: int, ns: int) -> None:
        """A step has ended, perhaps long ago."""
        busy = self._capture is not None or self._packing is not None
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
        if self._capture is not None:
            self._give_up()
        self._ended = True
        if self._packing is not None:
            self._packing.join(PACK_S)
            self._mark()

    def forget(self) -> None:
        """In a process that was forked: the captures are those of its parent."""
        self._ended, self._capture, self._packing = True, None, None

    def _between(self, number: int) -> None:
        if self._capture is not None:
            if not self._capture.step():
                self._stop(self._capture)
            return
        if self._packing is not None:
            if not self._packing.is_alive():
                self._packing = None
                self._mark()
            return
        reason = self._trigger.due(number)
        if reason is not None and may_capture(self._give_up):
            self._start(number, reason)

    def _start(self, number: int, reason: Reason) -> None:
        self._first, self._reason = number, reason
        folder = self._work / FOLDER.format(number)
        folder.mkdir()
        # A step that is expected must not be among those that are thrown away.
        ready = 0 if reason.period else ready_steps(reason.usual_ms / 1e3)
        self._capture = ShortCapture(folder, self._rank, ready=ready)
        self._pause_ns = self._capture.pause_ns

    def _stop(self, capture: ShortCapture) -> None:
        try:
            plain = capture.stop()
        except MemoryError:
            self._capture = None
            shutil.rmtree(capture.trace.parent)
            raise
        self._capture = None
        self._pause_ns = capture.pause_ns
        self._packing = threading.Thread(
            target=self._pack, args=(capture, plain), name="traceprobe-capture", daemon=True
        )
        self._packing.start()

    def _pack(self, capture: ShortCapture, plain: Path) -> None:
        reason = self._reason
        assert reason is not None
        try:
            usual = {"unprofiled_step_ms": reason.usual_ms} if reason.usual_ms else {}
            # A step that comes now and then is none that the usual ones can be held against.
            capture.pack(plain, {**collect_environment(), **({} if reason.period else usual)})
            about = {"first": self._first, "steps": capture.steps, "trace": capture.trace.name}
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
        capture, self._capture = self._capture, None
        if capture is not None:
            capture.abandon()
        self._mark()

    def _fail(self, error: Exception) -> None:
        """No more captures; the run goes on and is watched on."""
        self._ended = True
        other_profilers.release()
        if self._capture is not None:
            self._give_up()
        if sys.stderr is not None:
            sys.stderr.write(
                f"traceprobe: no more captures are made, the run is watched on: "
                f"{type(error).__name__}: {error}\n"
            )
