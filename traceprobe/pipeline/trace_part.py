"""The part of a report that one input gives alone: what is left of a trace once it is accounted.

A trace of one rank has millions of rows. Its part has the finished records of its devices, open
only where other ranks matter, and what these are compared by. Parts are small and can be pickled,
so that each is made where there is a core and the memory for one trace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import msgspec
import numpy as np
import polars as pl
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from traceprobe.errors import DamagedInput, EmptyTrace, TraceprobeError, UsageError, system_message
from traceprobe.ingest.read_trace import read_trace
from traceprobe.model.codes import Call
from traceprobe.model.events import Device, Trace
from traceprobe.model.quality import Quality
from traceprobe.model.sidecar import RECORDED, KernelOwners, Sidecar
from traceprobe.model.step_names import OWN_MARKS
from traceprobe.options import Options
from traceprobe.pipeline.build_kernel_counters import kernel_counters
from traceprobe.pipeline.build_operator_calls import build_operator_calls
from traceprobe.pipeline.build_picture import picture
from traceprobe.pipeline.build_rank import build_replay, origin, rank_record
from traceprobe.pipeline.build_sequences import build_sequences
from traceprobe.pipeline.build_tree import build_tree
from traceprobe.pipeline.device_turns import taking_turns
from traceprobe.pipeline.rank_details import RankDetails, without_details
from traceprobe.pipeline.reduced_types import with_reduced_types
from traceprobe.records.launches import KernelSequence
from traceprobe.records.loader import read as read_loader
from traceprobe.records.nccl import NcclRecords
from traceprobe.records.operator_calls import OperatorCalls
from traceprobe.records.rank import Rank
from traceprobe.records.replay import Replay
from traceprobe.records.report import Input
from traceprobe.system import memory_limit as bounded
from traceprobe.timeline import collectives, phases
from traceprobe.timeline.attribution import Attribution, Owners, attribution, find_owners
from traceprobe.timeline.device_timeline import DeviceTimeline, device_timeline
from traceprobe.timeline.long_iterations import (
    LoaderPace,
    LongIterations,
    TimedSteps,
    long_iterations,
    without,
)
from traceprobe.timeline.operator_time import OperatorTime, operator_time
from traceprobe.timeline.played_ops import consecutive
from traceprobe.timeline.process_timeline import ProcessTimeline, process_timeline
from traceprobe.timeline.rank_collectives import RankCollectives, rank_collectives

if TYPE_CHECKING:
    from traceprobe.ingest.read_trace import Progress
    from traceprobe.pipeline.cache import Use


Result = TypeVar("Result")
Played: TypeAlias = Replay | UnsetType
_BESIDE = 2
"""Threads of a device: most of an analysis leaves Python's lock to others."""


class DevicePart(msgspec.Struct, frozen=True):
    """One device of one process.

    Args:
        record: as in the report, open where it takes the run to know, without details.
        footprint: what other ranks are compared with. groups: the collectives by operation and
            size.
        details: those of the record, with the windows that a person should see.
        regular: the same without long iterations, if there are any.
        operators: time by operator and sizes, where the trace has these.
    """

    record: Rank
    footprint: RankCollectives
    groups: list[collectives.CollectiveGroup]
    details: RankDetails
    regular: DevicePart | None = None
    operators: OperatorTime | None = None


class TracePart(msgspec.Struct, frozen=True):
    """One input.

    Args:
        rank_of: rank of each process where the file records it.
        gpu_ops, gpu_ops_linked, launches_without_gpu_op: as in the quality of a report.
        quality, profiled, metadata: those of the trace, without what is in `sidecar`.
        sidecar: what the recording says about itself; None of what traceprobe did not record.
        devices: by process and device.
        kept: what the cache did for it, if there is one.
        nccl_records: dumps that its collectives were filled from.
    """

    input: Input
    rank_of: dict[int, int]
    gpu_ops: int
    gpu_ops_linked: int
    launches_without_gpu_op: int
    quality: Quality
    profiled: frozenset[str]
    metadata: dict[str, Any]
    sidecar: Sidecar | None
    devices: list[DevicePart]
    kept: Use | None = None
    nccl_records: Sequence[NcclRecords] = ()


