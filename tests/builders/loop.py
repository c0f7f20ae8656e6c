"""A training loop laid out op by op, and what its accounting must come to.

The expected numbers are sums of the loop's own parameters: nothing here walks the timeline.

    host   |step k ........................................|wait|step k+1 ...
    GPU       h2d|forward|memset|backward|comm|optimizer|d2h| loop gap |h2d|...
    window        [---------------------------- k ------------------------)

A GPU window starts at the first kernel, so it holds the copy of the step after it. Every launch
call starts `latency_ns + lag_ns` before its op does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from tests.builders.scenario import (
    COMM_STREAM,
    ONE_PROCESS,
    STREAM,
    OpKind,
    Process,
    Scenario,
    Script,
)

PARTITION = (
    *("forward", "backward", "recompute", "optimizer", "graph", "input", "unattributed"),
    *("communication", "h2d", "d2h", "memory"),
    *("idle_data_wait", "idle_host", "idle_sync", "idle_latency"),
    *("idle_profiler", "idle_unexplained"),
)
BUSY = PARTITION[:11]
LOADER = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
AUTOGRAD_OFFSET = 42


@dataclass(frozen=True)
class Expected:
    """What every complete step of a loop comes to; `windows` are their GPU windows."""

    windows: tuple[tuple[int, int], ...]
    partition_ns: dict[str, int]
    busy_ns: dict[str, int]
    launches: int
    collectives: int
    gpu_ops: int

    @property
    def window_ns(self) -> int:
        """Length of each window; the partition sums to it."""
        return sum(self.partition_ns.values())

    @property
    def shares(self) -> dict[str, float]:
        """The shares that decide a bound, as captured."""
        at = self.partition_ns
        sums = {
            "io": at["idle_data_wait"] + at["h2d"],
            "communication": at["communication"],
            "overhead": at["idle_host"] + at["idle_sync"] + at["idle_latency"],
            "compute": sum(at[phase] for phase in PARTITION[:7]) + at["memory"],
            "other": at["idle_profiler"] + at["idle_unexplained"] + at["d2h"],
        }
        return {name: ns / self.window_ns for name, ns in sums.items()}


@dataclass(frozen=True)
class _Piece:
    """One GPU op of a step, relative to the step's first op."""

    phase: str
    kind: OpKind
    t0: int
    t1: int


