"""One declarative description of a profiled run; the writers turn it into either file format.

All times are integer nanoseconds on the scenario's own clock. `Script` lays rows out by hand;
`tests.builders.loop` lays out a whole training loop together with its exact expected numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar

OpKind = Literal["kernel", "comm", "h2d", "d2h", "d2d", "p2p", "memset", "graph"]
Form = Literal["push", "start", "mark", "text_push", "text_start"]

PID = 1000
AUTOGRAD = 1042
COMM_STREAM = 20
STREAM = 7

NAMES: dict[str, str] = {
    "kernel": "void at::native::vectorized_elementwise_kernel<4, AddFunctor<float>>(int, float*)",
    "comm": "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "memset": "Memset (Device)",
    "graph": "graph replay",
}
APIS: dict[str, str] = {
    "kernel": "cudaLaunchKernel",
    "comm": "cudaLaunchKernelExC",
    "memset": "cudaMemsetAsync",
    "graph": "cudaGraphLaunch",
}


@dataclass(frozen=True)
class Launch:
    """The host call that put a GPU op on its stream."""

    thread: int
    t0: int
    t1: int
    api: str


@dataclass(frozen=True)
class Message:
    """What the profiler notes of a collective, in its own words; None is not noted."""

    name: str = "allreduce"
    elements_in: int | None = 0
    elements_out: int | None = 0
    dtype: str | None = "Float"
    ranks: tuple[int, ...] = (0, 1)
    group: str = "0"


@dataclass(frozen=True)
class Op:
    """One GPU row. `launch=None` means that the file has no row for its host call."""

    kind: OpKind
    t0: int
    t1: int
    correlation: int
    pid: int = PID
    device: int = 0
    stream: int = STREAM
    name: str = ""
    bytes: int | None = None
    pageable: bool = False
    launch: Launch | None = None
    graph: bool = False
    message: Message | None = None
    blocks: int | None = None
    occupancy: int = 0

    @property
    def label(self) -> str:
        """The name that the file records; copies are named by the writers."""
        return self.name or NAMES.get(self.kind, self.kind)


@dataclass(frozen=True)
class Noted:
    """What the profiler notes of a call that records an event, or waits; None does not apply.

    Args:
        serial: number of the record among those of the process; of a wait, of that it is for.
        record: correlation of the record that a wait is for, and `record_stream` its stream, where
            the profiler knows them.
        call: the file has a row for the call itself.
    """

    stream: int | None = None
    event: int | None = None
    serial: int | None = None
    record: int | None = None
    record_stream: int | None = None
    device: int = 0
    call: bool = True


@dataclass(frozen=True)
class Call:
    """One host row of the CUDA API."""

    api: str
    thread: int
    t0: int
    t1: int
    correlation: int
    pid: int = PID
    noted: Noted | None = None


@dataclass(frozen=True)
class Range:
    """An annotation: `record_function` or NVTX. `t1=None` is still open when the capture ends."""

    name: str
    thread: int
    t0: int
    t1: int | None
    pid: int = PID
    form: Form = "push"
    domain: int = 0
    end_thread: int | None = None


@dataclass(frozen=True)
class Operator:
    """A framework operator (`aten::…`): a Kineto `cpu_op`, or text of `emit_nvtx`.

    One that is called `nn.Module: …` or `file.py(3): function` is a frame of Python.
    """

    name: str
    thread: int
    t0: int
    t1: int
    pid: int = PID
    sequence: int | None = None
    forward_thread: int | None = None
    operands: Mapping[str, Any] | None = None
    """`Input Dims`, `Input type` and the like, as the profiler writes them."""


@dataclass(frozen=True)
class Overhead:
    """A row of the profiler's own work, or (`driver`) a stall that the driver reports."""

    name: str
    t0: int
    t1: int
    thread: int = PID
    pid: int = PID
    driver: bool = False


@dataclass(frozen=True)
class Process:
    """A traced process; `devices` are the names of the GPUs it sees, by ordinal."""

    pid: int = PID
    name: str = "python3"
    rank: int | None = None
    devices: tuple[str, ...] = ("NVIDIA H200",)


ONE_PROCESS = Process()


