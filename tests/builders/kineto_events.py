"""A scenario as Kineto events: the canonical rows (dialect E), before any dialect's quirks.

`ts` and `dur` stay integer nanoseconds here; `tests.builders.kineto` writes them as the dialect
does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from tests.builders.scenario import Call, Message, Op, Operator, Range, Scenario

Event = dict[str, Any]
_FRAME = re.compile(r"nn\.Module: |<built-in |def .*\(\d+\): ")
"""What the profiler notes with stacks; `def ` is not written."""
_LINE = re.compile(r".*\(\d+\): ")
"""Lines that a recording of traceprobe noted."""

GPU = {"h2d": "gpu_memcpy", "d2h": "gpu_memcpy", "d2d": "gpu_memcpy", "p2p": "gpu_memcpy"}
CODES = {"h2d": "HtoD", "d2h": "DtoH", "d2d": "DtoD", "p2p": "PtoP"}
SYNCS = {
    "StreamSynchronize": "Stream Sync",
    "DeviceSynchronize": "Context Sync",
    "EventSynchronize": "Event Sync",
    "StreamWaitEvent": "Stream Wait Event",
    "EventQuery": "Event Sync",
}


@dataclass(frozen=True)
class Content:
    """Which rows a trace holds beside GPU ops and annotations.

    Args:
        operators: CPU operator rows.
        calls: CUDA API rows; without them a GPU op is linked by External id only.
        flows: ac2g and fwdbwd arrows.
        sync_rows: `cuda_sync` rows on the GPU's pid.
        event_rows: `cuda_event` rows of records, at the time when the GPU reached them.
        gpu_annotations: `gpu_user_annotation` rows, one per stream and range.
        stacks: `python_function` rows.
        memory: `[memory]` instants.
        shapes: `Input Dims` of operators.
        rocm: HIP names, no bandwidth, `bytes` as strings, no External id on GPU rows.
    """

    operators: bool = True
    calls: bool = True
    flows: bool = True
    sync_rows: bool = False
    event_rows: bool = False
    gpu_annotations: bool = False
    stacks: bool = False
    memory: bool = False
    shapes: bool = False
    rocm: bool = False


def events(scenario: Scenario, content: Content) -> list[Event]:
    """Every event of the one process of a scenario, roughly in the order Kineto writes them."""
    if len(scenario.processes) != 1:
        raise ValueError("a Kineto file holds one process: use Scenario.only(pid)")
    if any(op.kind == "graph" for op in scenario.ops):
        raise ValueError("Kineto has no graph-level rows: use kernels with graph=True")
    rows = _Rows(scenario, content)
    parts: list[Iterable[Event]] = [
        rows.annotations(),
        rows.operators() if content.operators else (),
        rows.frames() if content.stacks else (),
        rows.allocations() if content.memory else (),
        rows.calls() if content.calls else (),
        rows.gpu(),
        rows.syncs() if content.sync_rows else (),
        rows.records() if content.event_rows else (),
        rows.gpu_annotations() if content.gpu_annotations else (),
        rows.overheads(),
        rows.metadata(),
        rows.spans(),
    ]
    return [event for part in parts for event in part]


class _Rows:
    def __init__(self, scenario: Scenario, content: Content) -> None:
        self.scenario = scenario
        self.content = content
        self.pid = scenario.processes[0].pid
        hosts: list[Range | Operator] = [*scenario.ranges]
        if content.operators:
            hosts += scenario.operators
        self.hosts = sorted(hosts, key=lambda row: row.t0)
        self.external = {id(row): number for number, row in enumerate(self.hosts, 1)}

    def external_id(self, thread: int, t: int) -> int | None:
        """The innermost annotation or operator on a thread at an instant."""
        around = [r for r in self.hosts if r.thread == thread and r.t0 <= t < (r.t1 or t + 1)]
        return self.external[id(around[-1])] if around else None

    def annotations(self) -> Iterator[Event]:
        for index, row in enumerate(self.scenario.ranges):
            duration = -1000 if row.t1 is None else row.t1 - row.t0
            args = {"External id": self.external[id(row)], "Record function id": 0, "Ev Idx": index}
            yield _x("user_annotation", row.name, self.pid, row.thread, row.t0, duration, args)

    def operators(self) -> Iterator[Event]:
        offset = len(self.scenario.ranges)
        for index, row in enumerate(self.scenario.operators):
            args: Event = {"External id": self.external[id(row)], "Record function id": 0}
            if row.sequence is not None:
                args["Sequence number"] = row.sequence
            if row.forward_thread is not None:
                args["Fwd thread id"] = row.forward_thread
            args |= row.operands or {}
            if self.content.shapes and row.operands is None:
                args["Input Dims"] = [[64, 3, 224, 224], []]
                args["Input type"] = ["float", "Scalar"]
            args["Ev Idx"] = offset + index
            category, name = _category(row.name), row.name.removeprefix("def ")
            yield _x(category, name, self.pid, row.thread, row.t0, row.t1 - row.t0, args)
        if self.content.flows:
            yield from self._forward_backward()

    def _forward_backward(self) -> Iterator[Event]:
        forward = {o.sequence: o for o in self.scenario.operators if o.forward_thread == 0}
        for number, row in enumerate(self.scenario.operators, 1):
            if row.forward_thread and row.sequence in forward:
                start = forward[row.sequence]
                yield _flow("s", number, self.pid, start.thread, start.t0, "fwdbwd")
                yield _flow("f", number, self.pid, row.thread, row.t0, "fwdbwd")

    def frames(self) -> Iterator[Event]:
        for index, row in enumerate(self.scenario.ranges):
            if row.t1 is not None:
                args = {"Python parent id": None, "Python id": index + 1, "Ev Idx": index}
                name = f"train.py({index + 1}): {row.name}"
                yield _x(
                    "python_function", name, self.pid, row.thread, row.t0, row.t1 - row.t0, args
                )

    def allocations(self) -> Iterator[Event]:
        for row in self.scenario.operators:
            args = {"Total Allocated": 4096, "Device Id": 0, "Device Type": 1, "Bytes": 512}
            yield {
                "ph": "i",
                "cat": "cpu_instant_event",
                "s": "t",
                "name": "[memory]",
                "pid": self.pid,
                "tid": row.thread,
                "ts": row.t0,
                "args": args,
            }

    def calls(self) -> Iterator[Event]:
        launches = {op.correlation for op in self.scenario.ops}
        for row in self.scenario.host_calls():
            if row.noted is not None and not row.noted.call:
                continue
            api = row.api.replace("cuda", "hip", 1) if self.content.rocm else row.api
            driver = api.startswith("cu") and not api.startswith("cuda")
            args: Event = {}
            if number := self.external_id(row.thread, row.t0):
                args["External id"] = number
            args |= {"cid" if self.content.rocm else "cbid": 211, "correlation": row.correlation}
            cat = "cuda_driver" if driver else "cuda_runtime"
            yield _x(cat, api, self.pid, row.thread, row.t0, row.t1 - row.t0, args)
            if self.content.flows and (row.correlation in launches or _sync(row)):
                yield _flow("s", row.correlation, self.pid, row.thread, row.t0, "ac2g")

    def gpu(self) -> Iterator[Event]:
        for op in self.scenario.ops:
            cat = GPU.get(op.kind, "gpu_memset" if op.kind == "memset" else "kernel")
            yield _x(
                cat,
                copy_name(op, self.content.rocm) if op.kind in CODES else op.label,
                *(op.device, op.stream, op.t0, op.t1 - op.t0),
                self._gpu_args(op, cat),
            )
            if self.content.flows:
                yield _flow("f", op.correlation, op.device, op.stream, op.t0, "ac2g")

    def _gpu_args(self, op: Op, cat: str) -> Event:
        args: Event = {}
        call = None if self.content.rocm else op.launch
        if call and (number := self.external_id(call.thread, call.t0)):
            args["External id"] = number
        if op.kind == "p2p":
            args |= {"fromDevice": op.device, "inDevice": op.device, "toDevice": op.device + 1}
        else:
            args["device"] = op.device
        args |= {"context": 1, "stream": op.stream, "correlation": op.correlation}
        if self.content.rocm:
            args["kind"] = "Dispatch Kernel" if cat == "kernel" else CODES.get(op.kind, "Device")
            if op.bytes is not None:
                args["bytes"] = str(op.bytes)
            return args
        if op.bytes is not None:
            args["bytes"] = op.bytes
            args["memory bandwidth (GB/s)"] = op.bytes / max(op.t1 - op.t0, 1)
        if cat == "kernel":
            args |= {"queued": 0, "registers per thread": 32, "shared memory": 0}
            args |= {"grid": [132, 1, 1], "block": [128, 1, 1]}
            args |= {"est. achieved occupancy %": op.occupancy}
        if op.blocks is not None:
            args["blocks per SM"] = op.blocks / 132
        if op.message:
            args |= _message(op.message)
        if op.graph:
            args |= {"graph id": 1, "graph node id": 4294967296 + op.stream}
        return args

    def syncs(self) -> Iterator[Event]:
        for row in self.scenario.host_calls():
            if name := _sync(row):
                stream = -1 if name == "Context Sync" else 7
                args: Event = {"cuda_sync_kind": name}
                if (noted := row.noted) is not None:
                    stream = -1 if noted.stream is None else noted.stream
                    if "Event" in name:
                        args |= {
                            "wait_on_stream": _or_none(noted.record_stream),
                            "wait_on_cuda_event_record_corr_id": _or_none(noted.record),
                            "wait_on_cuda_event_id": _or_none(noted.event),
                        }
                args |= {"stream": stream, "correlation": row.correlation}
                yield _x(
                    *("cuda_sync", name, 0, stream, row.t0, row.t1 - row.t0),
                    args | {"device": noted.device if noted else 0, "context": 1},
                )

    def records(self) -> Iterator[Event]:
        for row in self.scenario.host_calls():
            if row.noted is not None and "EventRecord" in row.api:
                noted = row.noted
                args = {"event_id": noted.event, "stream": noted.stream, "device": noted.device}
                args |= {"correlation": row.correlation, "context": 1}
                place = (noted.device, _or_none(noted.stream))
                yield _x("cuda_event", "cudaEvent", *place, row.t1 + 5_000_000, 1, args)

    def gpu_annotations(self) -> Iterator[Event]:
        for row in self.scenario.ranges:
            inside = [
                op
                for op in self.scenario.ops
                if op.launch and op.launch.thread == row.thread and row.t1 is not None
                if row.t0 <= op.launch.t0 < row.t1
            ]
            for stream in sorted({(op.device, op.stream) for op in inside}):
                ops = [op for op in inside if (op.device, op.stream) == stream]
                t0, t1 = min(op.t0 for op in ops), max(op.t1 for op in ops)
                args = {"External id": self.external[id(row)]}
                yield _x("gpu_user_annotation", row.name, *stream, t0, t1 - t0, args)

    def overheads(self) -> Iterator[Event]:
        for row in self.scenario.overheads:
            yield _x("overhead", row.name, -1, 0, row.t0, row.t1 - row.t0, None)

    def metadata(self) -> Iterator[Event]:
        start = self._start()
        devices = range(len(self.scenario.processes[0].devices))
        labels = {self.pid: "CPU"} | {device: f"GPU {device}" for device in devices}
        name = self.scenario.processes[0].name
        for pid, label in labels.items():
            yield _meta("process_name", start, pid, 0, "name", name)
            yield _meta("process_labels", start, pid, 0, "labels", label)
            order = pid if label == "CPU" else 5000000 + pid
            yield _meta("process_sort_index", start, pid, 0, "sort_index", order)
        for device, stream in sorted({(op.device, op.stream) for op in self.scenario.ops}):
            yield _meta("thread_name", start, device, stream, "name", f"stream {stream} ")
        for (pid, thread), title in self.scenario.thread_names.items():
            yield _meta("thread_name", start, pid, thread, "name", f"thread {thread} ({title})")

    def spans(self) -> Iterator[Event]:
        start, end = self._start(), self.scenario.end()
        yield {
            "ph": "X",
            "cat": "Trace",
            "ts": start,
            "dur": end - start,
            "pid": "Spans",
            "tid": "PyTorch Profiler",
            "name": "PyTorch Profiler (0)",
            "args": {"Op count": 0},
        }
        instant = {"ph": "i", "s": "g"}
        yield {
            "name": "Iteration Start: PyTorch Profiler",
            **instant,
            "pid": "Traces",
            "tid": "Trace PyTorch Profiler",
            "ts": start,
        }
        yield {"name": "Record Window End", **instant, "pid": "", "tid": "", "ts": end}

    def _start(self) -> int:
        rows = (*self.hosts, *self.scenario.host_calls(), *self.scenario.ops)
        return min((row.t0 for row in rows), default=0)


def _category(name: str) -> str:
    if _FRAME.match(name):
        return "python_function"
    return "blame" if _LINE.match(name) else "cpu_op"


def copy_name(op: Op, rocm: bool) -> str:
    """`Memcpy HtoD (Pinned -> Device)`; ROCm does not say whether host memory is pinned."""
    host = "Host" if rocm else "Pageable" if op.pageable else "Pinned"
    source = host if op.kind == "h2d" else "Device"
    target = host if op.kind == "d2h" else "Device"
    return f"Memcpy {CODES[op.kind]} ({source} -> {target})"


def _or_none(value: int | None) -> int:
    """As Kineto writes it: -1 is none."""
    return -1 if value is None else value


def _sync(row: Call) -> str | None:
    return next((name for api, name in SYNCS.items() if row.api.endswith(api)), None)


def _x(cat: str, name: str, pid: int, tid: int, ts: int, dur: int, args: Event | None) -> Event:
    event = {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur}
    return event if args is None else event | {"args": args}


def _flow(ph: str, number: int, pid: int, tid: int, ts: int, cat: str) -> Event:
    event = {"ph": ph, "id": number, "pid": pid, "tid": tid, "ts": ts, "cat": cat, "name": cat}
    return event | {"bp": "e"} if ph == "f" else event


def _meta(name: str, ts: int, pid: int, tid: int, key: str, value: object) -> Event:
    return {"name": name, "ph": "M", "ts": ts, "pid": pid, "tid": tid, "args": {key: value}}


def _message(message: Message) -> Event:
    noted = {
        "Collective name": message.name,
        "In msg nelems": message.elements_in,
        "Out msg nelems": message.elements_out,
        "Group size": len(message.ranks),
        "dtype": message.dtype,
        "Process Group Name": message.group,
        "Process Group Description": "default_pg",
        "Process Group Ranks": str(list(message.ranks)),
    }
    return {key: value for key, value in noted.items() if value is not None}
