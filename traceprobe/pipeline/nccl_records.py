"""A trace with what PyTorch's flight recorder noted of its collectives."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl

from traceprobe.errors import DamagedInput
from traceprobe.ingest.communication_kernels import own_name
from traceprobe.ingest.joins import per_name
from traceprobe.ingest.nccl.flight_recorder import read_flight_record
from traceprobe.ingest.nccl.noted_calls import noted_calls
from traceprobe.ingest.trace_folder import named_rank
from traceprobe.model.events import UNKNOWN, Bools, Int64s, Kind, Operation, Trace
from traceprobe.records.nccl import NcclRecords
from traceprobe.timeline.record_alignment import (
    CLOSE_NS,
    ClockDifference,
    Fits,
    clock_difference,
    notes_of_launches,
)

_NCCL = re.compile(r"(?i)nccl|rccl")
_OF_MESSAGES = (Operation.SEND_RECV, Operation.ALL_TO_ALL, Operation.GATHER, Operation.SCATTER)
"""Operations that NCCL runs as sends and receives."""
_SAME_KERNEL = {
    **dict.fromkeys((int(o) for o in _OF_MESSAGES), int(Operation.SEND_RECV)),
    int(Operation.BARRIER): int(Operation.ALL_REDUCE),
    int(Operation.OTHER): UNKNOWN,
}
"""Operations by the kernel that runs them, where it is not their own; any may run OTHER."""
_REDUCED = re.compile(
    r"(?:reduce_?scatter|reduce)\w*?_(?:(f32|float)|(f16|half)|(\w*bf(?:loat)?16)|(f64|double))(?:_|$)",
    re.IGNORECASE,
)
_REDUCED_TYPES = ("float", "half", "bfloat16", "double")
_UTC = 10**17
"""Times beyond this many ns count from 1970, and not from the start of a capture."""
_CLOCKS_NS = 1_000_000_000
"""How far a clock of UTC may be from that of the same machine in another tool's file."""
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
class _Process:
    """Kernels of NCCL of a process, in the order of their launches.

    Args:
        row: in GPU ops. launched_ns: in UTC if `utc`.
        kernel: what runs (see `_SAME_KERNEL`). dtype: index into `_REDUCED_TYPES`, or UNKNOWN.
    """

    pid: int
    row: Int64s
    launched_ns: Int64s
    utc: bool
    kernel: Int64s
    dtype: Int64s


@dataclass(frozen=True)
class _Dump:
    """Calls of a dump in the order of their times.

    Args:
        kernel, dtype: as of a process; also UNKNOWN where it is of several.
    """

    rank: int
    name: str
    calls: pl.DataFrame
    kernel: Int64s
    dtype: Int64s


@dataclass(frozen=True)
class _Join:
    """Call of each kernel of a process, UNKNOWN without."""

    process: _Process
    dump: _Dump
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
    dumps: dict[int, _Dump] = {}
    for process in _processes(trace, problems):
        rank = _rank(trace, process.pid)
        wanted = paths if rank is None else {rank: paths[rank]} if rank in paths else {}
        for number in wanted.keys() - dumps.keys():
            try:
                dumps[number] = _dump(number, paths[number])
            except (DamagedInput, OSError) as error:
                problems.append(str(error))
        try:
            joins.append(_joined(process, rank, [dumps[n] for n in sorted(wanted) if n in dumps]))
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
        trace.quality.warn(
            "nccl-records", f"NCCL's records were not joined: {'; '.join(dict.fromkeys(problems))}."
        )
    return filled, found


def _rank(trace: Trace, pid: int) -> int | None:
    """The rank of a process by the file, or by the file's name."""
    if pid in trace.rank_of:
        return trace.rank_of[pid]
    alone = trace.gpu_ops["pid"].n_unique() == 1
    return named_rank(trace.origin.name) if alone else None


def _processes(trace: Trace, problems: list[str]) -> Iterator[_Process]:
    """Processes that launched kernels of NCCL; the times of the trace's clock in UTC if it can."""
    names = trace.names
    ops = trace.gpu_ops.with_row_index("row").filter(pl.col("kind") == int(Kind.COMM))
    own = np.array([bool(_NCCL.search(own_name(name))) for name in names], dtype=np.bool_)
    ops = ops.filter(pl.Series(own[ops["name"].to_numpy()], dtype=pl.Boolean))
    if not len(ops):
        problems.append(f"{trace.origin.name}: has no kernel of NCCL")
    for (pid,), found in ops.partition_by("pid", as_dict=True, maintain_order=True).items():
        rows = found.filter(pl.col("linked") & ~pl.col("graph")).sort("launch_t0", "t0")
        if not len(rows):
            problems.append(
                f"{trace.origin.name}: its kernels of NCCL are of CUDA graphs or without their "
                "launch, which the recorder does not note"
            )
            continue
        if rows["device"].n_unique() > 1:
            problems.append(f"{trace.origin.name}: one process drives several GPUs")
            continue
        launched = rows["launch_t0"].to_numpy()
        since = 0 if launched[0] > _UTC else trace.origin.utc_ns
        yield _Process(
            pid=pid,
            row=rows["row"].to_numpy().astype(np.int64),
            launched_ns=launched + (since or 0),
            utc=since is not None,
            kernel=_kernels(rows["operation"].to_numpy().astype(np.int64)),
            dtype=per_name(rows["name"].to_numpy(), names, _reduced_type).astype(np.int64),
        )


def _kernels(operation: Int64s) -> Int64s:
    found = operation.copy()
    for of, kernel in _SAME_KERNEL.items():
        found[operation == of] = kernel
    return found


def _reduced_type(name: str) -> int:
    found = _REDUCED.search(own_name(name))
    return UNKNOWN if found is None or found.lastindex is None else found.lastindex - 1


def _dump(rank: int, path: Path) -> _Dump:
    """Errors are those of `read_flight_record`."""
    record = read_flight_record(path)
    calls = noted_calls(record).sort("created_ns", maintain_order=True)
    types = {name: number for number, name in enumerate(_REDUCED_TYPES)}
    # NCCL reduces complex numbers as pairs of numbers; a type that is no such one is none of them.
    named = calls["dtype"].str.to_lowercase().str.strip_prefix("complex")
    dtype = [UNKNOWN if not name else types.get(name, len(types)) for name in named.to_list()]
    return _Dump(
        rank=rank,
        name=record.name,
        calls=calls,
        kernel=_kernels(calls["operation"].to_numpy()),
        dtype=np.array(dtype, dtype=np.int64),
    )


def _joined(process: _Process, rank: int | None, dumps: Sequence[_Dump]) -> _Join:
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


def _join(process: _Process, dump: _Dump, who: str) -> _Join:
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
    fits = _fits(process, dump)
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
            f"{dump.name}: fits {who} in the trace in several ways, {abs(clocks.rival):.0f} "
            f"collectives by another against {clocks.score:.0f}; profile more steps"
        )
    return join


def _fits(process: _Process, dump: _Dump) -> Fits:
    def agree(ours: Int64s, theirs: Int64s) -> Bools:
        return (ours == theirs) | (ours == UNKNOWN) | (theirs == UNKNOWN)

    def fits(launch: Int64s, call: Int64s) -> Bools:
        return agree(process.kernel[launch], dump.kernel[call]) & agree(
            process.dtype[launch], dump.dtype[call]
        )

    return fits


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
