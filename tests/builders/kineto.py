"""Writes a scenario as a PyTorch profiler trace in any of its dialects.

A  legacy autograd: a bare list, no categories, "CPU functions" and "CUDA functions"
B  1.8 to 1.11: capitalised categories, string thread ids, `external id`
C  1.12 to 2.3: integer microseconds since the epoch
D  early 2024: microseconds since the epoch with three decimals
E  2.4 and later: microseconds relative to `baseTimeNanoseconds`
F  2026 streaming exporter: one compact event per line
G  2026 cupti_monitor backend: bare `Memcpy`, direction in `copy kind`
"""

from __future__ import annotations

import gzip as gz_module
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from tests.builders import faults
from tests.builders.kineto_events import CODES, Content, Event, events
from tests.builders.scenario import Scenario

Dialect = Literal["A", "B", "C", "D", "E", "F", "G"]
Layout = Literal["raw", "lines", "single", "indent"]

DIALECTS: tuple[Dialect, ...] = ("A", "B", "C", "D", "E", "F", "G")
EPOCH_NS = 7_889_238 * 227 * 1_000_000_000
"""The start of a Kineto base interval; the scenario's clock starts here in B to G."""
SHIFT_NS: dict[str, int] = dict.fromkeys("BCDEFG", EPOCH_NS) | {"A": 0}
"""What a reader must find added to the scenario's times."""
LAYOUTS: dict[str, Layout] = {
    "B": "raw",
    "C": "raw",
    "D": "raw",
    "E": "raw",
    "F": "lines",
    "G": "single",
}

_MICROS = re.compile(r'"@(-?[\d.]+)@"')
_CATEGORIES = {
    "user_annotation": "User",
    "cpu_op": "Operator",
    "kernel": "Kernel",
    "cuda_runtime": "Runtime",
    "cuda_driver": "Runtime",
    "Trace": "Trace",
    "gpu_memcpy": "Memcpy",
    "gpu_memset": "Memset",
}
_ON_GPU = ("kernel", "gpu_memcpy", "gpu_memset")


@dataclass(frozen=True)
class Envelope:
    """The text around the events, and how they are laid out.

    Args:
        layout: overrides the dialect's own.
        base_after_events: `baseTimeNanoseconds` behind `traceEvents`, as before 2025-03.
        distributed: where `distributedInfo` is; on-demand traces have it behind.
        header: further top-level keys before the events.
        tail: further top-level keys behind them, as JSON text.
    """

    layout: Layout | None = None
    base_after_events: bool = False
    distributed: Literal["before", "after", "absent"] = "before"
    header: tuple[tuple[str, Any], ...] = ()
    tail: str = ""


def write(
    scenario: Scenario, path: Path, dialect: Dialect = "E", *, gz: bool = False, **options: Any
) -> Path:
    """Write a trace; `options` are the fields of `Content` and `Envelope`."""
    data = dumps(scenario, dialect, **options)
    path.write_bytes(gz_module.compress(data, mtime=0) if gz else data)
    return path


def dumps(scenario: Scenario, dialect: Dialect = "E", **options: Any) -> bytes:
    """The bytes of a trace."""
    names = {f.name for f in fields(Content)}
    content = Content(**{k: v for k, v in options.items() if k in names})
    envelope = Envelope(**{k: v for k, v in options.items() if k not in names})
    if dialect == "A":
        return _bare_list(scenario, content).encode()
    rows = [_TO_DIALECT[dialect](event) for event in events(scenario, content)]
    rows = [_timed(row, dialect) for row in rows if row]
    before, after = _envelope(scenario, dialect, content, envelope)
    layout = envelope.layout or LAYOUTS[dialect]
    if layout == "indent":
        text = json.dumps({**before, "traceEvents": rows, **after}, indent=2)
        text = text[: -len("\n}")] + envelope.tail + "\n}"
    else:
        text = _framed(layout, rows, before, after, envelope.tail)
    return _MICROS.sub(r"\1", text).encode()


