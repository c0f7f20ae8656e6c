"""What a trace holds and what it lacks, in plain lines: can this be analysed?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import polars as pl

from traceprobe.formatting import counted, shorten
from traceprobe.model.codes import NOTES, UNKNOWN, Kind, StreamEvent
from traceprobe.model.events import Trace, rows_of
from traceprobe.timeline import phases
from traceprobe.timeline.iteration_groups import find_iterations
from traceprobe.timeline.step_markers import name_template

_TOP = 12


Line = tuple[str, str]
"""What the line is about, and what it says."""


def describe(trace: Trace) -> Iterator[Line]:
    """Lines about one trace: origin, devices, ops, threads, ranges, marker, what is missing."""
    origin = trace.origin
    yield "file", f"{origin.name}: {origin.format}, {origin.dialect}"
    yield "producer", origin.producer
    yield "size", f"{origin.bytes / 1e6:.2f} MB, sha256 {origin.sha256[:12]}"
    for device in trace.devices:
        rank = trace.rank_of.get(device.pid)
        place = f"{device.kind} {device.index} of process {device.pid}"
        yield (
            "device",
            f"{place}: {device.name or 'unknown model'}"
            + ("" if rank is None else f", rank {rank}"),
        )
    counts = {
        Kind(k).name.lower(): n for k, n in trace.gpu_ops["kind"].value_counts().sort("kind").rows()
    }
    # Without what a profiler notes of itself.
    ranges = trace.host_ranges.filter(~pl.col("source").is_in(NOTES))
    if _on_cpu(trace):
        yield "operators", f"{len(trace.gpu_ops):,}, ranges {len(ranges):,}"
    else:
        yield (
            "gpu ops",
            f"{len(trace.gpu_ops):,}: " + ", ".join(f"{n:,} {k}" for k, n in counts.items()),
        )
        linked, ops = int(trace.gpu_ops["linked"].sum()), len(trace.gpu_ops)
        yield "linked", f"{linked:,} of {ops:,} GPU ops have their launch in the file"
        yield "host calls", f"{len(trace.host_calls):,}, ranges {len(ranges):,}"
    if len(trace.stream_events):
        yield "order", _order(trace.stream_events)
    if trace.profiled:
        yield "profiler", f"records {', '.join(sorted(trace.profiled))}"
    yield from _ranges(ranges, trace.names)
    yield from _markers(trace)
    quality = trace.quality
    repaired = counted(quality.events_repaired, "event")
    yield "quality", f"{repaired} repaired, {quality.events_lost:,} lost"
    for code, message in sorted(quality.warnings.items()):
        yield "warning", f"{code}: {message}"
    for missing in _missing(trace):
        yield "missing", missing


def _on_cpu(trace: Trace) -> bool:
    """Whether its operators stand for the work of a device: then nothing is launched."""
    return all(device.kind == "cpu" for device in trace.devices)


def _order(events: pl.DataFrame) -> str:
    """What orders the streams, and of how many waits between them the record is in the file."""
    kind = events["kind"]
    records, waits, host = (int((kind == k).sum()) for k in StreamEvent)
    known = int(((kind == StreamEvent.WAIT) & (events["record"] != UNKNOWN)).sum())
    return (
        f"{counted(records, 'record')} of events, {counted(waits, 'wait')} of streams ({known:,} "
        f"say for which record), {host:,} of the host"
    )


def _ranges(ranges: pl.DataFrame, names: Sequence[str]) -> Iterator[Line]:
    counts = ranges["name"].value_counts().rows()
    alike: dict[str, list[tuple[str, int]]] = {}
    for name, count in counts:
        text = names[name]
        alike.setdefault(name_template(text), []).append((text, count))
    merged = [
        # A number that never changes, as in "h2d", is part of the name.
        (template if len(members) > 1 else members[0][0], sum(count for _, count in members))
        for template, members in alike.items()
    ]
    top = sorted(merged, key=lambda item: (-item[1], item[0]))
    for text, count in top[:_TOP]:
        yield "range", f"{count:6d} x {shorten(text, 80)}"
    if len(top) > _TOP:
        yield "range", f"and {len(top) - _TOP} more names"


def _markers(trace: Trace) -> Iterator[Line]:
    for pid in sorted({d.pid for d in trace.devices}):
        mine = pl.col("pid") == pid
        ranges, ops, calls = (
            f.filter(mine) for f in (trace.host_ranges, trace.gpu_ops, trace.host_calls)
        )
        operators = rows_of(trace.host_operators, "pid", pid)
        found = find_iterations(ranges, operators, ops, calls, trace.names, None)
        if found is None:
            yield "steps", f"process {pid}: no step marker"
        else:
            pattern = f"{shorten(found.pattern, 60)} ({found.kind})"
            yield "steps", f"process {pid}: {len(found.starts)} x {pattern}"


def _missing(trace: Trace) -> Iterator[str]:
    if not len(trace.host_calls) and not _on_cpu(trace):
        yield "host calls: idle time cannot be explained; record the CPU too"
    marks = phases.phase_ranges(trace.host_ranges, trace.names, phases.compile_phase_names({}))
    for phase in ("data", "forward", "optimizer"):
        if not marks.select(phase).any():
            yield f"{phase} ranges (annotate them, or name yours with --phase {phase}=REGEX)"
