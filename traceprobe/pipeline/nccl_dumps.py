"""Calls in dumps and logs, in the terms in which kernels of NCCL are compared with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from traceprobe.errors import DamagedInput
from traceprobe.ingest.nccl.flight_recorder import read_flight_record
from traceprobe.ingest.nccl.inspected_calls import communicators_of_log, inspected_calls
from traceprobe.ingest.nccl.inspector_log import is_log, read_log
from traceprobe.ingest.nccl.noted_calls import noted_calls
from traceprobe.model.codes import UNKNOWN, Bools, Int64s
from traceprobe.pipeline.nccl_kernels import KernelsOfProcess, kernels_of
from traceprobe.records.nccl import Source
from traceprobe.timeline.record_alignment import Fits

if TYPE_CHECKING:
    import polars as pl


_REDUCED_TYPES = ("float", "half", "bfloat16", "double")
"""PyTorch's names of `reduced_types.REDUCED_TYPES`."""


class Dump(msgspec.Struct, frozen=True):
    """Calls of a dump, or of a log, in the order of their times.

    Args:
        rank: of a log, that in its largest communicator.
        kernel, dtype: as of a process; also UNKNOWN where it is of several.
        untimed: operations without a time, which are no calls.
        damaged: lines that could not be read.
    """

    rank: int
    name: str
    source: Source
    calls: pl.DataFrame
    kernel: Int64s
    dtype: Int64s
    untimed: int = 0
    damaged: int = 0


class Files:
    """Dumps and logs, each read when it is first asked for."""

    def __init__(self, paths: Mapping[int, Sequence[Path]], problems: list[str]) -> None:
        self._paths, self._problems = paths, problems
        self._read: dict[tuple[int, Path], Dump | None] = {}

    def of_rank(self, rank: int | None) -> tuple[int, list[Dump]]:
        """How many files may be of a rank, of any where it is not known, and what they hold."""
        numbers = sorted(self._paths) if rank is None else [rank] if rank in self._paths else []
        wanted = [(number, path) for number in numbers for path in self._paths[number]]
        for number, path in wanted:
            if (number, path) not in self._read:
                self._read[number, path] = _read(number, path, self._problems)
        return len(wanted), [dump for key in wanted if (dump := self._read[key]) is not None]


def _read(rank: int, path: Path, problems: list[str]) -> Dump | None:
    """A dump or log, or what is wrong with it among the problems."""
    try:
        return read_dump(rank, path)
    except DamagedInput as error:
        problems.append(str(error))
    except OSError as error:  # its own text has the whole path
        problems.append(f"{path.name}: {error.strerror or type(error).__name__}")
    return None


def read_dump(rank: int, path: Path) -> Dump:
    """The calls of a rank's dump or log. Errors are those of their readers."""
    if is_log(path):
        return _read_log(rank, path)
    record = read_flight_record(path)
    calls = noted_calls(record).sort("created_ns", maintain_order=True)
    types = {name: number for number, name in enumerate(_REDUCED_TYPES)}
    # NCCL reduces complex numbers as pairs of numbers; a type that is no such one is none of them.
    named = calls["dtype"].str.to_lowercase().str.strip_prefix("complex")
    dtype = [UNKNOWN if not name else types.get(name, len(types)) for name in named.to_list()]
    return Dump(
        rank=rank,
        name=record.name,
        source="flight_recorder",
        calls=calls,
        kernel=kernels_of(calls["operation"].to_numpy()),
        dtype=np.array(dtype, dtype=np.int64),
    )


def _read_log(rank: int, path: Path) -> Dump:
    log = read_log(path)
    calls = inspected_calls(log)
    return Dump(
        rank=rank,
        name=log.name,
        source="inspector",
        calls=calls,
        kernel=kernels_of(calls["operation"].to_numpy()),
        dtype=np.full(len(calls), UNKNOWN, dtype=np.int64),
        untimed=sum(noted.began_us == UNKNOWN for noted in log.operations),
        damaged=log.damaged,
    )


def same_work(process: KernelsOfProcess, dump: Dump) -> Fits:
    """Which kernels may be of which calls.

    They agree in the operation, the type that is reduced and, where both have NCCL's own name of
    it, the communicator.
    """
    theirs = dump.calls["group"].to_numpy()
    if dump.source == "inspector":
        ours = communicators_of_log(process.communicator, theirs)
    else:
        ours = np.full(len(process.row), UNKNOWN, dtype=np.int64)

    def agree(ours: Int64s, theirs: Int64s) -> Bools:
        found: Bools = (ours == theirs) | (ours == UNKNOWN) | (theirs == UNKNOWN)
        return found

    def fits(launch: Int64s, call: Int64s) -> Bools:
        return (
            agree(process.kernel[launch], dump.kernel[call])
            & agree(process.dtype[launch], dump.dtype[call])
            & agree(ours[launch], theirs[call])
        )

    return fits
