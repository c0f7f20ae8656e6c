"""All cases of one call: a process each, a turn on the device for one after the other.

Processes are forked from this one, which has imported PyTorch and never uses a device; those of
Nsight Systems are started anew under it. Some are set up beside each other. Then the device is
closed: who uses it is stopped, and those that are ready take their turns alone. Exports, slices and
compression are done meanwhile. What a case leaves is written as it comes.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.injection.recordings import read_rows
from benchmarks.program_recordings import bundle
from benchmarks.slowbench.cases import Case, Split, cases, line_of
from benchmarks.slowbench.catalog import CATALOG
from benchmarks.slowbench.causes import BY_ID
from benchmarks.slowbench.finish import DONE, finish
from benchmarks.slowbench.neighbour import compute_beside
from benchmarks.slowbench.turns import USES_DEVICE, Place
from benchmarks.slowbench.worker import ACTIVE, GROUP, RESULT, costs, work, write_case
from traceprobe.capture import nsys_tool

ROOT = Path(__file__).resolve().parents[2]
_TICK_S = 0.01
_NICE = 10
_LAST_S = 40
"""Before the end nothing more is started for so many seconds."""
_LAST_CHARACTERS = 1200


@dataclass(frozen=True)
class Plan:
    """What is recorded, and with how much patience.

    Args:
        out: folder of results. count: of cases. gpus: of the machine; 0 for a CPU.
        jobs: processes for each device. ready: cases that take their turns in a row, at least.
        seconds: after which all is ended. limit, turn_limit: seconds for a case, and for its turn.
        nsys: whether Nsight Systems records too. only: causes, or ids; empty for all.
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
    nsys: bool
    only: tuple[str, ...] = ()


@dataclass
class Running:
    """A case that is being recorded.

    Args:
        group: of its processes. tool: Nsight Systems around it. device: its number.
    """

    case: Case
    place: Place
    group: int
    tool: subprocess.Popen[bytes] | None
    device: int
    began: float
    neighbour: int | None = None
    turn_began: float = 0.0
    turn_s: float = 0.0
    stopped: bool = False
    ended: bool = False

    @property
    def own_group(self) -> int | None:
        """Group of the program under a tool, once it has one."""
        try:
            return int((self.place.folder / GROUP).read_text())
        except (OSError, ValueError):
            return None


class Device:
    """A GPU, or the CPU: who may use it now.

    Args:
        opened: file that is there while all may.
    """

    def __init__(self, number: int, opened: Path, ready: int) -> None:
        self.number, self.opened, self._least = number, opened, ready
        self.turn: Running | None = None
        self.closed = False
        opened.touch()

    def tick(self, running: list[Running], now: float) -> None:
        """Open or close the device, and give turns."""
        states = [(each, each.place.state) for each in running if not each.ended]
        ready = [each for each, state in states if state == "ready"]
        coming = [s for _, s in states if s in ("starting", "waiting", "setting up")]
        if not self.closed and ready and (len(ready) >= self._least or not coming):
            self.closed = True
            self.opened.unlink()
        if not self.closed:
            return
        self._stop(states)
        if self.turn is not None and not self.turn.ended and self.turn.place.state == "timing":
            return
        if self.turn is not None and self.turn.place.state == "ready" and not self.turn.ended:
            return  # it was told, and has not seen it yet
        if self.turn is not None and not self.turn.turn_s:
            self.turn.turn_s = now - self.turn.turn_began
        self.turn = ready[0] if ready else None
        if self.turn is None:
            self.closed = False
            self.opened.touch()
            for each, _ in states:
                _signal(each, signal.SIGCONT)
            return
        self.turn.turn_began = now
        self.turn.place.give_turn()

    def _stop(self, states: list[tuple[Running, str]]) -> None:
        for each, state in states:
            if state in USES_DEVICE and not each.stopped:
                _signal(each, signal.SIGSTOP)


def _signal(running: Running, number: signal.Signals) -> None:
    running.stopped = number == signal.SIGSTOP
    own = running.own_group
    _send(running.group if running.tool is None else own, number)


def _send(group: int | None, number: signal.Signals) -> None:
    try:
        if group is not None:
            os.killpg(group, number)
    except OSError:
        return


