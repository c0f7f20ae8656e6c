"""What `Trace` must say about a scenario, and a trace's rows in the same words."""

from __future__ import annotations

from typing import Any

from tests.builders.scenario import Scenario
from traceprobe.model.codes import UNKNOWN, Call, Kind, Source
from traceprobe.model.events import Trace

Row = dict[str, Any]

KINDS = {
    "kernel": Kind.KERNEL,
    "graph": Kind.KERNEL,
    "comm": Kind.COMM,
    "p2p": Kind.COMM,
    "h2d": Kind.H2D,
    "d2h": Kind.D2H,
    "d2d": Kind.D2D,
    "memset": Kind.MEMSET,
}
CALLS = {
    "cudaLaunchKernel": Call.LAUNCH,
    "cudaLaunchKernelExC": Call.LAUNCH,
    "cuLaunchKernel": Call.LAUNCH,
    "cudaGraphLaunch": Call.GRAPH_LAUNCH,
    "cudaMemcpyAsync": Call.COPY,
    "cudaMemsetAsync": Call.MEMSET,
    "cudaStreamSynchronize": Call.SYNC,
    "cudaDeviceSynchronize": Call.SYNC,
}
_ORDER = ("t0", "t1", "pid", "device", "stream", "correlation")


def gpu_ops(scenario: Scenario, shift_ns: int = 0) -> list[Row]:
    """The rows of `Trace.gpu_ops`, without names, roles and notes on collectives."""
    rows = []
    for op in scenario.ops:
        call = op.launch
        rows.append(
            {
                "pid": op.pid,
                "device": op.device,
                "stream": op.stream,
                "kind": int(KINDS[op.kind]),
                "t0": op.t0 + shift_ns,
                "t1": op.t1 + shift_ns,
                "bytes": UNKNOWN if op.bytes is None else op.bytes,
                "pageable": op.pageable,
                "graph": op.graph or op.kind == "graph",
                "correlation": op.correlation,
                "linked": call is not None,
                "launch_t0": UNKNOWN if call is None else call.t0 + shift_ns,
                "launch_t1": UNKNOWN if call is None else call.t1 + shift_ns,
                "thread": UNKNOWN if call is None else call.thread,
            }
        )
    return ordered(rows)


def host_calls(scenario: Scenario, shift_ns: int = 0) -> list[Row]:
    """The rows of `Trace.host_calls`."""
    used = {(op.pid, op.correlation) for op in scenario.ops}
    return [
        {
            "pid": call.pid,
            "thread": call.thread,
            "t0": call.t0 + shift_ns,
            "t1": call.t1 + shift_ns,
            "name": call.api,
            "call": int(CALLS.get(call.api, Call.OTHER)),
            "blocking": call.api.endswith("Synchronize"),
            "correlation": call.correlation,
            "recorded": (call.pid, call.correlation) in used,
        }
        for call in scenario.host_calls()
    ]


def host_ranges(scenario: Scenario, shift_ns: int = 0) -> list[Row]:
    """The user's rows of `Trace.host_ranges`; open ranges are the caller's business."""
    return [
        {
            "pid": row.pid,
            "thread": row.thread,
            "t0": row.t0 + shift_ns,
            "t1": (row.t0 if row.t1 is None else row.t1) + shift_ns,
            "name": row.name,
            "source": int(Source.MARK if row.form == "mark" else Source.USER),
        }
        for row in sorted(scenario.ranges, key=lambda r: (r.pid, r.t0, r.t1 or r.t0, r.thread))
    ]


def ordered(rows: list[Row]) -> list[Row]:
    """GPU rows by time, then by place."""
    return sorted(rows, key=lambda row: [row[column] for column in _ORDER])


def seen_ops(trace: Trace) -> list[Row]:
    """The trace's GPU rows, as `gpu_ops` words them."""
    left_out = ("name", "role", "operation", "group", "group_size", "grid", "occupancy")
    return ordered(trace.gpu_ops.drop(*left_out).to_dicts())


def seen_calls(trace: Trace) -> list[Row]:
    """The trace's host calls, with their names."""
    rows = [row | {"name": trace.names[row["name"]]} for row in trace.host_calls.to_dicts()]
    return sorted(rows, key=lambda row: (row["t0"], row["pid"], row["correlation"]))


def seen_ranges(trace: Trace, *sources: Source) -> list[Row]:
    """The trace's host ranges from some sources (by default the user's), with their names."""
    wanted = sources or (Source.USER, Source.MARK)
    return [
        row | {"name": trace.names[row["name"]]}
        for row in trace.host_ranges.to_dicts()
        if row["source"] in wanted
    ]


def op_names(trace: Trace) -> list[str]:
    """Names of the trace's GPU ops in their order."""
    return [trace.names[i] for i in trace.gpu_ops["name"]]


def assert_same_events(one: Trace, two: Trace) -> None:
    """The same events, whatever numbers their names got."""
    assert seen_ops(one) == seen_ops(two)
    assert op_names(one) == op_names(two)
    assert one.gpu_ops["role"].to_list() == two.gpu_ops["role"].to_list()
    assert seen_calls(one) == seen_calls(two)
    assert seen_ranges(one, *Source) == seen_ranges(two, *Source)
