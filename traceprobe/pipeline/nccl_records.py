"""A trace with what PyTorch's flight recorder or NCCL Inspector noted of its collectives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import get_args

import msgspec
import numpy as np
import polars as pl
from msgspec.structs import replace

from traceprobe.ingest.trace_folder import named_rank
from traceprobe.model.codes import UNKNOWN, Bools, Int64s, Operation
from traceprobe.model.events import Trace
from traceprobe.pipeline.nccl_dumps import Dump, Files, same_work
from traceprobe.pipeline.nccl_kernels import KernelsOfProcess, kernels_of_processes
from traceprobe.records.nccl import NcclRecords, Source
from traceprobe.timeline.record_alignment import (
    CLOSE_NS,
    ClockDifference,
    clock_difference,
    notes_of_launches,
)

_CLOCKS_NS = 1_000_000_000
"""How far a clock of UTC may be from that of the same machine in another tool's file."""
MAX_NAMED = 3
"""Reasons that the warning gives."""
LEAST = 8
"""Kernels that make a rhythm."""
LEAST_SCORE, MOST_RIVAL, LEAST_JOINED, LEAST_EQUAL = 0.5, 0.8, 0.9, 0.9
"""What a join needs: nearness of launches to calls; that of any other way to join, as a part of
it; kernels joined, of those covered; equal sizes, of those that trace and dump have."""
_AGAIN: Mapping[Source, str] = {
    "flight_recorder": "dump the recorder in the run that is profiled, within some thousand "
    "collectives of the capture, or let it keep more (TORCH_FR_BUFFER_SIZE)",
    "inspector": "take the log of that process in the run that is profiled, and let the plugin "
    "lose nothing (NCCL_INSPECTOR_DUMP_THREAD_INTERVAL_MICROSECONDS=500)",
}
_TIMES = "write it with NCCL_INSPECTOR_DUMP_VERBOSE=1"


class _Unjoined(Exception):
    """A dump and a process are not joined; the text says why and what would help."""


class _Join(msgspec.Struct, frozen=True):
    """Call of each kernel of a process, UNKNOWN without.

    Args:
        covered: kernels in the time of the calls.
        possible: how many kernels can have a call: all of these, or as many as there are calls.
    """

    process: KernelsOfProcess
    dump: Dump
    call: Int64s
    covered: Bools
    possible: int
    clocks: ClockDifference

    @property
    def score(self) -> float:
        return self.clocks.score / max(self.possible, 1)


def with_nccl_records(
    trace: Trace, paths: Mapping[int, Sequence[Path]]
) -> tuple[Trace, Sequence[NcclRecords]]:
    """The trace with operations, sizes and groups of its collectives filled from dumps and logs.

    What the trace says itself stays, and so does what a dump says, which knows more than a log. A
    process of which the trace does not say the rank gets that of what is joined with it. What is
    not joined is warned of.

    Args:
        paths: dumps and logs by rank.

    Raises:
        UnsupportedInput: a file is neither.
    """
    problems: list[str] = []
    files = Files(paths, problems)
    joins = [
        join
        for process in kernels_of_processes(trace, problems)
        for join in _joins(process, _rank(trace, process.pid), files, problems)
    ]
    taken = [join.dump for join in joins]
    twice = list(dict.fromkeys(d.name for d in taken if sum(d is other for other in taken) > 1))
    if twice:
        problems.append(
            f"several processes fit {twice[0]}; profile each rank into a file with its rank in "
            "the name"
        )
    kept = [join for join in joins if join.dump.name not in twice]
    kept.sort(key=lambda join: join.dump.source != "flight_recorder")
    filled, found = _filled(trace, kept, problems)
    if problems:
        said = list(dict.fromkeys(problems))
        more = f"; and {len(said) - MAX_NAMED} more reasons" if len(said) > MAX_NAMED else ""
        trace.quality.warn(
            "nccl-records",
            f"NCCL's records were not joined: {'; '.join(said[:MAX_NAMED])}{more}.",
        )
    return filled, found


def _joins(
    process: KernelsOfProcess, rank: int | None, files: Files, problems: list[str]
) -> Iterator[_Join]:
    """The joins of a process with what notes its collectives, one of each kind."""
    wanted, read = files.of_rank(rank)
    if wanted and not read:  # why is among the problems
        return
    who = f"process {process.pid}" if rank is None else f"rank {rank}"
    if not read:
        problems.append(f"there is no dump of {who}; dump every rank")
    for source in get_args(Source):
        own = [dump for dump in read if dump.source == source]
        try:
            if own:
                yield _joined(process, who, own)
        except _Unjoined as error:
            problems.append(str(error))


def _rank(trace: Trace, pid: int) -> int | None:
    """The rank of a process by the file, or by the file's name."""
    if pid in trace.rank_of:
        return trace.rank_of[pid]
    alone = trace.gpu_ops["pid"].n_unique() == 1
    return named_rank(trace.origin.name) if alone else None


def _joined(process: KernelsOfProcess, who: str, dumps: Sequence[Dump]) -> _Join:
    """The join with the dump that fits.

    Raises:
        _Unjoined: none does, or several do.
    """
    found: list[_Join] = []
    why = ""
    for dump in dumps:
        try:
            found.append(_join(process, dump, who))
        except _Unjoined as error:
            why = why or str(error)
    if not found:
        raise _Unjoined(why)
    found.sort(key=lambda join: -join.score)
    if len(found) > 1 and found[1].score > MOST_RIVAL * found[0].score:
        names = " and ".join(join.dump.name for join in found[:2])
        raise _Unjoined(
            f"{who} fits {names} alike; profile each rank into a file with its rank in the name"
        )
    return found[0]