class Lost(msgspec.Struct, frozen=True):
    """An input that could not be read. `name` is its base name, `reason` a sentence.

    Args:
        internal: the fault is traceprobe's, which did not expect what it found there.
    """

    name: str
    reason: str
    internal: bool = False


def read_part(
    path: Path,
    options: Options,
    folder: Path | None = None,
    progress: Progress | None = None,
    jobs: int = 1,
) -> TracePart:
    """The part of one file. Errors are those of `traceprobe.load` and `traceprobe.analyze`.

    Args:
        folder: of the cache, if there is one.
        jobs: how much of the file may be read at once.
    """
    if folder is None:
        return part_of(read_trace(path, progress, options.limits, jobs), options)
    from traceprobe.pipeline.cache import load as cached

    trace, use = cached(path, folder, progress, options.limits, jobs)
    return replace(part_of(trace, options), kept=use)


def read_or_lose(
    path: Path,
    options: Options,
    folder: Path | None = None,
    progress: Progress | None = None,
    jobs: int = 1,
) -> TracePart | Lost:
    """The part of one file of several: damage costs this file, not the run.

    So does what nobody thought of: of a thousand ranks one may hold a value that breaks the reader,
    and the report of the others is worth having. With one file alone, the error is raised.

    Raises:
        UnsupportedInput: the file is no trace at all, so it was given by mistake.
        UsageError: an option makes no sense.
    """
    return or_lost(path, lambda: read_part(path, options, folder, progress, jobs))


def or_lost(path: Path, read: Callable[[], Result]) -> Result | Lost:
    """What is read of one file of several, or why it is not. Errors are those of `read_or_lose`."""
    try:
        return read()
    except (DamagedInput, EmptyTrace) as error:
        return Lost(path.name, str(error))
    except TraceprobeError:
        raise
    except OSError as error:
        return Lost(path.name, f"{path.name}: {system_message(error)}")
    except (Exception, pl.exceptions.PanicException) as error:
        if bounded.is_refused_memory(error):
            return Lost(path.name, f"{path.name}: {bounded.memory_message()}")
        return Lost(
            path.name,
            f"{path.name}: internal error while it was read ({type(error).__name__}); analyse it "
            "alone to see where, and please report it",
            internal=True,
        )


def read_in_turn(
    paths: Sequence[Path],
    options: Options,
    folder: Path | None = None,
    progress: Callable[[int], Progress | None] = lambda position: None,
    jobs: int = 1,
) -> list[TracePart | Lost]:
    """The parts of files; what a trace held is dropped before the next one is read.

    Args:
        folder: of the cache, if there is one.
        progress: the callback for the file at a position.
        jobs: how much of a file may be read at once.

    Raises:
        TraceprobeError: the only file cannot be read; of several, see `read_or_lose`.
        OSError: the only file cannot be opened.
    """
    read = read_part if len(paths) == 1 else read_or_lose
    return [read(path, options, folder, progress(n), jobs) for n, path in enumerate(paths)]


def part_of(trace: Trace, options: Options) -> TracePart:
    """The part of a trace.

    Raises:
        UsageError: an option makes no sense for it.
        DamagedInput: it has more iterations than the limit.
        EmptyTrace: its work takes no time.
        UnsupportedInput: what `options` names as a dump of the flight recorder is none.
    """
    if not options.nccl_records:
        return part_with(trace, accounts(trace, options))
    from traceprobe.pipeline.nccl_records import with_nccl_records

    trace, records = with_nccl_records(trace, options.nccl_records)
    return replace(part_with(trace, accounts(trace, options)), nccl_records=records)


def part_with(trace: Trace, found: Iterable[tuple[Device, DeviceTimeline]]) -> TracePart:
    """The part of a trace with the accounts of its devices. Errors are those of `part_of`."""
    calls = trace.host_calls
    unrecorded = calls["call"].filter(~calls["recorded"]).to_numpy()
    sidecar = _sidecar(trace)
    devices = []
    for device, account in found:
        devices.append(_device(account, trace, device, sidecar))
        del account  # before the next one is made
    asks = [int(Call.LAUNCH), int(Call.GRAPH_LAUNCH), int(Call.COPY)]
    return TracePart(
        input=_input(trace),
        rank_of=dict(trace.rank_of),
        gpu_ops=len(trace.gpu_ops),
        gpu_ops_linked=int(trace.gpu_ops["linked"].sum()),
        launches_without_gpu_op=int(np.isin(unrecorded, asks).sum()),
        quality=trace.quality,
        profiled=trace.profiled,
        metadata={name: fact for name, fact in trace.metadata.items() if name != RECORDED},
        sidecar=sidecar,
        devices=_in_turn(devices),
    )


