"""Runs a program of spinning kernels on a GPU; needs torch with CUDA, and `nvcc` once."""

from __future__ import annotations

import ctypes
import subprocess
import threading
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from benchmarks.dependencies_known.program import COMMUNICATION, Action, Intervention, Program

WARM = 4
"""Iterations at the beginning of a block that do not count."""


def library(folder: Path) -> ctypes.CDLL:
    """The kernels, compiled where that was not done before."""
    built = folder / "spin.so"
    if not built.exists():
        source = Path(__file__).with_name("spin.cu")
        options = ["-O2", "-shared", "-Xcompiler", "-fPIC", "-arch=sm_90"]
        subprocess.run(["nvcc", *options, "-o", str(built), str(source)], check=True)
    found = ctypes.CDLL(str(built))
    found.spin.argtypes = [ctypes.c_int, ctypes.c_longlong, ctypes.c_void_p]
    found.work.argtypes = [ctypes.c_longlong]
    return found


class Player:
    """A program on the device of this process. `with` it: its second thread must end."""

    def __init__(self, program: Program, rank: int, device: int, spins: ctypes.CDLL) -> None:
        self.program, self.mine, self.rank = program, program.ranks[rank], rank
        self.device, self.spins = device, spins
        self.sizes = {
            (action.does, action.number): action.size
            for action in self.mine.actions()
            if action.does in ("kernel", "work")
        }
        """What everything lasts now."""
        self.planned = dict(self.sizes)
        self.streams = [torch.cuda.Stream(device) for _ in range(program.streams)]
        self.events: dict[int, torch.cuda.Event] = {}
        self.messages = {
            action.number: torch.zeros(action.size // 4, device=f"cuda:{device}")
            for action in self.mine.actions()
            if action.does in COMMUNICATION
        }
        self.open: dict[int, Any] = {}
        self.numbers = [torch.zeros((), device=f"cuda:{device}") for _ in self.streams]
        torch.cuda.synchronize(device)
        self.bodies = [list(map(self._call, thread)) for thread in self.mine.threads]
        self.tail = list(map(self._call, self.mine.tail))
        self.ended = False
        self.begin = threading.Barrier(len(self.bodies))
        self.middle = threading.Barrier(len(self.bodies))
        self.others = [
            threading.Thread(target=self._other, args=(body,), daemon=True)
            for body in self.bodies[1:]
        ]
        for other in self.others:
            other.start()

    def __enter__(self) -> Player:
        return self

    def __exit__(self, *_: object) -> None:
        self.ended = True
        if self.others:
            self.begin.wait()
        for other in self.others:
            other.join()
        torch.cuda.synchronize(self.device)

    def _other(self, body: Sequence[Callable[[], object]]) -> None:
        torch.cuda.set_device(self.device)
        self.spins.use(self.device)
        while True:
            self.begin.wait()
            if self.ended:
                return
            for call in body:
                call()
            self.middle.wait()

    def iterate(self) -> None:
        """One iteration."""
        if self.others:
            self.begin.wait()
        for call in self.bodies[0]:
            call()
        if self.others:
            self.middle.wait()
        for call in self.tail:
            call()

    def change(self, intervention: Intervention | None) -> None:
        """From now on something lasts longer, or nothing does."""
        self.sizes.update(self.planned)
        if intervention is not None and intervention.rank == self.rank:
            self.sizes[intervention.does, intervention.number] += intervention.delta_ns

    def block(self, iterations: int) -> list[float]:
        """Times of iterations in a row, ms, by events on stream 0; from an idle device on."""
        torch.cuda.synchronize(self.device)
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(WARM + iterations + 1)]
        for mark in marks:
            mark.record(self.streams[0])
            self.iterate()
        torch.cuda.synchronize(self.device)
        counted = marks[WARM:]
        return [round(a.elapsed_time(b), 5) for a, b in pairwise(counted)]

    def _call(self, action: Action) -> Callable[[], object]:
        """An action as a function."""
        does, number, stream = action.does, action.number, self.streams[action.stream]
        make = {
            "kernel": lambda: self._kernel(number, stream),
            "work": lambda: self._work(number),
            "record": lambda: self._record(number, stream),
            "wait": lambda: self._wait(number, stream),
            "sync-event": lambda: lambda: self.events[number].synchronize(),
            "sync-stream": lambda: stream.synchronize,
            "item": lambda: self._item(action.stream),
            "finish": lambda: self._finish(number, stream),
        }
        return make.get(does, lambda: self._message(action, stream))()

    def _kernel(self, number: int, stream: torch.cuda.Stream) -> Callable[[], object]:
        spin, sizes, key = self.spins.spin, self.sizes, ("kernel", number)
        handle = stream.cuda_stream

        def call() -> None:
            if spin(number + 1, sizes[key], handle):
                raise RuntimeError("a kernel was not launched")

        return call

    def _work(self, number: int) -> Callable[[], object]:
        work, sizes, key = self.spins.work, self.sizes, ("work", number)
        return lambda: work(sizes[key])

    def _record(self, number: int, stream: torch.cuda.Stream) -> Callable[[], object]:
        events, fresh = self.events, self.program.fresh

        def call() -> None:
            if fresh or number not in events:
                events[number] = torch.cuda.Event()
            events[number].record(stream)

        return call

    def _wait(self, number: int, stream: torch.cuda.Stream) -> Callable[[], object]:
        events = self.events

        def call() -> None:
            if number in events:  # else it is recorded first in an iteration that is to come
                stream.wait_event(events[number])

        return call

    def _item(self, stream: int) -> Callable[[], object]:
        value, on = self.numbers[stream], self.streams[stream]

        def call() -> None:
            with torch.cuda.stream(on):
                value.item()

        return call

    def _message(self, action: Action, stream: torch.cuda.Stream) -> Callable[[], object]:
        data, number = self.messages[action.number], action.number
        if action.does == "all-reduce":
            start: Callable[[], Any] = lambda: dist.all_reduce(data, async_op=True)  # noqa: E731
        else:
            send = dist.isend if action.does == "send" else dist.irecv
            start = lambda: send(data, 1 - self.rank)  # noqa: E731

        def call() -> None:
            with torch.cuda.stream(stream):
                self.open[number] = start()

        return call

    def _finish(self, number: int, stream: torch.cuda.Stream) -> Callable[[], object]:
        def call() -> None:
            with torch.cuda.stream(stream):
                self.open.pop(number).wait()

        return call


def record(player: Player, iterations: int, path: Path, *, events: bool = True) -> None:
    """A recording of so many iterations by torch.profiler."""
    with profiler(events=events, warm=1, active=iterations) as profile:
        torch.cuda.synchronize()
        for _ in range(iterations + 1):
            player.iterate()
            profile.step()
    profile.export_chrome_trace(str(path))


def profiler(*, events: bool, warm: int, active: int) -> Any:
    """torch.profiler at its lightest, with rows for waits between streams or without."""
    from torch._C._profiler import _ExperimentalConfig
    from torch.profiler import ProfilerActivity, profile, schedule

    return profile(
        activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA],
        schedule=schedule(wait=0, warmup=warm, active=active, repeat=1),
        experimental_config=_ExperimentalConfig(enable_cuda_sync_events=events),
    )


def record_nsys(player: Player, iterations: int) -> None:
    """Iterations inside a range for Nsight Systems, to be cut out of its recording by that."""
    torch.cuda.synchronize()
    with named(player.program.name):
        for number in range(iterations):
            with named(f"iteration {number}"):
                player.iterate()
        torch.cuda.synchronize()


def named(name: str) -> Any:
    """An NVTX range."""
    return torch.cuda.nvtx.range(name)