@dataclass(frozen=True)
class Scenario:
    """Everything that a file records."""

    processes: tuple[Process, ...] = (ONE_PROCESS,)
    ops: tuple[Op, ...] = ()
    calls: tuple[Call, ...] = ()
    ranges: tuple[Range, ...] = ()
    operators: tuple[Operator, ...] = ()
    overheads: tuple[Overhead, ...] = ()
    thread_names: dict[tuple[int, int], str] = field(default_factory=dict)
    domains: dict[tuple[int, int], str] = field(default_factory=dict)
    diagnostics: tuple[tuple[int, int, str], ...] = ()
    """(time, severity 1 info, 2 warning, 3 error; text)."""
    world_size: int | None = None

    def host_calls(self) -> list[Call]:
        """Every host call once, in time order: those without a GPU op and one per launch."""
        launched = {
            (op.pid, op.correlation): Call(
                op.launch.api, op.launch.thread, op.launch.t0, op.launch.t1, op.correlation, op.pid
            )
            for op in self.ops
            if op.launch is not None
        }
        return sorted((*self.calls, *launched.values()), key=lambda c: (c.t0, c.pid, c.correlation))

    def only(self, pid: int) -> Scenario:
        """The rows of one process: what its own rank file holds."""
        return replace(
            self,
            processes=tuple(p for p in self.processes if p.pid == pid),
            ops=tuple(x for x in self.ops if x.pid == pid),
            calls=tuple(x for x in self.calls if x.pid == pid),
            ranges=tuple(x for x in self.ranges if x.pid == pid),
            operators=tuple(x for x in self.operators if x.pid == pid),
            overheads=tuple(x for x in self.overheads if x.pid == pid),
            thread_names={k: v for k, v in self.thread_names.items() if k[0] == pid},
            domains={k: v for k, v in self.domains.items() if k[0] == pid},
        )

    def shifted(self, ns: int) -> Scenario:
        """The same run on a clock that reads `ns` more."""
        return replace(
            self,
            ops=tuple(
                replace(o, t0=o.t0 + ns, t1=o.t1 + ns, launch=o.launch and _moved(o.launch, ns))
                for o in self.ops
            ),
            calls=tuple(_moved(c, ns) for c in self.calls),
            ranges=tuple(
                replace(r, t0=r.t0 + ns, t1=None if r.t1 is None else r.t1 + ns)
                for r in self.ranges
            ),
            operators=tuple(_moved(o, ns) for o in self.operators),
            overheads=tuple(_moved(o, ns) for o in self.overheads),
            diagnostics=tuple((t + ns, level, text) for t, level, text in self.diagnostics),
        )

    def end(self) -> int:
        """The last instant of any row that has an end."""
        ends = [op.t1 for op in self.ops] + [call.t1 for call in self.host_calls()]
        ends += [row.t1 for row in self.operators] + [row.t1 for row in self.overheads]
        return max(ends + [r.t0 if r.t1 is None else r.t1 for r in self.ranges], default=0)


Timed = TypeVar("Timed", Launch, Call, Operator, Overhead)


def _moved(row: Timed, ns: int) -> Timed:
    return replace(row, t0=row.t0 + ns, t1=row.t1 + ns)


def merge(*parts: Scenario) -> Scenario:
    """Several processes in one file. Correlation ids stay as they are and may collide."""
    sizes = {part.world_size for part in parts}
    return Scenario(
        processes=tuple(x for part in parts for x in part.processes),
        ops=tuple(x for part in parts for x in part.ops),
        calls=tuple(x for part in parts for x in part.calls),
        ranges=tuple(x for part in parts for x in part.ranges),
        operators=tuple(x for part in parts for x in part.operators),
        overheads=tuple(x for part in parts for x in part.overheads),
        thread_names={k: v for part in parts for k, v in part.thread_names.items()},
        domains={k: v for part in parts for k, v in part.domains.items()},
        diagnostics=tuple(x for part in parts for x in part.diagnostics),
        world_size=sizes.pop() if len(sizes) == 1 else len(parts),
    )