@dataclass(frozen=True)
class Loop:
    """Parameters of one process's training loop; durations are per step.

    Args:
        data_wait_ns: host time in the loader before each step.
        comm_overlap_ns: how much of `comm_ns` runs beside the backward kernels.
        launch_gap_ns: GPU gap between consecutive ops of a step.
        sync_ns: how long after the last GPU op a blocking synchronisation returns.
        tail_ns, head_ns: host work at the end of a step, and before its first launch.
        lag_ns: how much further the GPU runs behind the host than `latency_ns`.
        loop_gap_ns: GPU gap between two steps; by default what the host needs for its loop.
        kernels: how many make up forward, backward, optimizer.
        wait: where the wait is: between step ranges, in `DataLoader.__next__`, in a user range.
        phase_ranges: which phases get a user range, all of them on the main thread.
    """

    steps: int = 5
    data_wait_ns: int = 0
    h2d_ns: int = 0
    forward_ns: int = 0
    memset_ns: int = 0
    backward_ns: int = 0
    comm_ns: int = 0
    comm_overlap_ns: int = 0
    optimizer_ns: int = 0
    d2h_ns: int = 0
    launch_gap_ns: int = 0
    sync_ns: int = 0
    tail_ns: int = 0
    head_ns: int = 5_000
    lag_ns: int = 0
    loop_gap_ns: int | None = None
    latency_ns: int = 20_000
    call_ns: int = 5_000
    kernels: tuple[int, int, int] = (4, 4, 2)
    collectives: int = 1
    wait: Literal["between", "loader", "range"] = "between"
    step_name: str = "step {}"
    first_step: int = 0
    phase_ranges: frozenset[str] = frozenset({"h2d", "forward", "optimizer"})
    process: Process = ONE_PROCESS
    world_size: int | None = None
    device: int = 0
    h2d_bytes: int = 1 << 20
    pageable: bool = False
    start_ns: int = 1_000_000_000

    def __post_init__(self) -> None:
        pieces = self._pieces()
        room = self.call_ns * (1 + self.collectives)
        beside = self.backward_ns
        if self.launch_gap_ns and beside:
            beside = _split(self.backward_ns, self.kernels[1])[-1]
        last = pieces[-1].t1 - pieces[-1].t0 if pieces else 0
        problems = {
            "the loop has no GPU op": not pieces,
            "latency_ns is too short for the calls": self.latency_ns < room,
            "an op is shorter than the calls made during it": any(
                p.t1 - p.t0 < (room if p.phase == "backward" else 2 * self.call_ns)
                for p in pieces
                if p.kind != "comm"
            ),
            "comm_ns needs a backward that covers its overlap": self.comm_ns
            and not (beside and self.comm_overlap_ns <= min(self.comm_ns, beside)),
            "head_ns leaves no room for the range margin": self.head_ns < 2 * self._margin,
            "a synchronised loop has no lag": self.sync_ns and (self.lag_ns or self.loop_gap_ns),
            "the host loop does not fit": self._loop_gap + last
            < self.head_ns + self.data_wait_ns + self.tail_ns + self.call_ns + 2 * self._margin,
        }
        if found := [text for text, wrong in problems.items() if wrong]:
            raise ValueError("; ".join(found))

    @property
    def _margin(self) -> int:
        """How far an operator reaches beyond its call; a range reaches twice as far."""
        return self.call_ns // 5

    @property
    def _loop_gap(self) -> int:
        if self.loop_gap_ns is not None:
            return self.loop_gap_ns
        return self.sync_ns + self.tail_ns + self.data_wait_ns + self.head_ns + self.latency_ns

    @property
    def _ahead(self) -> int:
        return self.latency_ns + self.lag_ns

    def expected(self) -> Expected:
        """The accounting of each complete step, by arithmetic on the parameters."""
        present = [
            count
            for count, ns in (
                (1, self.h2d_ns),
                (self.kernels[0], self.forward_ns),
                (1, self.memset_ns),
                (self.kernels[1], self.backward_ns),
                (self.kernels[2], self.optimizer_ns),
                (1, self.d2h_ns),
            )
            if ns
        ]
        gaps = sum(present) - 1
        late = max(0, self.launch_gap_ns - self._ahead)
        loop_late = max(0, self._loop_gap - self._ahead)
        head = min(self.head_ns, loop_late)
        wait = min(self.data_wait_ns, loop_late - head)
        rest = loop_late - head - wait
        sync = max(0, rest - self.tail_ns) if self.sync_ns else 0
        exposed = self.comm_ns - self.comm_overlap_ns
        at = {
            "forward": self.forward_ns,
            "backward": self.backward_ns,
            "optimizer": self.optimizer_ns,
            "communication": exposed,
            "h2d": self.h2d_ns,
            "d2h": self.d2h_ns,
            "memory": self.memset_ns,
            "idle_data_wait": wait,
            "idle_sync": sync,
            "idle_host": head + rest - sync + gaps * late,
            "idle_latency": self._loop_gap - loop_late + gaps * (self.launch_gap_ns - late),
        }
        partition = {key: at.get(key, 0) for key in PARTITION}
        window = sum(partition.values())
        phases = (self.forward_ns, self.backward_ns, self.optimizer_ns)
        kernels = sum(n for n, ns in zip(self.kernels, phases, strict=True) if ns)
        collectives = self.collectives if self.comm_ns else 0
        first = self.start_ns + (self.h2d_ns + self.launch_gap_ns if self.h2d_ns else 0)
        return Expected(
            windows=tuple(
                (first + k * window, first + (k + 1) * window) for k in range(self.steps - 1)
            ),
            partition_ns=partition,
            busy_ns={key: partition[key] for key in BUSY} | {"communication": self.comm_ns},
            launches=kernels + collectives,
            collectives=collectives,
            gpu_ops=sum(present) + collectives,
        )

    def scenario(self) -> Scenario:
        """The rows of the loop."""
        script = Script(self.process, world_size=self.world_size)
        main, autograd = self.process.pid, self.process.pid + AUTOGRAD_OFFSET
        script.thread(main, "python3").thread(autograd, "pt_autograd_0")
        pieces = self._pieces()
        period = max(piece.t1 for piece in pieces) + self._loop_gap
        for k in range(self.steps):
            origin = self.start_ns + k * period
            self._host_rows(script, pieces, origin, origin + period, self.first_step + k)
            self._gpu_rows(script, pieces, origin, k)
        return script.build()

    def _pieces(self) -> list[_Piece]:
        cursor, pieces = 0, []
        forward, backward, optimizer = self.kernels
        plan: tuple[tuple[str, OpKind, int, int], ...] = (
            ("h2d", "h2d", self.h2d_ns, 1),
            ("forward", "kernel", self.forward_ns, forward),
            ("memset", "memset", self.memset_ns, 1),
            ("backward", "kernel", self.backward_ns, backward),
            ("optimizer", "kernel", self.optimizer_ns, optimizer),
            ("d2h", "d2h", self.d2h_ns, 1),
        )
        for phase, kind, total, number in plan:
            for length in _split(total, number):
                pieces.append(_Piece(phase, kind, cursor, cursor + length))
                cursor += length + self.launch_gap_ns
            if phase == "backward" and self.comm_ns:
                at = cursor - self.launch_gap_ns - self.comm_overlap_ns
                for length in _split(self.comm_ns, self.collectives):
                    pieces.append(_Piece("comm", "comm", at, at + length))
                    at += length
                cursor = max(cursor, at + self.launch_gap_ns)
        return pieces

    def _gpu_rows(self, script: Script, pieces: list[_Piece], origin: int, step: int) -> None:
        main, autograd = self.process.pid, self.process.pid + AUTOGRAD_OFFSET
        backward = [p for p in pieces if p.phase == "backward"]
        sequence = step * len(pieces)
        collectives = 0
        for index, piece in enumerate(pieces):
            thread = autograd if piece.phase in ("backward", "comm") else main
            call = origin + piece.t0 - self._ahead
            if piece.kind == "comm":
                collectives += 1
                under = [p for p in backward if p.t0 <= _first(pieces, "comm").t0][-1]
                call = origin + under.t0 - self._ahead + collectives * self.call_ns
            launch = (call, call + self.call_ns)
            script.op(
                piece.kind,
                origin + piece.t0,
                origin + piece.t1,
                launch,
                thread=thread,
                device=self.device,
                stream=COMM_STREAM if piece.kind == "comm" else STREAM,
                bytes={"h2d": self.h2d_bytes, "d2h": 4, "memset": 64}.get(piece.kind),
                pageable=piece.kind == "h2d" and self.pageable,
            )
            self._operator(script, piece.phase, launch, thread, sequence + index)

    def _operator(
        self, script: Script, phase: str, launch: tuple[int, int], thread: int, sequence: int
    ) -> None:
        t0, t1 = launch[0] - self._margin, launch[1] + self._margin
        if phase == "forward":
            script.operator("aten::relu", t0, t1, sequence=sequence, forward_thread=0)
        elif phase == "backward":
            name = "autograd::engine::evaluate_function: ReluBackward0"
            script.operator(name, t0, t1, thread=thread, sequence=sequence, forward_thread=1)
        elif phase == "optimizer":
            script.operator("aten::_foreach_add_", t0, t1)

    def _host_rows(
        self, script: Script, pieces: list[_Piece], origin: int, following: int, number: int
    ) -> None:
        begin = origin - self._ahead - self.head_ns
        end = following - self._ahead - self.head_ns - self.data_wait_ns
        step = self.step_name.format(number)
        if self.wait == "between":
            script.range(step, begin, end)
        else:
            script.range(step, begin - self.data_wait_ns, end)
            if self.data_wait_ns:
                name = LOADER if self.wait == "loader" else "data_loading"
                script.range(name, begin - self.data_wait_ns, begin)
        for phase in ("h2d", "forward", "backward", "optimizer"):
            calls = [origin + p.t0 - self._ahead for p in pieces if p.phase == phase]
            if calls and phase in self.phase_ranges:
                margin = 2 * self._margin
                script.range(phase, calls[0] - margin, calls[-1] + self.call_ns + margin)
        if self.sync_ns:
            last = max(origin + p.t0 for p in pieces if p.kind != "comm") - self._ahead
            returns = end - self.tail_ns
            script.call("cudaStreamSynchronize", last + self.call_ns + self._margin, returns)


