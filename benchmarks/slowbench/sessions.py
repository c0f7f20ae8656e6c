"""All cases of one call: a process each, a turn on the device for one after the other.

Processes are forked from this one, which has imported PyTorch and never uses a device; those of
Nsight Systems are started anew under it. Some are set up beside each other. Then the devices are
closed: who uses one is stopped, and those that are ready take their turns, one at a time on each.
Exports, slices and compression are begun between the turns. What a case leaves is written as it
comes.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.injection.recordings import machine, read_rows
from benchmarks.program_recordings import bundle
from benchmarks.slowbench.cases import Case, Split, cases
from benchmarks.slowbench.costs import NO_CONTROL
from benchmarks.slowbench.devices import Device, Running, tick
from benchmarks.slowbench.finish import DONE, finish, read_result
from benchmarks.slowbench.neighbour import compute_beside
from benchmarks.slowbench.rows import UNTIMED, in_words, row_of, with_times
from benchmarks.slowbench.starting import environment, fork, preload, start_nsys
from benchmarks.slowbench.turns import Place
from benchmarks.slowbench.worker import RESULT, work, write_case
from traceprobe.capture.process import nsys_tool

_TICK_S = 0.01
_NICE = 10
_LAST_S = 40
"""Before the end nothing more is started for so many seconds."""


@dataclass(frozen=True)
class Plan:
    """What is recorded, and with how much patience.

    Args:
        out: folder of results. count: of cases. gpus: of the machine; 0 for a CPU.
        jobs: processes for each device. ready: cases that take their turns in a row, at least.
        seconds: after which all is ended. limit, turn_limit: seconds for a case, and for its turn.
        rounds: in each of which all forms of a case are timed. ranks: of the cases.
        nsys: whether Nsight Systems records too. healthy_every: a case of so many has no cause.
        only: causes, or ids; empty for all.
    """

    out: Path
    split: Split
    seed: int
    count: int
    gpus: int
    jobs: int
    ready: int
    seconds: float
    limit: float
    turn_limit: float
    rounds: int
    ranks: int
    nsys: bool
    healthy_every: int
    only: tuple[str, ...] = ()


class Session:
    """All cases of one call."""

    def __init__(self, plan: Plan, work_folder: Path) -> None:
        self.plan, self.work = plan, work_folder
        self.began = time.monotonic()
        self.rows = plan.out / "rows.jsonl"
        rows = {row["id"]: row for row in read_rows(self.rows)}
        self.known = {name: row for name, row in rows.items() if not row["failed"]}
        self.untimed = [row for row in rows.values() if row["failed"] == UNTIMED]
        self._refused = {
            row["id"] for row in rows.values() if str(row["failed"]).startswith(NO_CONTROL)
        }
        self.machine = machine(plan.gpus)
        self.devices = [
            Device(n, work_folder / f"open{n}", plan.ready)
            for n in range(max(plan.gpus // plan.ranks, 1))
        ]
        self.running: list[Running] = []
        self.recorded: list[Running] = []
        self.finishing: dict[int, Running] = {}
        self._hands = max(self.machine["cpus"] // 3, 1)
        self.made = 0
        self._tool = nsys_tool.find_nsys() if plan.nsys else ""
        self._events = plan.nsys and nsys_tool.knows_event_trace(self._tool)

    @property
    def elapsed(self) -> float:
        """Seconds since the call began."""
        return time.monotonic() - self.began

    def log(self, text: str) -> None:
        """A line for people."""
        line = f"{self.elapsed:6.1f} s  {text}"
        print(line, flush=True)
        with (self.plan.out / "log").open("a") as file:
            file.write(line + "\n")

    def run(self) -> None:
        """Record cases until there are no more, or no time."""
        wanted = cases(
            *(self.plan.split, self.plan.seed, self.plan.count),
            cpu=not self.plan.gpus,
            nsys=self.plan.nsys,
            ranks=self.plan.ranks,
            healthy_every=self.plan.healthy_every,
        )
        only = set(self.plan.only)
        made = {*self.known, *self._refused, *(row["id"] for row in self.untimed)}
        queue = [
            case
            for case in wanted
            if case.id not in made
            and (not only or case.id in only or {p.cause for p in case.causes} & only)
        ]
        self._pass_on_times()
        self.log(f"{len(queue)} of {len(wanted)} cases to record; {self.machine}")
        while (queue or self._busy) and self.elapsed < self.plan.seconds:
            for device in self.devices:
                mine = sum(e.device == device.number and not e.ended for e in self.running)
                if queue and mine < self.plan.jobs and self._goes_on:
                    self._start(queue.pop(0), device)
            tick(self.devices, self.running, self.elapsed)
            self._reap()
            self._finish()
            time.sleep(_TICK_S)
            if not self._busy and not self._goes_on:
                break
        self.log(f"done: {self.made} recorded, {len(queue)} left")

    @property
    def _busy(self) -> bool:
        return bool(self.running or self.recorded or self.finishing)

    @property
    def _goes_on(self) -> bool:
        """Whether another case is to be started; not while what was recorded piles up."""
        in_time = self.elapsed < self.plan.seconds - _LAST_S
        return in_time and len(self.recorded) < 2 * self._hands

    def close(self) -> None:
        """End what is still running; what waits for the times of another case goes on waiting."""
        for running in self.running:
            running.kill()
        for pid in self.finishing:
            os.kill(pid, signal.SIGKILL)

    def _start(self, case: Case, device: Device) -> None:
        folder, opened = self.work / case.id, device.opened
        folder.mkdir()
        write_case(case, self.plan.rounds, folder)
        first = device.number * self.plan.ranks
        variables = environment(range(first, first + self.plan.ranks if self.plan.gpus else first))
        neighbour, tool, busy = None, None, case.neighbour
        if busy is not None:
            neighbour = fork(folder, variables, lambda: compute_beside(folder, opened, busy))
        if case.backend == "nsys":
            tool = start_nsys(folder, opened, variables, self._tool, events=self._events)
            group = tool.pid
        else:
            group = fork(folder, variables, lambda: work(folder, opened))
        place = Place(folder, opened)
        self.running.append(
            Running(case, place, group, tool, device.number, self.elapsed, neighbour)
        )

    def _reap(self) -> None:
        for running in list(self.running):
            over = self.elapsed - running.began > self.plan.limit
            slow = running.place.state == "timing" and (
                self.elapsed - running.turn_began > self.plan.turn_limit
            )
            if (over or slow) and not running.ended:
                running.kill()
                why = "the turn" if slow else "the case"
                self._end(running, f"{why} was not over in time")
                continue
            done = running.is_over
            if running.place.state == "done" and not running.ended:
                running.ended = True  # its report may still be written
            if done:
                self._end(running, None)
        for pid in list(self.finishing):
            if os.waitpid(pid, os.WNOHANG)[0]:
                self._keep(self.finishing.pop(pid))

    def _end(self, running: Running, failed: str | None) -> None:
        """The processes of a case are over; what is left is made small in another."""
        running.ended = True
        self.running.remove(running)
        running.kill()  # loader workers, and the neighbour
        if failed is not None:
            result = {"failed": failed, "blocks": {}}
            (running.place.folder / RESULT).write_text(json.dumps(result))
        self.recorded.append(running)

    def _finish(self) -> None:
        """Begin with what was recorded, as far as there are hands, and not beside a turn."""
        turns = self.devices[0].closed and self._goes_on
        while self.recorded and not turns and len(self.finishing) < self._hands:
            running = self.recorded.pop(0)
            pid = os.fork()
            if not pid:
                try:
                    os.nice(_NICE)
                    finish(running.case, running.place.folder, self._tool or None)
                finally:
                    os._exit(0)
            self.finishing[pid] = running

    def _keep(self, running: Running) -> None:
        """Write the row and the files of a case."""
        case, folder = running.case, running.place.folder
        about = {
            "turn_s": round(running.turn_s, 2),
            "machine": self.machine,
            "healthy_every": self.plan.healthy_every,
        }
        row = row_of(case, read_result(folder), about)
        files = sorted((folder / DONE).glob("*"))
        if not row["failed"] and not files:
            row["failed"] = "no recording"
        if not row["failed"] and not bundle(files, case.id, self.plan.out, f"{case.split}-"):
            row["failed"] = "no room"
        if case.backend == "nsys" and not row["failed"]:
            row["failed"] = UNTIMED
            self.untimed.append(row)
        self._save(row)
        self.log(
            f"{case.id}: {in_words(row)}; {sum(f.stat().st_size for f in files) // 1000} kB; "
            f"turn {running.turn_s:.1f} s of {self.elapsed - running.began:.0f}: {row['seconds']}"
        )
        self._pass_on_times()
        shutil.rmtree(folder, ignore_errors=True)

    def _pass_on_times(self) -> None:
        """Give those of Nsight Systems the times of their twins, as far as these are recorded."""
        for row in [row for row in self.untimed if row["twin"] in self.known]:
            self.untimed.remove(row)
            self._save(with_times({**row, "failed": None}, self.known[row["twin"]]))

    def _save(self, row: Mapping[str, Any]) -> None:
        if not row["failed"]:
            self.known[row["id"]] = dict(row)
            self.made += 1
        with self.rows.open("a") as file:
            file.write(json.dumps(row, sort_keys=True) + "\n")


def record(plan: Plan) -> None:
    """Record cases; what they leave is in `rows.jsonl`, `log` and tars called as the split."""
    plan.out.mkdir(parents=True, exist_ok=True)
    preload()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with tempfile.TemporaryDirectory(prefix="slowbench-", ignore_cleanup_errors=True) as name:
        session = Session(plan, Path(name).resolve())
        try:
            session.run()
        finally:
            session.close()