class Script:
    """Collects the rows of one process, call by call; numbers correlations by itself."""

    def __init__(self, process: Process | None = None, *, world_size: int | None = None) -> None:
        self.process = process or ONE_PROCESS
        self.world_size = world_size
        self.ops: list[Op] = []
        self.calls: list[Call] = []
        self.ranges: list[Range] = []
        self.operators: list[Operator] = []
        self.overheads: list[Overhead] = []
        self.thread_names: dict[tuple[int, int], str] = {}
        self.domains: dict[tuple[int, int], str] = {}
        self.diagnostics: list[tuple[int, int, str]] = []
        self._correlation = 0

    def op(
        self,
        kind: OpKind,
        t0: int,
        t1: int,
        launch: tuple[int, int] | None = None,
        *,
        thread: int | None = None,
        api: str | None = None,
        correlation: int | None = None,
        **columns: Any,
    ) -> Script:
        """A GPU op from `t0` to `t1`, launched by a call over `launch`, or by none on record.

        Pass the `correlation` of an earlier op to make both part of the same launch.
        """
        number = self._next() if correlation is None else correlation
        call = launch and Launch(
            self.process.pid if thread is None else thread,
            *launch,
            api or APIS.get(kind, "cudaMemcpyAsync"),
        )
        row = Op(kind, t0, t1, number, self.process.pid, launch=call or None, **columns)
        self.ops.append(row)
        return self

    def call(
        self,
        api: str,
        t0: int,
        t1: int,
        *,
        thread: int | None = None,
        noted: Noted | None = None,
    ) -> Script:
        """A host call without a GPU op."""
        thread = self.process.pid if thread is None else thread
        self.calls.append(Call(api, thread, t0, t1, self._next(), self.process.pid, noted))
        return self

    def range(
        self, name: str, t0: int, t1: int | None, *, thread: int | None = None, **columns: Any
    ) -> Script:
        """An annotation on a host thread."""
        thread = self.process.pid if thread is None else thread
        self.ranges.append(Range(name, thread, t0, t1, self.process.pid, **columns))
        return self

    def operator(
        self, name: str, t0: int, t1: int, *, thread: int | None = None, **columns: Any
    ) -> Script:
        """A framework operator on a host thread."""
        thread = self.process.pid if thread is None else thread
        self.operators.append(Operator(name, thread, t0, t1, self.process.pid, **columns))
        return self

    def overhead(self, name: str, t0: int, t1: int, *, driver: bool = False) -> Script:
        """A profiler row, or a driver stall."""
        pid = self.process.pid
        self.overheads.append(Overhead(name, t0, t1, pid, pid, driver))
        return self

    def thread(self, thread: int, name: str) -> Script:
        """Name a host thread."""
        self.thread_names[self.process.pid, thread] = name
        return self

    def domain(self, number: int, name: str) -> Script:
        """Name an NVTX domain."""
        self.domains[self.process.pid, number] = name
        return self

    def diagnose(self, t: int, severity: int, text: str) -> Script:
        """A message of the profiler: severity 1 info, 2 warning, 3 error."""
        self.diagnostics.append((t, severity, text))
        return self

    def build(self) -> Scenario:
        """The collected rows."""
        return Scenario(
            processes=(self.process,),
            ops=tuple(self.ops),
            calls=tuple(self.calls),
            ranges=tuple(self.ranges),
            operators=tuple(self.operators),
            overheads=tuple(self.overheads),
            thread_names=dict(self.thread_names),
            domains=dict(self.domains),
            diagnostics=tuple(self.diagnostics),
            world_size=self.world_size,
        )

    def _next(self) -> int:
        self._correlation += 1
        return self._correlation


def colliding_ranks() -> Scenario:
    """Two processes whose correlation ids, device ordinals and stream numbers all collide."""
    one = Script(Process(1000, rank=0)).thread(1000, "python3")
    two = Script(Process(2000, rank=1)).thread(2000, "python3")
    for script, at in ((one, 0), (two, 7_000)):
        for k in range(3):
            t = at + k * 100_000
            script.op("kernel", t + 50_000, t + 90_000, (t + 1_000, t + 2_000))
            script.range(f"step {k}", t, t + 95_000)
    return merge(one.build(), two.build())