def _first(pieces: list[_Piece], phase: str) -> _Piece:
    return next(piece for piece in pieces if piece.phase == phase)


def _split(total: int, number: int) -> list[int]:
    """`total` in `number` near-equal parts, whole microseconds if it is; nothing of nothing."""
    if not total:
        return []
    unit = 1_000 if total % 1_000 == 0 else 1
    part = total // unit // number * unit
    return [part] * (number - 1) + [total - part * (number - 1)]


def training_loop(
    steps: int = 5, *, base: Loop | None = None, **parameters: Any
) -> tuple[Scenario, Expected]:
    """A loop's scenario and what each of its complete steps comes to; see `Loop`."""
    loop = replace(base, steps=steps, **parameters) if base else Loop(steps, **parameters)
    return loop.scenario(), loop.expected()


EVERYTHING = Loop(
    steps=3,
    data_wait_ns=300_000,
    h2d_ns=40_000,
    forward_ns=400_000,
    memset_ns=20_000,
    backward_ns=600_000,
    comm_ns=250_000,
    comm_overlap_ns=100_000,
    optimizer_ns=100_000,
    d2h_ns=12_000,
    launch_gap_ns=30_000,
    sync_ns=50_000,
)
"""A loop with every kind of row."""
EVERYTHING_PAGEABLE = replace(EVERYTHING, pageable=True)
"""The same, with copies from pageable memory."""
TWO_COLLECTIVES = replace(EVERYTHING, steps=5, sync_ns=0, tail_ns=8_000, collectives=2)
"""One that communicates in two messages, and instead of a synchronisation does a last thing before
it begins anew."""
