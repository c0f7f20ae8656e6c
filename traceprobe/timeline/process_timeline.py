"""What the devices of one process share: its step marker, its phases, what its host was doing."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np
import polars as pl

from traceprobe.model.codes import BACKWARD_NODES, UNKNOWN, Call, Int64s, Role
from traceprobe.model.events import Trace, rows_named, rows_of
from traceprobe.model.garbage import is_collecting
from traceprobe.model.kernel_classes import multiplies
from traceprobe.model.taxonomy import Phase
from traceprobe.timeline import idle, iterations, phases
from traceprobe.timeline.intervals import merge, union
from traceprobe.timeline.iteration_groups import find_iterations
from traceprobe.timeline.name_patterns import NamePattern
from traceprobe.timeline.phases import PhaseRanges
from traceprobe.timeline.quiet import quiet_stretches
from traceprobe.timeline.recomputed import computed_again
from traceprobe.timeline.step_markers import StepMarker

_STAGE, _WHOLE = "(dynamo_timed)", "dynamo"


def is_compiling(name: str) -> bool:
    """Whether a range is around a stage of a compilation by `torch.compile`, or around all."""
    return _STAGE in name or name == _WHOLE


class ProcessTimeline(msgspec.Struct, frozen=True):
    """One process of a trace, ready for its devices to be accounted.

    Args:
        ops: its GPU ops, with two more columns: `iteration` (marker number or UNKNOWN) and `phase`.
        asked, recorded: launches of each iteration, and those with a GPU row.
        launches: kernel and graph launches of each iteration.
    """

    pid: int
    ops: pl.DataFrame
    calls: pl.DataFrame
    ranges: pl.DataFrame
    operators: pl.DataFrame
    modules: pl.DataFrame
    frames: pl.DataFrame
    events: pl.DataFrame
    marks: PhaseRanges
    marker: StepMarker | None
    host: idle.HostState
    loaders: set[int]
    asked: Int64s
    recorded: Int64s
    launches: Int64s

    @property
    def training_threads(self) -> set[int]:
        """The threads that launch work, and that of the steps."""
        return {self.host.step_thread, *self.ops["thread"].unique().to_list()}


def process_timeline(
    trace: Trace, pid: int, step: str | None, names: Mapping[str, NamePattern]
) -> ProcessTimeline:
    """One process of a trace, ready for the timelines of its devices.

    Args:
        step: the user's step pattern, or None to look for a marker.
        names: the phase name table (`phases.compile_phase_names`).

    Raises:
        UsageError: the step pattern is invalid or matches too little.
    """
    ops, calls, ranges = (
        rows_of(f, "pid", pid) for f in (trace.gpu_ops, trace.host_calls, trace.host_ranges)
    )
    work, waits = (rows_of(f, "pid", pid) for f in (trace.host_work, trace.host_waits))
    operators = rows_of(trace.host_operators, "pid", pid)
    marker = find_iterations(ranges, operators, ops, calls, trace.names, step)
    marks = phases.phase_ranges(ranges, trace.names, names)
    step_thread = _step_thread(marker, marks, calls, ops)
    loaders = phases.loader_threads(ranges, ops, trace.names, step_thread)
    thread_names = {thread: name for (p, thread), name in trace.thread_names.items() if p == pid}
    starts = marker.starts if marker else np.empty(0, dtype=np.int64)
    phase = phases.assign_phases(
        ops, trace.names, marks, starts, step_thread, loaders, thread_names
    )
    phase[computed_again(ops, trace.names, phase, step_thread)] = int(Phase.RECOMPUTE)
    launched = ops["thread"].to_numpy() != UNKNOWN
    iteration = iterations.iteration_of_launches(marker, ops["launch_t0"].to_numpy(), launched)
    threads = set(ops["thread"].unique().to_list()) - {UNKNOWN}
    asked, recorded = iterations.launch_coverage(calls, marker)
    launching = calls["call"].is_in([int(Call.LAUNCH), int(Call.GRAPH_LAUNCH)])
    named = (marks.select("forward") | marks.select("backward")) & (marks.thread == step_thread)
    # Older PyTorch writes the stages of a compilation as ranges, not as operators.
    told = rows_named(ranges, trace.names, lambda name: is_compiling(name) or is_collecting(name))
    inside = merge(
        union(marks.t0[named], marks.t1[named]),
        union(told["t0"].to_numpy(), told["t1"].to_numpy()),
    )
    waiting = rows_of(waits, "thread", step_thread)
    blocked = union(waiting["t0"].to_numpy(), waiting["t1"].to_numpy())
    ops = ops.with_columns(iteration=iteration, phase=phase)
    data = marks.select("data") & (marks.thread == step_thread)
    loading = union(marks.t0[data], marks.t1[data])
    elsewhere = marks.select("data") & (marks.thread != step_thread)
    making = union(marks.t0[elsewhere], marks.t1[elsewhere])
    others = marks.select("optimizer") & (marks.thread == step_thread)
    networks = rows_named(operators, trace.names, _of_network)
    computing = merge(
        loading,
        union(marks.t0[others], marks.t1[others]),
        union(networks["t0"].to_numpy(), networks["t1"].to_numpy()),
    )
    quiet = quiet_stretches(
        *(ops, calls, work, inside, loading, computing, blocked, making),
        *({step_thread, *threads}, step_thread),
        reading={i for i in ops["name"].unique().to_list() if trace.names[i] in _READS},
    )
    return ProcessTimeline(
        pid=pid,
        ops=ops,
        calls=calls,
        ranges=ranges,
        operators=operators,
        modules=rows_of(trace.host_modules, "pid", pid),
        frames=rows_of(trace.host_frames, "pid", pid),
        events=rows_of(trace.stream_events, "pid", pid),
        marks=marks,
        marker=marker,
        host=idle.host_state(calls, ranges, quiet, marks, marker, step_thread, threads),
        loaders=loaders,
        asked=asked,
        recorded=recorded,
        launches=marker.count(calls["t0"].filter(launching)) if marker else starts,
    )


_READS = frozenset({"aten::item", "aten::_local_scalar_dense"})
"""Operators of a CPU run that read a value; on a GPU the copy tells."""


def _of_network(name: str) -> bool:
    """Whether an operator is one of a network or of its backward pass, which a CPU may run too."""
    return multiplies(name) or "embedding" in name or name.startswith(BACKWARD_NODES)


def _step_thread(
    marker: StepMarker | None, marks: PhaseRanges, calls: pl.DataFrame, ops: pl.DataFrame
) -> int:
    """The marker's thread, else that of the phase ranges, else the busiest one outside autograd."""
    if marker is not None and marker.thread != UNKNOWN:
        return marker.thread
    named = marks.thread[marks.select("forward") | marks.select("optimizer")]
    if not len(named):
        chosen = ops.select("thread", "role").filter(
            (pl.col("thread") != UNKNOWN) & (pl.col("role") != int(Role.BACKWARD))
        )
        named = chosen["thread"].to_numpy() if len(chosen) else calls["thread"].to_numpy()
    if not len(named):
        return UNKNOWN
    threads, counts = np.unique(named, return_counts=True)
    return int(threads[np.argmax(counts)])