class Session:
    """All cases of one call."""

    def __init__(self, plan: Plan, work_folder: Path) -> None:
        self.plan, self.work = plan, work_folder
        self.began = time.monotonic()
        self.rows = plan.out / "rows.jsonl"
        self.known = {row["id"]: row for row in read_rows(self.rows) if not row["failed"]}
        self.machine = machine(plan.gpus)
        self.devices = [
            Device(n, work_folder / f"open{n}", plan.ready) for n in range(max(plan.gpus, 1))
        ]
        self.running: list[Running] = []
        self.recorded: list[Running] = []
        self.finishing: dict[int, Running] = {}
        self._hands = max(self.machine["cpus"] // 3, 1)
        self.untimed: list[dict[str, Any]] = []
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
        )
        only = set(self.plan.only)
        queue = [
            case
            for case in wanted
            if case.id not in self.known
            and (not only or case.id in only or {p.cause for p in case.causes} & only)
        ]
        self.log(f"{len(queue)} of {len(wanted)} cases to record; {self.machine}")
        while (queue or self._busy) and self.elapsed < self.plan.seconds:
            for device in self.devices:
                mine = [each for each in self.running if each.device == device.number]
                room = sum(not each.ended for each in mine) < self.plan.jobs
                if queue and room and self._goes_on:
                    self._start(queue.pop(0), device)
                device.tick(mine, self.elapsed)
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
        """End what is still running, and write what waits for the times of another case."""
        for running in self.running:
            self._kill(running)
        for pid in self.finishing:
            os.kill(pid, signal.SIGKILL)
        for row in self.untimed:
            self._save({**row, "failed": "its twin was not timed"})

    def _start(self, case: Case, device: Device) -> None:
        folder = self.work / case.id
        folder.mkdir()
        write_case(case, folder)
        place = Place(folder, device.opened)
        neighbour = None
        if case.neighbour is not None:
            busy = case.neighbour
            neighbour = self._fork(
                folder, device, lambda: compute_beside(folder, device.opened, busy)
            )
        tool = None
        if case.backend == "nsys":
            tool = self._start_nsys(folder, device)
            group = tool.pid
        else:
            group = self._fork(folder, device, lambda: work(folder, device.opened))
        self.running.append(
            Running(case, place, group, tool, device.number, self.elapsed, neighbour)
        )

    def _fork(self, folder: Path, device: Device, call: Any) -> int:
        pid = os.fork()
        if pid:
            return pid
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        try:
            os.setsid()
            os.environ.update(self._environment(device))
            output = os.open(folder / "output", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            for number in (1, 2):
                os.dup2(output, number)
            call()
        finally:
            os._exit(1)

    def _environment(self, device: Device) -> dict[str, str]:
        mine = {"TORCHINDUCTOR_COMPILE_THREADS": "1"}
        return {**mine, "CUDA_VISIBLE_DEVICES": str(device.number)} if self.plan.gpus else mine

    def _start_nsys(self, folder: Path, device: Device) -> subprocess.Popen[bytes]:
        program = [sys.executable, "-m", "benchmarks.slowbench.worker"]
        program += [str(folder), str(device.opened)]
        command = nsys_tool.nsys_command(
            self._tool, folder / "run", program, event_trace=self._events
        )
        path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        with (folder / "output").open("wb") as output:
            return subprocess.Popen(
                command,
                env={**os.environ, **self._environment(device), "PYTHONPATH": path},
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                cwd=folder,
            )

    def _reap(self) -> None:
        for running in list(self.running):
            over = self.elapsed - running.began > self.plan.limit
            slow = running.place.state == "timing" and (
                self.elapsed - running.turn_began > self.plan.turn_limit
            )
            if (over or slow) and not running.ended:
                self._kill(running)
                why = "the turn" if slow else "the case"
                self._end(running, f"{why} was not over in time")
                continue
            done = _is_over(running)
            if running.place.state == "done" and not running.ended:
                running.ended = True  # its report may still be written
            if done:
                self._end(running, None)
        for pid in list(self.finishing):
            if os.waitpid(pid, os.WNOHANG)[0]:
                self._keep(self.finishing.pop(pid))

    def _kill(self, running: Running) -> None:
        for group in (running.own_group, running.group, running.neighbour):
            _send(group, signal.SIGKILL)

    def _end(self, running: Running, failed: str | None) -> None:
        """The processes of a case are over; what is left is made small in another."""
        running.ended = True
        self.running.remove(running)
        self._kill(running)  # loader workers, and the neighbour
        if failed is not None:
            result = {"failed": failed, "blocks": {}}
            (running.place.folder / RESULT).write_text(json.dumps(result))
        self.recorded.append(running)

    def _finish(self) -> None:
        """Begin with what was recorded, as far as there are hands."""
        while self.recorded and len(self.finishing) < self._hands:
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
        row = self._row(running)
        files = sorted((folder / DONE).glob("*"))
        if not row["failed"] and not files:
            row["failed"] = "no recording"
        if not row["failed"] and not bundle(files, case.id, self.plan.out, f"{case.split}-"):
            row["failed"] = "no room"
        if case.backend == "nsys" and case.causes and not row["failed"]:
            timed = self.known.get(case.twin)
            if timed is None:
                self.untimed.append(row)
            else:
                row = _with_times(row, timed)
        if row not in self.untimed:
            self._save(row)
        told = row["failed"] or ", ".join(
            f"{c['id']} {c.get('ms', 0):.2f} [{c.get('low', 0):.2f}, {c.get('high', 0):.2f}]"
            for c in row["causes"]
        )
        last = str(told).strip().splitlines()[-1:] or ["healthy"]
        self.log(
            f"{case.id}: {row.get('healthy_ms')} -> {row.get('slow_ms')} ms, felt {row.get('felt')}"
            f"; {last[0]}; {sum(f.stat().st_size for f in files) // 1000} kB; "
            f"turn {running.turn_s:.1f} s of {self.elapsed - running.began:.0f}: {row['seconds']}"
        )
        for waiting in list(self.untimed):
            if waiting["twin"] == case.id and not row["failed"]:
                self.untimed.remove(waiting)
                self._save(_with_times(waiting, row))
        shutil.rmtree(folder, ignore_errors=True)

    def _save(self, row: Mapping[str, Any]) -> None:
        if not row["failed"]:
            self.known[row["id"]] = dict(row)
            self.made += 1
        with self.rows.open("a") as file:
            file.write(json.dumps(row, sort_keys=True) + "\n")

    def _row(self, running: Running) -> dict[str, Any]:
        case, folder = running.case, running.place.folder
        try:
            result = json.loads((folder / RESULT).read_text())
        except (OSError, ValueError):
            said = (folder / "output").read_text(errors="replace")
            result = {"failed": said[-_LAST_CHARACTERS:] or "it ended", "blocks": {}}
        row: dict[str, Any] = {
            "id": case.id,
            "twin": case.twin,
            "program": case.program,
            "backend": case.backend,
            "split": case.split,
            "seed": case.seed,
            "ranks": 1,
            "options": dict(case.options),
            "causes": [_cause(case, number) for number in range(len(case.causes))],
            "healthy_ms": None,
            "slow_ms": None,
            "felt": False if not case.causes else None,
            "blocks": result["blocks"],
            "failed": result["failed"],
            "steps": ACTIVE,
            "cut": result.get("finish"),
            "seconds": {**result.get("seconds", {}), "finish": result.get("finish_s")},
            "turn_s": round(running.turn_s, 2),
            "machine": self.machine,
        }
        if result["failed"] or not result["blocks"]:
            return row
        timed = costs(case, result["blocks"])
        return _with_times(row, timed)


def _is_over(running: Running) -> bool:
    if running.tool is not None:
        return running.tool.poll() is not None
    try:
        return bool(os.waitpid(running.group, os.WNOHANG)[0])
    except ChildProcessError:
        return True


def _cause(case: Case, number: int) -> dict[str, Any]:
    placed = case.causes[number]
    cause, line = BY_ID[placed.cause], line_of(case, placed.cause)
    return {
        "id": cause.id,
        "class": cause.cls,
        "phase": cause.phase,
        "file": None if line is None else line.file,
        "line": None if line is None else line.line,
        "more_lines": [] if line is None else list(line.more),
        "function": None if line is None else line.function,
        "rank": None,
        "level": placed.level,
    }


def _with_times(row: Mapping[str, Any], timed: Mapping[str, Any]) -> dict[str, Any]:
    """A row with what its causes cost, as its own blocks or those of its twin have it."""
    own = timed["causes"]
    causes = [
        {**cause, **{k: found[k] for k in ("ms", "low", "high")}}
        for cause, found in zip(row["causes"], own, strict=True)
    ]
    names = ("healthy_ms", "slow_ms", "felt", "each_felt")
    return {**row, "causes": causes, **{name: timed[name] for name in names if name in timed}}


def machine(gpus: int) -> dict[str, Any]:
    """What the cases run on."""
    import torch

    from traceprobe.capture.hardware import nvidia_smi

    names = nvidia_smi("--query-gpu=name", "--format=csv,noheader") if gpus else []
    return {
        "gpus": (names or [])[:gpus],
        "cpus": len(os.sched_getaffinity(0)),
        "torch": torch.__version__,
        "python": ".".join(map(str, sys.version_info[:3])),
    }


def _preload() -> None:
    """Import, once for all, what programs and the recording of them import."""
    needs = {name for program in CATALOG for name in program.needs}
    for name in ("torch._dynamo", *sorted(needs)):
        if find_spec(name):
            import_module(name)


def record(plan: Plan) -> None:
    """Record cases; what they leave is in `rows.jsonl`, `log` and tars called as the split."""
    plan.out.mkdir(parents=True, exist_ok=True)
    _preload()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with tempfile.TemporaryDirectory(prefix="slowbench-", ignore_cleanup_errors=True) as name:
        session = Session(plan, Path(name).resolve())
        try:
            session.run()
        finally:
            session.close()
