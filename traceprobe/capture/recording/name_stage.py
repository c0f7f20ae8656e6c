"""The steps after the timed ones in which lines, modules and shapes are recorded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from traceprobe.capture.blame.recorder import BlameRecorder
from traceprobe.capture.machine.device import synchronize
from traceprobe.capture.process.progress import DONE, report_state
from traceprobe.capture.profiler.other_profilers import other_profilers
from traceprobe.capture.recording.recording_plan import RecordingPlan
from traceprobe.formatting import counted


class NameStage:
    """Names for a recording that is complete without them.

    Args:
        updates_counted: whether every step ends with one of an optimizer.
    """

    def __init__(self, plan: RecordingPlan, rank: int, *, updates_counted: bool) -> None:
        self.wanted = plan.blame and plan.backend == "torch"
        self._folder = plan.folder
        self._recorder = BlameRecorder(plan.folder, rank, updates_counted=updates_counted)
        self._begun = False
        self._ended = not self.wanted

    def steps(self) -> Iterator[bool]:
        """True before every step that is to be made for them."""
        if self._ended:
            return
        try:
            with other_profilers.ours():
                self._recorder.start()
            self._begun = True
            goes_on = True
            while goes_on:
                yield True
                with other_profilers.ours():
                    goes_on = self._recorder.step()
            synchronize()
            with other_profilers.ours():
                self._recorder.stop()
        except Exception as error:  # the timed recording is complete without names
            self._abandon(f"recording them failed ({type(error).__name__}: {error})")
        self._end()

    def close(self) -> None:
        """The loop has ended, perhaps before the steps for names were made."""
        if self._ended:
            return
        early = (
            f"{counted(self._recorder.wanting, 'step')} too early for them"
            if self._begun
            else "before the steps in which they are recorded"
        )
        self._abandon(
            f"the program ended {early}; let it run longer, or record fewer (--calibrate, --active)"
        )
        self._end()

    def _abandon(self, reason: str) -> None:
        with suppress(Exception), other_profilers.ours():
            self._recorder.abandon(reason)

    def _end(self) -> None:
        self._ended = True
        other_profilers.release()
        report_state(self._folder, DONE)
