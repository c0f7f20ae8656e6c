"""A whole run, watched from inside at the cost of some microseconds a step.

The end of a step is the end of an update: on the device where there is one, else on the host.
Nothing waits for the device.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from traceprobe.capture.loader.batch_feed import feed
from traceprobe.capture.process.progress import current_rank, is_alive, write_result
from traceprobe.capture.watch.device_marks import step_taker
from traceprobe.capture.watch.device_readings import DeviceReadings
from traceprobe.capture.watch.loader_waits import LoaderWaits
from traceprobe.capture.watch.pauses import Collections, Saves
from traceprobe.capture.watch.readings import Readings
from traceprobe.capture.watch.rows import FACTS, READINGS, SUFFIX, Kind, Row, RowLog
from traceprobe.capture.watch.step_rows import SeenSteps, StepRows
from traceprobe.capture.watch.watch_plan import WatchPlan

if TYPE_CHECKING:
    from traceprobe.capture.watch.short_captures import ShortCaptures


class WatchSession:
    """Notes what happens in this process, from the end of its first step to its own end.

    Whatever goes wrong here is said once, and the program runs on unwatched.
    """

    def __init__(self, plan: WatchPlan) -> None:
        self._number = 0
        self._ended_ns = 0
        self._on = False
        self._graphs = 0
        self._retries: int | None = None
        self._facts: dict[str, Any] = {}
        self._captures: ShortCaptures | None = None
        # One that is on another machine, or not seen from here, cannot be seen to go.
        self._watcher = plan.watcher if plan.watcher and is_alive(plan.watcher) else 0
        try:
            self._begin(plan)
        except Exception as error:
            self._fail(error)

    def before_step(self, number: int) -> bool:
        """An update has ended a step, and step `number` begins; the program always goes on."""
        if self._on and number:  # the first update ended a step whose beginning nobody saw
            try:
                self._step()
            except Exception as error:
                self._fail(error)
        return True

    def _begin(self, plan: WatchPlan) -> None:
        rank = current_rank()
        self._stem = Path(plan.folder) / f"rank{rank}-{os.getpid()}"
        self._log = RowLog(self._stem.with_suffix(SUFFIX))
        self._steps = step_taker(self._rows(plan, rank))
        self._waits = LoaderWaits(self._note)
        self._collections, self._saves = Collections(self._note), Saves(self._note)
        self._device = device = DeviceReadings(plan.clock_seconds)
        self._facts = {
            "rank": rank,
            "began_ns": time.perf_counter_ns(),
            "device": device.name,
            "workers": None,
            "ended": False,
        }
        self._write_facts()
        self._graphs = _graphs()
        self._readings = Readings(
            self._stem.with_suffix(READINGS), plan.clock_seconds, device.read, self._reading
        )
        feed.source = self._waits.next
        self._on = True
        atexit.register(self.close)
        os.register_at_fork(after_in_child=self._forked)
        self._ended_ns = time.perf_counter_ns()

    def _rows(self, plan: WatchPlan, rank: int) -> StepRows:
        """Of ranks the first makes captures: it waits for the others, so it is late with them."""
        if not plan.captures or rank:
            return StepRows(self._log)
        from traceprobe.capture.watch.short_captures import ShortCaptures

        self._captures = ShortCaptures(plan, self._note, rank)
        return SeenSteps(self._log, self._captures.see)

    def _step(self) -> None:
        now = time.perf_counter_ns()
        self._steps.add(self._number, now, now - self._ended_ns, self._waits.step())
        graphs = _graphs()
        if graphs != self._graphs:
            self._note(Kind.COMPILATION, max(graphs - self._graphs, 1), now, 0)
            self._graphs = graphs
        self._ended_ns = now
        self._number += 1
        if self._captures is not None:
            self._captures.between(self._number)

    def _note(self, kind: Kind, count: int, end_ns: int, ns: int) -> None:
        self._log.add(Row(kind, self._number, count, end_ns, ns))
        if self._captures is not None:
            self._captures.explain(self._number, ns)

    def _reading(self, reading: dict[str, Any]) -> None:
        """After each reading: what is in it of steps, and what has been kept is written."""
        retries = reading.get("retries")
        if self._retries is not None and retries is not None and retries > self._retries:
            self._note(Kind.RETRY, retries - self._retries, reading["at_ns"], 0)
        self._retries = retries
        self._log.write()
        if self._facts["workers"] != self._waits.workers:
            self._facts["workers"] = self._waits.workers
            self._write_facts()

    def close(self) -> None:
        """The program ends in order, or is to be watched no more."""
        if not self._on:
            return
        self._leave()
        atexit.unregister(self.close)
        with suppress(Exception):
            if self._captures is not None:
                self._captures.close()
            self._steps.close()
            self._readings.end()
            self._facts["ended"] = True
            self._write_facts()
        self._device.end()
        if self._watcher and not is_alive(self._watcher):
            _tidy(self._stem)

    def _forked(self) -> None:
        """In a process that was forked: the files are those of its parent."""
        if self._captures is not None:
            self._captures.forget()
        self._leave()

    def _leave(self) -> None:
        """Watch no more."""
        self._on = False
        feed.source = None
        self._collections.end()
        self._saves.end()

    def _write_facts(self) -> None:
        write_result(self._stem.with_suffix(FACTS), json.dumps(self._facts))

    def _fail(self, error: Exception) -> None:
        with suppress(Exception):
            self._leave()
            if self._captures is not None:
                self._captures.close()
        if sys.stderr is not None:
            sys.stderr.write(
                f"traceprobe: watching ended, the program goes on: {type(error).__name__}: "
                f"{error}\n"
            )


def _tidy(stem: Path) -> None:
    """Leave nothing where nobody is left to tell; the last process takes the folder with it."""
    with suppress(OSError):
        for path in stem.parent.glob(f"{stem.name}.*"):
            path.unlink()
        if not any(stem.parent.glob(f"*{FACTS}")):
            shutil.rmtree(stem.parent)


def _graphs() -> int:
    """Graphs that `torch.compile` has made so far."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    return 0 if dynamo is None else int(dynamo.counters["stats"].get("unique_graphs", 0))