def _in_turn(devices: Sequence[DevicePart]) -> list[DevicePart]:
    """The devices, of which those of one process wait for each other by turns."""
    found = list(devices)
    for pid in {part.record.pid for part in devices}:
        places = [place for place, part in enumerate(devices) if part.record.pid == pid]
        whole = taking_turns([devices[place].record for place in places])
        regular = taking_turns([(devices[p].regular or devices[p]).record for p in places])
        for place, record, usual in zip(places, whole, regular, strict=True):
            part = replace(devices[place], record=record)
            if part.regular is not None:
                part = replace(part, regular=replace(part.regular, record=usual))
            found[place] = part
    return found


def _sidecar(trace: Trace) -> Sidecar | None:
    recorded = trace.metadata.get(RECORDED)
    return None if recorded is None else msgspec.convert(recorded, Sidecar)


def _loader_pace(sidecar: Sidecar | None) -> LoaderPace | None:
    if sidecar is None:
        return None
    loader, waited = read_loader(sidecar.loader), sidecar.unprofiled_data_wait_ms
    pace = LoaderPace(waited=waited * 1e6 if isinstance(waited, float) else None)
    if loader is None or loader.load_ms is None:
        return pace
    return pace._replace(batch=loader.batch_ms * 1e6, step=loader.load_ms * 1e6)


def _timed_steps(
    account: DeviceTimeline, device: Device, sidecar: Sidecar | None
) -> TimedSteps | None:
    """The steps without the profiler, where each iteration is one of them."""
    marker = account.process.marker
    own = marker is not None and marker.pattern in OWN_MARKS and marker.per_iteration == 1
    if sidecar is None or not own:
        return None
    on_gpu = device.kind == "gpu"
    listed = [] if sidecar.calibration_step_ms is UNSET else sidecar.calibration_step_ms
    waited = sidecar.unprofiled_data_wait_ms
    return TimedSteps(
        ns=[ms * 1e6 for ms in (_without_last(listed, sidecar) if on_gpu else listed)],
        waited=waited * 1e6 if isinstance(waited, float) else None,
        period=1 if sidecar.warmup is UNSET else sidecar.warmup.period,
        ahead=on_gpu,
    )


def _without_last(listed: Sequence[float], sidecar: Sidecar) -> list[float]:
    """The timed steps without the last of each block, in which the host waits for the device."""
    blocks = [] if sidecar.blocks is UNSET else sidecar.blocks
    counts = [block.steps for block in blocks if block.plain]
    if sum(counts) != len(listed):
        counts = [len(listed)]
    lasts = {end - 1 for end in accumulate(counts)}
    return [ms for place, ms in enumerate(listed) if place not in lasts]


def _noted_owners(sidecar: Sidecar | None) -> KernelOwners | None:
    if sidecar is None or sidecar.kernel_owners is UNSET:
        return None
    return sidecar.kernel_owners


def _warn_of_unfit(found: Attribution, trace: Trace) -> None:
    if found.unfit:
        trace.quality.warn(
            "graph-owners-unfit",
            f"{found.unfit} of {found.replays} replays of CUDA graphs have other kernels than were "
            "noted when graphs were captured; their kernels have no owners.",
        )


def accounts(trace: Trace, options: Options) -> Iterator[tuple[Device, DeviceTimeline]]:
    """The devices of a trace that did something, one after the other. Errors: see `part_of`."""
    names = phases.compile_phase_names(options.phases)
    windows, idle = 0, True
    process: ProcessTimeline | None = None
    for found in trace.devices:
        if process is None or process.pid != found.pid:
            process = None  # one at a time: that of a long trace is as big as the trace
            process = process_timeline(trace, found.pid, options.step, names)
            steps = 0 if process.marker is None else len(process.marker.starts)
            options.limits.check("iterations", steps, trace.origin.name)
            windows += steps * sum(other.pid == found.pid for other in trace.devices)
            options.limits.check("windows", windows, trace.origin.name)
        account = device_timeline(process, found.index, on_cpu=found.kind == "cpu")
        works = (account.ops["t1"] > account.ops["t0"]).any()
        if not works or account.edges[0] == account.edges[-1]:  # it only ever cleared a few bytes
            continue
        if options.steps is not None:
            account = _limit(account, options.steps)
        idle = False
        yield found, account
        del account
    if idle:
        raise EmptyTrace(
            f"{trace.origin.name}: its GPU work has no duration, so there is nothing to account "
            "for; capture it again"
        )


