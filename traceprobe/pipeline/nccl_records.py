"""A trace with what PyTorch's flight recorder noted of its collectives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl

from traceprobe.errors import DamagedInput
from traceprobe.ingest.trace_folder import named_rank
from traceprobe.model.events import UNKNOWN, Bools, Int64s, Operation, Trace
from traceprobe.pipeline.nccl_kernels import (
    Dump,
    KernelsOfProcess,
    kernels_of_processes,
    read_dump,
    same_work,
)
from traceprobe.records.nccl import NcclRecords
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
_AGAIN = (
    "dump the recorder in the run that is profiled, within some thousand collectives of the "
    "capture, or let it keep more (TORCH_FR_BUFFER_SIZE)"
)


class _Unjoined(Exception):
    """A dump and a process are not joined; the text says why and what would help."""


@dataclass(frozen=True)
class _Join:
    """Call of each kernel of a process, UNKNOWN without."""

    process: KernelsOfProcess
    dump: Dump
    call: Int64s
    covered: Bools
    clocks: ClockDifference

    @property
    def score(self) -> float:
        return self.clocks.score / max(int(self.covered.sum()), 1)


def with_nccl_records(
    trace: Trace, paths: Mapping[int, Path]
) -> tuple[Trace, Sequence[NcclRecords]]:
    """The trace with operations, sizes and groups of its collectives filled from dumps.

    What the trace says itself stays. A process of which it does not say the rank gets that of the
    dump that is joined with it. What is not joined is warned of.

    Args:
        paths: dumps by rank.

    Raises:
        UnsupportedInput: a file is no dump.
    """
    joins: list[_Join] = []
    problems: list[str] = []
    dumps: dict[int, Dump | None] = {}
    for process in kernels_of_processes(trace, problems):
        rank = _rank(trace, process.pid)
        wanted = sorted(paths) if rank is None else [rank] if rank in paths else []
        for number in wanted:
            if number not in dumps:
                dumps[number] = _read(number, paths[number], problems)
        read = [dump for number in wanted if (dump := dumps[number]) is not None]
        if wanted and not read:  # why is among the problems
            continue
        try:
            joins.append(_joined(process, rank, read))
        except _Unjoined as error:
            problems.append(str(error))
    taken = [join.dump.rank for join in joins]
    twice = sorted({rank for rank in taken if taken.count(rank) > 1})
    if twice:
        problems.append(
            f"several processes fit the dump of rank {twice[0]}; profile each rank into a file "
            "with its rank in the name"
        )
    kept = [join for join in joins if join.dump.rank not in twice]
    filled, found = _filled(trace, kept, problems)
    if problems:
        said = list(dict.fromkeys(problems))
        more = f"; and {len(said) - MAX_NAMED} more reasons" if len(said) > MAX_NAMED else ""
        trace.quality.warn(
            "nccl-records",
            f"NCCL's records were not joined: {'; '.join(said[:MAX_NAMED])}{more}.",
        )
    return filled, found


def _read(rank: int, path: Path, problems: list[str]) -> Dump | None:
    """A dump, or what is wrong with it among the problems."""
    try:
        return read_dump(rank, path)
    except DamagedInput as error:
        problems.append(str(error))
    except OSError as error:  # its own text has the whole path
        problems.append(f"{path.name}: {error.strerror or type(error).__name__}")
    return None


def _rank(trace: Trace, pid: int) -> int | None:
    """The rank of a process by the file, or by the file's name."""
    if pid in trace.rank_of:
        return trace.rank_of[pid]
    alone = trace.gpu_ops["pid"].n_unique() == 1
    return named_rank(trace.origin.name) if alone else None


def _joined(process: KernelsOfProcess, rank: int | None, dumps: Sequence[Dump]) -> _Join:
    """The join with the dump that fits.

    Raises:
        _Unjoined: none does, or several do.
    """
    who = f"process {process.pid}" if rank is None else f"rank {rank}"
    if not dumps:
        raise _Unjoined(f"there is no dump of {who}; dump every rank")
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
        ranks = " and ".join(str(join.dump.rank) for join in found[:2])
        raise _Unjoined(
            f"{who} fits the dumps of ranks {ranks} alike; profile each rank into a file with its "
            "rank in the name"
        )
    return found[0]


def _join(process: KernelsOfProcess, dump: Dump, who: str) -> _Join:
    """The join of a process with one dump.

    Raises:
        _Unjoined: they do not fit, or not in one way alone.
    """
    noted = dump.calls["created_ns"].to_numpy()
    launched = process.launched_ns
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
                f"{gap / 1e9:,.1f} s; {_AGAIN}"
            )
    fits = same_work(process, dump)
    clocks = clock_difference(launched, noted, fits, _CLOCKS_NS if process.utc else None)
    if clocks is None:
        raise _Unjoined(f"{dump.name}: notes other collectives than {who} ran; {_AGAIN}")
    at = clocks.on_notes(launched)
    covered = (at >= noted[0] - CLOSE_NS) & (at <= noted[-1] + CLOSE_NS)
    several = dump.calls["several"].to_numpy()
    call = notes_of_launches(launched, noted, several, fits, clocks)
    call[~covered] = UNKNOWN
    join = _Join(process, dump, call, covered, clocks)
    count, joined = int(covered.sum()), int((call != UNKNOWN).sum())
    if count < LEAST:
        raise _Unjoined(
            f"{dump.name} and {who} in the trace overlap in {count} collectives; {_AGAIN}"
        )
    if join.score < LEAST_SCORE or joined < LEAST_JOINED * count:
        raise _Unjoined(
            f"{dump.name}: its calls do not come in the rhythm of {who} in the trace ({joined} of "
            f"{count} kernels fit, nearness {join.score:.2f}); {_AGAIN}"
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
                f"{int(both.sum())} collectives of rank {dump.rank}; {_AGAIN}"
            )
            continue
        _fill(columns, process.row, rows, said)
        ranks.setdefault(process.pid, dump.rank)
        count = int(join.covered.sum())
        found.append(
            NcclRecords(
                rank=dump.rank,
                dump=dump.name,
                calls=len(dump.calls),
                kernels=len(process.row),
                covered=count,
                joined=len(rows),
                compared=int(both.sum()),
                equal=equal,
                score=round(min(join.score, 1.0), 3),
                rival=round(min(join.clocks.rival / count, 1.0), 3),
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
