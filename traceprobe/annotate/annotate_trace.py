"""Traces of one run with what an analysis found in them, in one file that viewers open.

Each input is read twice: once to be analysed, as by `traceprobe analyze`, and once to be copied.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, cast

import msgspec

from traceprobe.annotate.chrome_events import Clock, encode, metadata
from traceprobe.annotate.kineto_copy import KinetoCopy, Moves
from traceprobe.annotate.nsight_events import NsightCopy
from traceprobe.annotate.pids import Pids
from traceprobe.annotate.rank_events import Added, Draft, draft, rank_events
from traceprobe.formatting import ranges
from traceprobe.ingest.read_trace import Progress, read_trace
from traceprobe.model.annotation import VIEW
from traceprobe.model.events import Device
from traceprobe.options import Options
from traceprobe.pipeline.merge import merge
from traceprobe.pipeline.one_run import of_one_run
from traceprobe.pipeline.trace_part import Lost, TracePart, accounts, or_lost, part_with
from traceprobe.records.report import Report
from traceprobe.system.atomic_write import write_beside
from traceprobe.timeline.capture_alignment import aligned
from traceprobe.timeline.collective_matching import match_transfers
from traceprobe.timeline.common_clock import clock_offsets
from traceprobe.timeline.device_timeline import DeviceTimeline
from traceprobe.version import __version__

_LEVEL = 4
"""Of compression: a higher one takes twice as long for a twentieth less."""
_BLOCK = 1 << 20
"""Bytes that are written at once."""
_ID_STEP = 1 << 42
"""Between the ids of arrows of two inputs."""


class Annotation(msgspec.Struct, frozen=True):
    """What was written.

    Args:
        report: of the run, as `traceprobe analyze` has it.
        events: of the inputs. added: to them. left_out: slices and values of counters that are
            missing among those, by track.
        adrift: inputs that share no collective with the first, and keep their own clock.
    """

    report: Report
    events: int
    added: int
    left_out: dict[str, int]
    adrift: list[str]


class _Source(msgspec.Struct, frozen=True):
    """An input.

    Args:
        drafts: what is to be drawn, by process and device.
    """

    path: Path
    part: TracePart
    drafts: dict[tuple[int, int], Draft]


def annotate(
    paths: Sequence[Path],
    target: Path,
    options: Options | None = None,
    *,
    replace: bool = False,
    progress: Callable[[int], Progress | None] = lambda position: None,
) -> Annotation:
    """Write the traces of one run with tracks of what was found, gzipped if the name ends in .gz.

    Args:
        replace: whether a file of the target's name is overwritten.
        progress: the callback for the file at a position.

    Raises:
        TraceprobeError: as `traceprobe.load` and `traceprobe.analyze`.
        UsageError: the target cannot be written.
        OSError: the only file cannot be opened.
    """
    chosen = options or Options()
    found: list[_Source | Lost] = []
    for position, path in enumerate(paths):
        read = partial(_source, path, chosen, progress(position))
        found.append(read() if len(paths) == 1 else or_lost(path, read))
    report = merge([f if isinstance(f, Lost) else f.part for f in found], chosen)
    by_part = {id(f.part): f for f in found if isinstance(f, _Source)}
    kept = of_one_run([source.part for source in by_part.values()]).parts
    with write_beside(target, replace=replace) as temporary, _opened(temporary, target) as file:
        return _write(_Events(file), report, [by_part[id(part)] for part in kept], chosen)


def _source(path: Path, options: Options, progress: Progress | None) -> _Source:
    """A file, read and accounted."""
    trace = read_trace(path, progress, options.limits)
    drafts: dict[tuple[int, int], Draft] = {}

    def drafted() -> Iterator[tuple[Device, DeviceTimeline]]:
        for device, account in accounts(trace, options):
            drafts[device.pid, device.index] = draft(account, trace)
            yield device, account

    return _Source(path, part_with(trace, drafted()), drafts)


def _clocks(parts: Sequence[TracePart]) -> list[int | None]:
    """How far the clock of each input is ahead of that of the first, ns; see `clock_offsets`."""
    devices = [(source, found) for source, part in enumerate(parts) for found in part.devices]
    footprints = aligned([found.footprint for _, found in devices])
    sources = [source for source, _ in devices]
    offsets = clock_offsets(footprints, match_transfers(footprints), sources)
    known: list[int | None] = [None] * len(parts)
    for source, ahead in zip(sources, offsets, strict=True):
        if known[source] is None:
            known[source] = ahead
    return known


@contextmanager
def _opened(temporary: Path, target: Path) -> Iterator[IO[bytes]]:
    """The file to write to; compressed without name and time, so that it is always the same."""
    with temporary.open("wb") as raw:
        if target.suffix != ".gz":
            yield raw
            return
        packed = gzip.GzipFile(filename="", mode="wb", fileobj=raw, compresslevel=_LEVEL, mtime=0)
        with packed:
            yield cast("IO[bytes]", packed)


class _Events(msgspec.Struct):
    """A list of events that is being written."""

    file: IO[bytes]
    any_yet: bool = False

    def add(self, events: Iterable[bytes]) -> None:
        """Write JSON of one or more events each."""
        waiting: list[bytes] = []
        size = 0
        for event in events:
            waiting.append(event)
            size += len(event)
            if size >= _BLOCK:
                self._write(waiting)
                waiting, size = [], 0
        self._write(waiting)

    def _write(self, waiting: Sequence[bytes]) -> None:
        if waiting:
            self.file.write((b",\n" if self.any_yet else b"") + b",\n".join(waiting))
            self.any_yet = True


def _write(
    events: _Events, report: Report, sources: Sequence[_Source], options: Options
) -> Annotation:
    pids, added = Pids(), Added()
    base = int(report.inputs[0].base_ns)
    several = len(sources) > 1
    copies: list[KinetoCopy | NsightCopy] = []
    processes: list[int] = []
    aheads = _clocks([source.part for source in sources])
    for number, (source, ahead) in enumerate(zip(sources, aheads, strict=True)):
        ranks = [rank for rank in report.ranks if rank.input == number]
        label = f" [rank {ranges([rank.rank for rank in ranks])}]" if several else ""
        own_base = int(source.part.input.base_ns)
        later = -(ahead or 0)
        if source.part.input.format == "nsys":
            # Read once more: the rows of many ranks would not fit into memory.
            again = read_trace(source.path, None, options.limits)
            copy: KinetoCopy | NsightCopy = NsightCopy(again, pids, later, label)
        else:
            moves = Moves(own_base - base + later, number * _ID_STEP, label) if several else None
            sha256 = source.part.input.sha256
            copy = KinetoCopy(source.path, sha256, options.limits, pids, moves)
        if not number:
            events.file.write(copy.opening())
        events.add(copy.chunks())
        copies.append(copy)
        clock = Clock.of(later - base, max(found.end for found in source.drafts.values()))
        for rank in ranks:
            memory = copy.counters(rank.device.index, own_base)
            drafted = source.drafts[rank.pid, rank.device.index]
            processes.append(pids.free())
            events.add(rank_events(report, rank, drafted, memory, processes[-1], clock, added))
    about = {
        "written_by": f"traceprobe {__version__}",
        "inputs": [
            {"name": source.part.input.name, "sha256": source.part.input.sha256, **copy.note()}
            for source, copy in zip(sources, copies, strict=True)
        ],
        "added": added.events,
        "left_out": added.left_out,
    }
    events.add([metadata(processes[0], None, "traceprobe", **about)])
    if several or report.inputs[0].format == "nsys":
        made_of = ", ".join(source.part.input.name for source in sources)
        view = {"ph": "M", "cat": VIEW, "name": made_of, "pid": processes[0], "args": {}}
        events.add([encode(view)])
    events.file.write(copies[0].closing())
    return Annotation(
        report=report,
        events=sum(copy.events for copy in copies),
        added=added.events,
        left_out=added.left_out,
        adrift=[
            source.part.input.name
            for source, ahead in zip(sources, aheads, strict=True)
            if ahead is None
        ],
    )