def write_repeated(path: Path, data: bytes, size: int) -> None:
    """Write a trace whose events are repeated until the file has `size` bytes."""
    spans = faults.spans(data)
    low, high = spans[0][0], spans[-1][1]
    events = data[low:high]
    with path.open("wb") as file:
        file.write(data[:low])
        for _ in range(size // len(events)):
            file.write(events + b",\n")
        file.write(data[low:])


def _framed(layout: Layout, rows: list[Event], before: Event, after: Event, tail: str) -> str:
    """Raw and line layouts put each top-level key and each event on lines of its own."""
    line = "" if layout == "single" else "\n"
    body = f",{line}".join((_raw if layout == "raw" else _compact)(row) for row in rows)
    top = "".join(f"  {json.dumps(k)}: {json.dumps(v)},{line}" for k, v in before.items())
    rest = "".join(f",{line}  {json.dumps(k)}: {json.dumps(v)}" for k, v in after.items())
    return f'{{{line}{top}  "traceEvents": [{line}{body}{line}  ]{rest}{tail}{line}}}'


def _micros(ns: int) -> str:
    """A number with three decimals that survives json.dumps."""
    sign, ns = ("-", -ns) if ns < 0 else ("", ns)
    return f"@{sign}{ns // 1000}.{ns % 1000:03d}@"


def _timed(event: Event, dialect: Dialect) -> Event:
    if dialect in "BC":
        if event["ts"] % 1000 or event.get("dur", 0) % 1000:
            raise ValueError(f"dialect {dialect} writes whole microseconds: {event}")
        timed = {"ts": (EPOCH_NS + event["ts"]) // 1000}
        return event | timed | ({"dur": event["dur"] // 1000} if "dur" in event else {})
    shift = EPOCH_NS if dialect == "D" else 0
    timed_text = {"ts": _micros(shift + event["ts"])}
    return event | timed_text | ({"dur": _micros(event["dur"])} if "dur" in event else {})


def _capitalised(event: Event) -> Event:
    """Dialect B. What did not exist then is left out."""
    cat = event.get("cat")
    if event["ph"] in "sf":
        names = ("async", "launch") if cat == "ac2g" else ("forward_backward", "fwd_bwd")
        event = event | {"cat": names[0], "name": names[1]}
    elif cat is not None and cat not in _CATEGORIES:
        return {}
    on_gpu = cat in _ON_GPU or (event["ph"] == "f" and cat == "ac2g")
    tid = f"stream {event['tid']}" if on_gpu else str(event["tid"])
    args = {k: v for k, v in event.get("args", {}).items() if k != "Record function id"}
    if cat in (*_ON_GPU, "cuda_runtime", "cuda_driver") and "External id" in args:
        args = {"external id" if k == "External id" else k: v for k, v in args.items()}
        args["external ts"] = (EPOCH_NS + event["ts"]) // 1000
    elif cat in ("cpu_op", "user_annotation"):
        args |= {"Device": event["pid"], "Trace name": "PyTorch Profiler", "Trace iteration": 0}
    event = event | {"tid": tid}
    if cat in _CATEGORIES and event["ph"] == "X":
        step = event["name"].startswith("ProfilerStep#")
        event |= {"cat": "Operator" if step else _CATEGORIES[cat]}
    return event | {"args": args} if args else event


def _streamed(event: Event) -> Event:
    """Dialect F. Collectives carry the metadata of the CPU row."""
    if event.get("name") == "process_name":
        return event | {"args": {"name": "python"}}
    args = event.get("args", {})
    if event.get("cat") == "kernel" and "nccl" in event["name"]:
        args = args | {"Collective name": "allreduce", "Ev Idx": 1, "Input Dims": [[1024]]}
    if "graph node id" in args:
        args = args | {"original_stream": args["stream"], "annotated_stream": args["stream"]}
    return event | {"args": args} if args else event


def _monitored(event: Event) -> Event:
    """Dialect G. No External id and no occupancy on GPU rows."""
    if event.get("cat") not in _ON_GPU:
        return event
    dropped = ("External id", "est. achieved occupancy %", "memory bandwidth (GB/s)", "fromDevice")
    args = {k: v for k, v in event["args"].items() if k not in dropped}
    if "graph node id" in args:
        args["graph node id"] &= 0xFFFFFFFF
    if event["cat"] == "gpu_memset":
        return event | {"name": "Memset", "args": args}
    if event["cat"] == "kernel":
        return event | {"args": args}
    code = event["name"].split()[1]
    source, target = re.findall(r"\((\w+) -> (\w+)\)", event["name"])[0]
    assert code in CODES.values()
    kinds = {"copy kind": code, "src kind": source.lower(), "dst kind": target.lower()}
    return event | {"name": "Memcpy", "args": args | {"device": event["pid"]} | kinds}


def _same(event: Event) -> Event:
    return event


_TO_DIALECT: dict[str, Callable[[Event], Event]] = {
    "B": _capitalised,
    "C": _same,
    "D": _same,
    "E": _same,
    "F": _streamed,
    "G": _monitored,
}


def _envelope(
    scenario: Scenario, dialect: Dialect, content: Content, envelope: Envelope
) -> tuple[Event, Event]:
    process = scenario.processes[0]
    properties = [
        {"id": i, "name": name, "totalGlobalMem": 1 << 37, "numSms": 132, "warpSize": 32}
        for i, name in enumerate(process.devices)
    ]
    before: Event = {"schemaVersion": 1, "deviceProperties": properties}
    after: Event = {}
    if process.rank is not None and envelope.distributed != "absent":
        info = {"backend": "nccl", "rank": process.rank, "world_size": scenario.world_size or 1}
        (before if envelope.distributed == "before" else after)["distributedInfo"] = info
    marks = {"record_shapes": content.shapes, "with_stack": content.stacks}
    before |= {key: 1 for key, on in (marks | {"profile_memory": content.memory}).items() if on}
    if content.rocm:
        before |= {"roctracer_version": 4.1, "hip_runtime_version": 60443483}
    else:
        before |= {"cuda_runtime_version": 13000, "cupti_version": 130001}
    before |= dict(envelope.header)
    unit = {"displayTimeUnit": "ns" if dialect == "D" else "ms"}
    if dialect in "EFG":
        base = {**unit, "baseTimeNanoseconds": EPOCH_NS}
        (after if envelope.base_after_events else before).update(base)
    elif dialect == "D":
        after |= unit
    if dialect == "F":
        before["cudaGraphInlineAnnotated"] = True
    return before, after | {"traceName": "trace.json"}


def _raw(event: Event) -> str:
    """Several lines per event, as libkineto prints them."""
    args = event.get("args")
    rest = {k: v for k, v in event.items() if k not in ("args", "ts", "dur")}
    times = {k: event[k] for k in ("ts", "dur") if k in event}
    lines = [json.dumps(rest)[1:-1], json.dumps(times)[1:-1]]
    if args is not None:
        lines.append('"args": {\n      ' + json.dumps(args)[1:-1] + "\n    }")
    return "  {\n    " + ",\n    ".join(lines) + "\n  }"


def _compact(event: Event) -> str:
    return json.dumps(event, separators=(",", ":"))


def _bare_list(scenario: Scenario, content: Content) -> str:
    """Dialect A: functions with the kernels they launched, and an arrow to each."""
    rows: list[Event] = []
    functions = [
        e for e in events(scenario, content) if e.get("cat") in ("cpu_op", "user_annotation")
    ]
    for event in functions:
        rows.append(_legacy(event["name"], "X", event, event["tid"], "CPU functions"))
    for number, op in enumerate(scenario.ops):
        name = op.label if op.kind not in CODES else f"Memcpy {CODES[op.kind]}"
        gpu = {"ts": op.t0, "dur": op.t1 - op.t0}
        parents = [
            e
            for e in functions
            if op.launch and e["tid"] == op.launch.thread
            if e["ts"] <= op.launch.t0 <= e["ts"] + e["dur"]
        ]
        if parents:
            parent = max(parents, key=lambda e: e["ts"])
            arrow = {"id": number, "cat": "cpu_to_cuda"}
            start = {"ts": parent["ts"]}
            rows.append(_legacy(parent["name"], "s", start, parent["tid"], "CPU functions") | arrow)
            end = {"ts": op.t0}
            rows.append(_legacy(name, "f", end, op.device, "CUDA functions") | arrow)
        rows.append(_legacy(name, "X", gpu, op.device, "CUDA functions"))
    return _MICROS.sub(r"\1", json.dumps(rows))


def _legacy(name: str, ph: str, times: Event, tid: int, pid: str) -> Event:
    event: Event = {"name": name, "ph": ph, "ts": _micros(times["ts"])}
    if "dur" in times:
        event["dur"] = _micros(times["dur"])
    return event | {"tid": tid, "pid": pid, "args": {}}