def _join(process: KernelsOfProcess, dump: Dump, who: str) -> _Join:
    """The join of a process with one dump.

    Raises:
        _Unjoined: they do not fit, or not in one way alone.
    """
    noted = dump.calls["created_ns"].to_numpy()
    launched, again = process.launched_ns, _AGAIN[dump.source]
    if dump.untimed and len(noted) < LEAST:
        raise _Unjoined(f"{dump.name}: does not say when its operations began; {_TIMES}")
    if len(noted) < LEAST or len(launched) < LEAST:
        raise _Unjoined(
            f"{who} has {len(launched)} kernels and {dump.name} {len(noted)} calls of NCCL; to "
            f"tell which belong together takes {LEAST} of each"
        )
    if process.utc:
        gap = max(noted[0] - launched[-1], launched[0] - noted[-1])
        if gap > _CLOCKS_NS:
            when = "after" if noted[0] > launched[-1] else "before"
            raise _Unjoined(
                f"{dump.name}: all its calls are {when} those of {who} in the trace, by "
                f"{gap / 1e9:,.1f} s; {again}"
            )
    fits = same_work(process, dump)
    clocks = clock_difference(launched, noted, fits, _CLOCKS_NS if process.utc else None)
    if clocks is None:
        raise _Unjoined(f"{dump.name}: notes other collectives than {who} ran; {again}")
    at = clocks.on_notes(launched)
    covered = (at >= noted[0] - CLOSE_NS) & (at <= noted[-1] + CLOSE_NS)
    several = dump.calls["several"].to_numpy()
    call = notes_of_launches(launched, noted, several, fits, clocks)
    call[~covered] = UNKNOWN
    count = int(covered.sum())
    if dump.source == "inspector":  # it leaves out small messages, and what it could not time
        call[np.abs(at - noted[call]) > CLOSE_NS] = UNKNOWN  # so the last call may be of another
        count = min(count, int(((noted >= at[0] - CLOSE_NS) & (noted <= at[-1] + CLOSE_NS)).sum()))
    joined = int((call != UNKNOWN).sum())
    join = _Join(process, dump, call, covered, count, clocks)
    if count < LEAST:
        raise _Unjoined(
            f"{dump.name} and {who} in the trace overlap in {count} collectives; {again}"
        )
    if join.score < LEAST_SCORE or joined < LEAST_JOINED * count:
        raise _Unjoined(
            f"{dump.name}: its calls do not come in the rhythm of {who} in the trace ({joined} of "
            f"{count} kernels fit, nearness {join.score:.2f}); {again}"
        )
    if clocks.rival > MOST_RIVAL * clocks.score:
        raise _Unjoined(
            f"{dump.name}: fits {who} in the trace in several ways, {clocks.rival:.0f} "
            f"collectives by another against {clocks.score:.0f}; profile more steps"
        )
    return join


def _filled(
    trace: Trace, joins: Sequence[_Join], problems: list[str]
) -> tuple[Trace, list[NcclRecords]]:
    """The trace with what the joins add, and what is to be said of each."""
    columns = {
        name: trace.gpu_ops[name].to_numpy().astype(np.int64)
        for name in ("operation", "bytes", "group", "group_size")
    }
    found: list[NcclRecords] = []
    ranks = dict(trace.rank_of)
    for join in joins:
        process, dump, has = join.process, join.dump, join.call != UNKNOWN
        rows, call = process.row[has], join.call[has]
        said = {name: dump.calls[name].to_numpy()[call] for name in columns}
        # A message that several kernels share is nobody's.
        alone = np.bincount(call, minlength=len(dump.calls))[call] == 1
        said["bytes"] = np.where(alone, said["bytes"], UNKNOWN)
        own = columns["bytes"][rows]
        both = (own != UNKNOWN) & (said["bytes"] != UNKNOWN)
        equal = int((own[both] == said["bytes"][both]).sum())
        if equal < LEAST_EQUAL * int(both.sum()):
            problems.append(
                f"{dump.name}: has other sizes than the trace for {int(both.sum()) - equal} of "
                f"{int(both.sum())} collectives of rank {dump.rank}; {_AGAIN[dump.source]}"
            )
            continue
        _fill(columns, process.row, rows, said)
        if dump.rank not in ranks.values():  # of logs, several may have one in their communicators
            ranks.setdefault(process.pid, dump.rank)
        count = int(join.covered.sum())
        found.append(
            NcclRecords(
                rank=dump.rank,
                source=dump.source,
                dump=dump.name,
                calls=len(dump.calls),
                damaged=dump.damaged,
                kernels=len(process.row),
                covered=count,
                joined=len(rows),
                compared=int(both.sum()),
                equal=equal,
                score=round(min(join.score, 1.0), 3),
                rival=round(min(join.clocks.rival / join.possible, 1.0), 3),
            )
        )
    ops = trace.gpu_ops.with_columns(
        pl.Series(name, values, trace.gpu_ops.schema[name]) for name, values in columns.items()
    )
    return replace(trace, gpu_ops=ops, rank_of=ranks), found


def _fill(
    columns: Mapping[str, Int64s], all_rows: Int64s, rows: Int64s, said: Mapping[str, Int64s]
) -> None:
    """Fill what is unknown. Groups that a trace numbers itself, it numbers in its own way."""
    operation = columns["operation"]
    coarse = np.isin(operation[rows], (int(Operation.OTHER), int(Operation.SEND_RECV)))
    coarse &= said["operation"] != int(Operation.OTHER)
    operation[rows[coarse]] = said["operation"][coarse]
    names = ["bytes", "group_size"]
    if (columns["group"][all_rows] == UNKNOWN).all():
        names.append("group")
    for name in names:
        missing = columns[name][rows] == UNKNOWN
        columns[name][rows[missing]] = said[name][missing]
