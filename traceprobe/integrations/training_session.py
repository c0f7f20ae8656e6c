"""What all integrations do: mark the steps of a training, record some, and say what they show.

Whatever goes wrong is said once, and the training goes on without recordings.
"""

from __future__ import annotations

import atexit
import os
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from statistics import median

from traceprobe.capture.loop.loop_session import session_of_process
from traceprobe.capture.machine.device import captures_graph
from traceprobe.capture.profiler.other_profilers import other_profilers
from traceprobe.capture.profiler.profiler_ranges import ProfilerRange, ProfilerRanges
from traceprobe.capture.recording.short_capture import (
    PACK_S,
    ShortCapture,
    may_capture,
    ready_steps,
)
from traceprobe.integrations.analysis import FOLDER, WORK, Analysis, Outcome, keep_leftovers
from traceprobe.integrations.recording_requests import Requests
from traceprobe.integrations.settings import Settings
from traceprobe.model.step_names import step_name
from traceprobe.system import shell

PACED, ENOUGH = 64, 8
"""Last steps that say how long a step takes without a profiler, and how many do at least."""
TRIES = 3
"""Times that a recording is begun again when an evaluation comes between."""


class TrainingSession:
    """Told by a trainer of its steps.

    Args:
        rank, ranks: of this process and of all.
        log: gets what each recording shows, on the first rank, in the thread of the training.
    """

    def __init__(
        self, settings: Settings, rank: int, ranks: int, log: Callable[[Outcome], None]
    ) -> None:
        self._settings, self._rank, self._ranks, self._log = settings, rank, ranks, log
        self._output = Path(settings.output)
        self._requests = Requests(settings, rank, ranks, self._say)
        self._mark = ProfilerRanges()
        self._open: list[ProfilerRange] = []
        self._said: set[str] = set()
        self._pace: deque[int] = deque(maxlen=PACED)
        self._capture: ShortCapture | None = None
        self._analyses: list[Analysis] = []
        self._done = self._began = self._recorded = 0
        self._ended_ns = self._tries = 0
        self._process = os.getpid()
        self._active = False
        """Between the beginning and the end of a training."""
        self._on = self._in_step = self._again = self._ever_due = False

    @property
    def recording(self) -> bool:
        """Whether the steps are being recorded."""
        return self._capture is not None

    def begin(self, done: int) -> None:
        """The training begins, after so many steps of an earlier one."""
        self.abandon()
        self._process, self._active = os.getpid(), True
        self._done = self._began = done
        self._on = session_of_process() is None  # else `traceprobe` records, and we only mark
        self._in_step = self._again = self._ever_due = False
        self._tries = self._ended_ns = 0
        self._pace.clear()
        if not self._on:
            return
        try:
            self._output.mkdir(parents=True, exist_ok=True)
            if not self._rank:
                keep_leftovers(self._output)
            self._requests.open(done)
            other_profilers.watch()
            atexit.register(self.abandon)
        except Exception as error:
            self._fail(error)

    def step_begins(self) -> None:
        """The work of a step begins; told again inside of it, where it has several batches."""
        if self._in_step:
            return
        self._in_step = True
        if not self._open:
            self._enter(self._step_name)
        if self._on:
            try:
                self._begin_recording()
            except Exception as error:
                self._fail(error)

    def step_ended(self, done: int) -> None:
        """An update has ended a step, the one that makes it so many."""
        self._leave()
        self._in_step, self._done = False, done
        try:
            self._step()
        except Exception as error:
            self._fail(error)
        self._enter(self._step_name)

    def phase_begins(self, name: str) -> None:
        """A part of the step begins, on the thread of the training."""
        self._enter(name)

    def phase_ends(self) -> None:
        """The part that began last ends."""
        if len(self._open) > 1:  # the first is the step
            self._open.pop().__exit__(None, None, None)

    def phase(self, name: str) -> ProfilerRange:
        """A context manager around a part of the step."""
        return self._mark(name)

    def interrupted(self) -> None:
        """An evaluation begins, which is no part of a step: half a recording is made again."""
        if self._capture is not None:
            try:
                self._interrupt(self._capture)
            except Exception as error:
                self._fail(error)

    def end(self) -> None:
        """The training ends in order: wait a while for what is not ready, and say what is lost."""
        self._leave()
        try:
            if self._active:
                self._end()
        except Exception as error:
            self._fail(error)
        self.abandon()

    def abandon(self) -> None:
        """The training or the program ends, perhaps in an error: keep what is complete."""
        if not self._active or os.getpid() != self._process:
            return
        self._active = self._on = False
        self._drop()
        with suppress(Exception):
            self._requests.close()
        deadline = time.monotonic() + PACK_S
        for analysis in self._analyses:
            analysis.packed.wait(max(deadline - time.monotonic(), 0.0))
            analysis.cancel()
            self._tell_unread(analysis)
        self._analyses.clear()
        atexit.unregister(self.abandon)

    @property
    def _step_name(self) -> str:
        return step_name(self._done + 1)

    def _begin_recording(self) -> None:
        due = self._requests.due(self._done, self._step_s)
        if self._capture is not None or not (due or self._again):
            return
        if due:
            self._tries, self._ever_due = 0, True
        self._again = captures_graph()  # then nothing may be asked of the device
        if self._again:
            return
        if not may_capture(self._give_up):
            self._say(
                "the program runs a PyTorch profiler of its own, beside which no recording is made"
            )
            return
        self._leave()
        self._recorded = self._done
        work = self._output / WORK / FOLDER.format(self._done)
        work.mkdir(parents=True, exist_ok=True)
        # Where evaluations come so often that it has to be made again, it must be short.
        ready = 0 if self._tries else ready_steps(self._step_s())
        self._capture = ShortCapture(work, self._rank, self._settings.steps, "named", ready)
        self._enter(self._step_name)

    def _step(self) -> None:
        now = time.perf_counter_ns()
        busy = self._capture is not None or bool(self._analyses)
        if self._ended_ns and not busy:
            self._pace.append(now - self._ended_ns)
        if self._capture is not None and not self._capture.step():
            self._stop(self._capture)
        if self._analyses:
            self._deliver()
        self._ended_ns = 0 if busy else time.perf_counter_ns()

    def _interrupt(self, capture: ShortCapture) -> None:
        if 2 * capture.kept >= self._settings.steps:
            self._stop(capture)
            return
        self._drop()
        self._tries += 1
        self._again = self._tries < TRIES
        if not self._again:
            self._say(
                f"no recording: {TRIES} times in a row an evaluation came before half of its "
                f"{self._settings.steps} steps had ended; take fewer with steps=1"
            )

    def _stop(self, capture: ShortCapture) -> None:
        self._leave()
        plain = capture.stop()
        self._capture = None
        step_s = self._step_s()
        analysis = Analysis(
            capture,
            plain,
            step=self._recorded,
            output=self._output,
            facts={"unprofiled_step_ms": 1e3 * step_s} if step_s else {},
            rank=self._rank,
            ranks=self._ranks,
        )
        self._analyses.append(analysis)
        analysis.start()
        self._pace.clear()

    def _step_s(self) -> float:
        """How long a step takes without the profiler, s; 0 while too few have been seen."""
        return median(self._pace) / 1e9 if len(self._pace) >= ENOUGH else 0.0

    def _deliver(self) -> None:
        """Log what is ready."""
        for analysis in [each for each in self._analyses if not each.is_alive()]:
            self._analyses.remove(analysis)
            if analysis.outcome is None:
                self._tell_unread(analysis)
                continue
            self._tell(analysis.outcome, analysis.missing)
            try:
                self._log(analysis.outcome)
            except Exception as error:
                self._say(f"a logger did not take the report: {type(error).__name__}: {error}")

    def _end(self) -> None:
        capture = self._capture
        if capture is not None and capture.kept:
            self._stop(capture)
        elif capture is not None or self._again:
            self._drop()
            self._say(f"the training ended before a step after step {self._recorded} was recorded")
        deadline = time.monotonic() + self._settings.wait_s
        for analysis in self._analyses:
            analysis.join(max(deadline - time.monotonic(), 0.0))
        self._deliver()
        if self._on and self._settings.every and not self._ever_due:
            self._say(
                f"no recording was made: the training had {self._done - self._began} steps, and "
                f"one is made every {self._settings.every}"
            )

    def _tell(self, outcome: Outcome, missing: tuple[int, ...]) -> None:
        absent = f" (without ranks {', '.join(map(str, missing))})" if missing else ""
        self._say(f"step {outcome.step}{absent}: {outcome.headline} See {outcome.report}")

    def _tell_unread(self, analysis: Analysis) -> None:
        """Say where a recording is that there is no report of."""
        if self._rank:
            if analysis.error is not None:
                self._warn(f"the recording after step {analysis.step} is lost: {analysis.error}")
            return
        why = f": {analysis.error}" if analysis.error is not None else " in time"
        folder = analysis.folder or self._output / WORK / FOLDER.format(analysis.step)
        with suppress(OSError):
            if any(folder.glob("*.json.gz")):
                why += f"; to do it: traceprobe analyze {shell.file(str(folder))}"
        self._say(f"the recording after step {analysis.step} was not analysed{why}")

    def _enter(self, name: str) -> None:
        entered = self._mark(name)
        entered.__enter__()
        self._open.append(entered)

    def _leave(self) -> None:
        """Leave what is open, the innermost first; an error may have left several."""
        while self._open:
            with suppress(Exception):
                self._open.pop().__exit__(None, None, None)

    def _drop(self) -> None:
        self._leave()
        capture, self._capture = self._capture, None
        if capture is not None:
            capture.abandon()
            with suppress(OSError):
                capture.trace.parent.rmdir()
                capture.trace.parent.parent.rmdir()

    def _give_up(self) -> None:
        """The program starts a profiler of its own."""
        self._drop()
        self._say("the program has started a PyTorch profiler of its own; the recording gave way")

    def _fail(self, error: Exception) -> None:
        self._on = False
        with suppress(Exception):
            other_profilers.release()
            self._drop()
            self._requests.close()
        self._warn(
            f"no more recordings are made, the training goes on: {type(error).__name__}: {error}"
        )

    def _say(self, text: str) -> None:
        """A line for people, once, and not by every rank."""
        if not self._rank:
            self._warn(text)

    def _warn(self, text: str) -> None:
        """A line for people, once."""
        who = f"rank {self._rank}: " if self._rank else ""
        if text not in self._said and sys.stderr is not None:
            self._said.add(text)
            with suppress(Exception):
                _write_line(f"traceprobe: {who}{text}")


def _write_line(line: str) -> None:
    """Write to standard error; above the progress bars of trainers, where there are some."""
    tqdm = getattr(sys.modules.get("tqdm"), "tqdm", None)
    if tqdm is None:
        sys.stderr.write(f"{line}\n")
    else:
        tqdm.write(line, file=sys.stderr)