def _device(
    account: DeviceTimeline, trace: Trace, device: Device, sidecar: Sidecar | None
) -> DevicePart:
    """The device; what needs no other result is computed beside the record."""
    long = long_iterations(account, _loader_pace(sidecar), _timed_steps(account, device, sidecar))
    with ThreadPoolExecutor(_BESIDE) as pool:
        found = pool.submit(find_owners, account, trace.names, _noted_owners(sidecar))
        drawn = pool.submit(picture, account, trace.names, trace.thread_names, origin(trace), long)
        played = pool.submit(_played, account, trace, device)
        calls = pool.submit(_operator_calls, account, trace, device)
        called = pool.submit(operator_time, account, trace.names, trace.operands)

        def part(
            chosen: DeviceTimeline, long: LongIterations | None, played: Future[Played]
        ) -> DevicePart:
            owned = pool.submit(_owned, chosen, found, device)
            groups = collectives.collective_groups(chosen)
            groups = with_reduced_types(groups, chosen.ops, trace.names)
            record = rank_record(chosen, trace, device, groups, long)
            footprint = rank_collectives(chosen)
            owners, sequences = owned.result()
            _warn_of_unfit(owners, trace)
            summary = replace(record.summary, sequences=sequences)
            tree = build_tree(owners, owners.names)
            record = replace(record, summary=summary, tree=tree, replay=played.result())
            shown = calls.result() if chosen is account else UNSET
            record, details = without_details(record, drawn.result(), shown)
            return DevicePart(record, footprint, groups, details)

        whole = part(account, long, played)
        record = whole.record
        counters = kernel_counters(trace)
        if counters is not UNSET:
            record = replace(record, summary=replace(record.summary, kernel_counters=counters))
        whole = replace(whole, record=record, operators=called.result())
        if long is None:
            return whole
        regular = without(account, long)
        if not np.array_equal(consecutive(regular), consecutive(account)):
            played = pool.submit(_played, regular, trace, device)
        return replace(whole, regular=part(regular, None, played))


def _played(account: DeviceTimeline, trace: Trace, device: Device) -> Played:
    return UNSET if device.kind == "cpu" else build_replay(account, trace)


def _operator_calls(
    account: DeviceTimeline, trace: Trace, device: Device
) -> list[OperatorCalls] | UnsetType:
    """For the report alone: no finding asks."""
    return UNSET if device.kind == "cpu" else build_operator_calls(account, trace.names)


def _owned(
    account: DeviceTimeline, found: Future[Owners], device: Device
) -> tuple[Attribution, list[KernelSequence] | UnsetType]:
    """The owners of time, and the short kernels that a GPU is given in a row."""
    owners = attribution(account, found.result())
    return owners, UNSET if device.kind == "cpu" else build_sequences(account, owners)


def _limit(account: DeviceTimeline, steps: tuple[int, int]) -> DeviceTimeline:
    """Leave iterations outside of the user's range out of the summary."""
    first, last = steps
    reasons = [
        reason if first <= k < last else reason or "outside of --steps"
        for k, reason in enumerate(account.reasons)
    ]
    used = account.used & (account.index >= first) & (account.index < last)
    if account.used.any() and not used.any():
        raise UsageError(
            f"--steps {first}:{last} leaves no usable iteration; usable are "
            f"{', '.join(str(k) for k in account.index[account.used].tolist())}"
        )
    return replace(account, reasons=reasons, used=used)


def _input(trace: Trace) -> Input:
    o = trace.origin
    return Input(
        name=o.name,
        sha256=o.sha256,
        format="nsys" if o.format == "nsys" else "kineto",
        dialect=o.dialect,
        producer=o.producer,
        bytes=o.bytes,
        origin_ns=str(origin(trace)),
        base_ns=str(trace.origin.base_ns),
    )
